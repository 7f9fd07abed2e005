"""One open segment on its primary: append in memory, replicate, write to the log files, fsync, commit.

The only place that changes the segment's log. What follows from what happens is decided in ``core.segment.lifecycle``.
"""

import asyncio
import logging
from collections.abc import Sequence

from seaweedmq.broker.segment.context import SegmentContext
from seaweedmq.broker.segment.fence_check import FenceCheck
from seaweedmq.broker.segment.follower_set import FollowerSet
from seaweedmq.broker.segment.meter import Meter
from seaweedmq.broker.segment.segment_files import SegmentFiles
from seaweedmq.codec.frame import Frame, FrameHeader, stamp
from seaweedmq.core.files.retention import expires_after_s
from seaweedmq.core.files.rolling import roll_bounds
from seaweedmq.core.segment.commit_rule import CheckFence, RaiseHighWatermark, RequestFsync, RetrySoon
from seaweedmq.core.segment.producer_limits import ProducerLimits
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.core.segment.segment_lifecycle import (
    UNDISPUTED,
    Action,
    Halt,
    LeaveFollowers,
    NotifyPublishers,
    OnlyFsynced,
    SegmentLifecycle,
    SegmentStage,
)
from seaweedmq.core.segment.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry, SegmentLog
from seaweedmq.errors import SeaweedMQError, StorageFailed, Unavailable, fresh
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.messages.replication import SealedLog
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.runtime.retrying import retrying, when
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

WRITE_BYTES = 8 * 1024 * 1024
"""Most bytes handed to the file at once; bounds how long one write keeps others of the segment waiting."""
SAFE_REPLICAS = 2
"""Replicas without which a record that is not fsynced would be lost with one machine."""
COME_AGAIN_S = 0.05
"""How soon a commit that waits for the lease, or for an fsync, is tried again."""


class OpenSegment:
    """Owner's side of one open segment. ``committed_changed`` fires when the high watermark or the fate changes."""

    def __init__(self, topic: Topic, segment: Segment, context: SegmentContext) -> None:
        self.topic = topic
        self.segment = segment
        self.log = SegmentLog(
            start_offset=segment.start_offset,
            durability=topic.durability,
            producers=ProducerTable(ProducerLimits.of(context.config), context.producers),
            followers=len(segment.replicas) > 1,
            thin=len(segment.replicas) < min(topic.replicas, SAFE_REPLICAS),
        )
        self.committed_changed = Signal()
        self.appended = Signal()
        self.meter = Meter(asyncio.get_running_loop().time(), context.config.load_short_s, context.config.load_long_s)
        self.files = SegmentFiles(
            topic,
            segment,
            self.log,
            store=context.store,
            writer_id=context.writer_id,
            roll_bytes=roll_bounds(topic, context.config).size_bytes,
            env=context.env,
            ask_sync=self._ask_sync,
            provenance=context.provenance,
        )
        self._context = context
        self._lifecycle = SegmentLifecycle(segment, self.log)
        self._followers = FollowerSet(
            topic,
            segment,
            self.log,
            context,
            appended=self.appended,
            on_held=self._on_held,
            on_lost=lambda follower, error: self._on_event(self._lifecycle.follower_lost(follower, error)),
        )
        self._look = FenceCheck(
            segment,
            lambda: context.store.is_fenced(topic.name, topic.uid, segment.id),
            on_answer=lambda fenced: self._on_event(self._lifecycle.looked(fenced=fenced)),
            on_trouble=lambda error: self._perform(self._lifecycle.look_fails(error)),
            spawn=context.spawn,
            rng=context.env.rng,
        )
        self._sealed: SealedLog | None = None
        self._write_failure: SeaweedMQError | None = None
        self._work = asyncio.Event()
        self._drained = Signal()
        self._loop = asyncio.get_running_loop()
        self._writer_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stage(self) -> SegmentStage:
        """Where it stands."""
        return self._lifecycle.stage

    @property
    def is_closed(self) -> bool:
        """Whether nothing is written any more."""
        return self._lifecycle.stage is SegmentStage.CLOSED

    @property
    def refusal(self) -> SeaweedMQError | None:
        """Why it takes no records any more; None while it does."""
        return self._lifecycle.refusal

    @property
    def failure(self) -> SeaweedMQError | None:
        """Why nothing is committed at the moment; streams pass it on. None while all is well."""
        return self._lifecycle.failure or self._write_failure or self.files.failure

    @property
    def is_sure(self) -> bool:
        """Whether nobody can have ended the segment yet, so that its high watermark is that of the topic's range."""
        return self._lifecycle.stage in UNDISPUTED and self._context.lease_alive()

    def start(self) -> None:
        """Open a replicate stream to every follower."""
        self._followers.start()

    # --- what follows from what happens -------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Commit what may be committed now. After everything that may let the high watermark rise."""
        self._stop_timer()
        self._perform(self._lifecycle.progressed(lease_alive=self._context.lease_alive()))

    def _on_event(self, actions: Sequence[Action]) -> None:
        self._perform(actions)
        self._advance()

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case RaiseHighWatermark(offset):
                    self.log.on_committed(offset)
                    self._followers.on_flushed()
                    self._context.budget.touch(self)
                    self.committed_changed.fire()
                case RequestFsync():
                    self._ask_sync()
                case CheckFence():
                    self._look.begin()
                case RetrySoon():
                    self._timer = self._loop.call_later(COME_AGAIN_S, self._advance)
                case OnlyFsynced():
                    self.log.thin = True
                case LeaveFollowers():
                    self._followers.leave()
                    self.log.without_followers()
                case Halt():
                    self._stop_timer()
                    self._look.cancel()
                case NotifyPublishers():
                    log.log(
                        logging.ERROR if self.stage is SegmentStage.FENCED else logging.WARNING,
                        "%s",
                        self._lifecycle.failure,
                    )
                    self.committed_changed.fire()

    def _on_files(self) -> None:
        """A write or an fsync has ended, well or not. A write may have had to wait for an fsync of its own."""
        self.log.on_flushed(self.files.flushed)
        self._advance()
        self._followers.on_flushed()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _ask_sync(self) -> None:
        self._context.sync_rounds.request(self, urgent=True)

    def _on_held(self, held: int) -> None:
        if held > self.log.replicated and self.log.has_followers:
            self.log.on_replicated(held)
            self._work.set()

    # --- publishers ---------------------------------------------------------------------------------------------------

    def open_producer(self, producer_id: int, producer_epoch: int, first_sequence: int) -> int:
        """A producer's stream begins; the sequence it goes on from. Raises as ``ProducerTable.open``."""
        return self.log.producers.open(producer_id, producer_epoch, first_sequence, self._loop.time())

    def close_producer(self, producer_id: int) -> None:
        """One of its streams has ended."""
        self.log.producers.close(producer_id, self._loop.time())

    def find_repeat(self, header: FrameHeader) -> FrameAck | None:
        """The acknowledgement of an earlier copy of a frame, None for a new one. Raises as
        ``ProducerTable.find_repeat``."""
        return self.log.producers.find_repeat(
            header.producer_id, header.producer_epoch, header.first_sequence, header.record_count, self._loop.time()
        )

    @property
    def producer_idle_s(self) -> float:
        """Seconds after which a producer repeats nothing that it sent."""
        return self._context.config.producer_idle_s

    def adopt_producer(self, state: ProducerState) -> None:
        """Go on from what an earlier segment holds of a producer that is not known here. Raises as
        ``ProducerTable.adopt``, and what keeps the segment from taking records."""
        self.check_open()
        self.log.producers.adopt(state, self._loop.time())

    async def admit(self, size_bytes: int) -> None:
        """Wait until a frame of this size fits the segment's and the broker's memory, and count it.

        Raises:
            SeaweedMQError: the segment was closed, or can not store anything at the moment.
        """
        limit = self._context.config.segment_buffer_bytes_max
        while self.log.unwritten_bytes and self.log.unwritten_bytes + size_bytes > limit:
            self.check_open()
            await self._drained.wait()
        self.check_open()
        await self._context.budget.take(size_bytes + ENTRY_OVERHEAD_BYTES)
        try:
            self.check_open()
        except SeaweedMQError:
            self.release(size_bytes)
            raise

    def append(self, frame: Frame) -> FrameAck:
        """Give an admitted frame its offsets. It is stored once ``log.committed`` has passed the acknowledged range."""
        header = frame.header
        base = self.log.end
        entry = LogEntry(base, base + header.record_count, stamp(frame.header_bytes, base), frame.payload)
        ack = self.log.append(
            header.producer_id, header.producer_epoch, header.first_sequence, entry, self._loop.time()
        )
        self.meter.add(entry.size_bytes, header.record_count, header.histogram)
        if self._writer_task is None:
            self._writer_task = self._context.spawn(self._write_loop(), f"write {self.segment}")
        self._work.set()
        self.appended.fire()
        return ack

    def release(self, size_bytes: int) -> None:
        """Give back what ``admit`` counted for a frame that was not appended."""
        self._context.budget.give(size_bytes + ENTRY_OVERHEAD_BYTES)

    def update(self, topic: Topic) -> None:
        """Take over changed settings of the topic."""
        self.topic = topic
        self.log.durability = topic.durability
        self.files.roll_bytes = roll_bounds(topic, self._context.config).size_bytes
        self._context.sync_rounds.request(self, urgent=self.log.waits_for_fsync)
        self._advance()

    def check_open(self) -> None:
        """Raise what keeps the segment from taking records, if anything does."""
        reason = self.refusal or self.failure
        if reason:
            raise fresh(reason)

    def evict(self, bytes_wanted: int) -> int:
        """See ``budget.Evictable``."""
        return self.log.evict(bytes_wanted)

    def forget_older(self, age_s: float) -> None:
        """Give back the memory of frames that have been in files for so long. To be called at intervals."""
        self._context.budget.give(self.log.forget_older(age_s, self._loop.time()))

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write_loop(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while entries := self.log.take_unwritten(WRITE_BYTES):
                try:
                    await self._write(entries)
                except StorageFailed as error:
                    log.error("%s: closed with unwritten records, none acknowledged: %s", self.segment, error)
                    return

    async def _write(self, entries: list[LogEntry]) -> None:
        chunks: list[bytes | memoryview] = [part for e in entries for part in (e.header, e.payload)]
        size, end = sum(e.size_bytes for e in entries), entries[-1].end_offset
        try:
            pressing = await self.files.append(chunks, size, end, urgent=self.log.waits_for_fsync)
        except StorageFailed as error:
            self._note_failure(error)
            if self.is_closed:
                raise
            await asyncio.sleep(self.files.pause_s(1))
            pressing = await self._append_persistently(chunks, size, end)
        self._write_failure = None
        self.log.on_written(end, size)
        self._drained.fire()
        if pressing or self.files.flushed < end:
            self._context.sync_rounds.request(self, urgent=pressing or self.log.waits_for_fsync)
        self._on_files()

    async def _append_persistently(self, chunks: Sequence[bytes | memoryview], size_bytes: int, end: int) -> bool:
        """After a first failure, until storage comes back or the segment is closed; publishers hear of it meanwhile and
        memory stays bounded."""

        async def attempt() -> bool:
            await self.files.probe()
            return await self.files.append(chunks, size_bytes, end)

        appending = retrying(
            lambda failed: self.files.pause_s(failed + 1),
            on=StorageFailed,
            stop=when(lambda: self.is_closed),
            told=lambda _, error: self._note_failure(error),
        )
        pressing: bool = await appending(attempt)
        return pressing

    def _note_failure(self, error: BaseException) -> None:
        assert isinstance(error, StorageFailed)
        if self._write_failure is None:
            log.error("%s: can not write, retrying: %s", self.segment, error)
        self._write_failure = error
        self.committed_changed.fire()
        self._drained.fire()
        self._on_files()

    async def sync(self) -> None:
        """Fsync what is written. See ``fsync.Syncable``."""
        await self.files.sync()
        if self.is_closed:
            return
        self._on_files()
        self._context.budget.touch(self)  # what is fsynced may be evicted
        if self.files.failure:
            self.committed_changed.fire()

    async def release_last_log(self) -> None:
        """Let retention have the newest log file of an idle segment, if some of its records are deleted or expire.

        Raises:
            StorageFailed: the storage refused.
        """
        topic = self.topic
        is_idle = self.stage is SegmentStage.SERVING and self.log.committed == self.log.flushed == self.log.end
        low_watermark = topic.low_watermark(self.segment.slots)
        if is_idle and self.is_sure and self.files.is_last_due(low_watermark, expires_after_s(topic)):
            await self.files.put_empty()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def seal(self) -> SealedLog:
        """Take nothing more, acknowledge nothing more, have everything written and fsynced. Again is no error.

        What is not acknowledged yet becomes part of the segment all the same: its publishers learn that from the
        sealed segment, and do not send it again.

        Raises:
            StaleMetadata: others have sealed it from its files.
            StorageFailed: not everything could be written and fsynced yet.
        """
        if self.stage is SegmentStage.FENCED and self._lifecycle.failure:
            raise fresh(self._lifecycle.failure)
        self._check_writing()
        self._perform(self._lifecycle.seal())
        if self._sealed is None:
            self._work.set()
            self._drained.fire()
            while self.log.written < self.log.end:
                await self._drained.wait()
                self._check_writing()
            self.files.retire()
            while self.log.flushed < self.log.end:
                await self.sync()
                self._check_writing()
                if self.files.failure:
                    raise fresh(self.files.failure)
            self._perform(self._lifecycle.all_flushed())
            self._sealed = SealedLog(end_offset=self.log.end, sequences=self.log.producers.unsettled(self._loop.time()))
        return self._sealed

    def _check_writing(self) -> None:
        if self.is_closed and self.refusal:
            raise fresh(self.refusal)

    async def drain(self, timeout_s: float) -> None:
        """Take nothing more, store what is there, close the files. What is not done in time is left to the recovery
        from files; nobody was told it is kept.

        Without followers it is committed as well. Others may be leaving with their segments' followers, or be gone, so
        that what a segment with followers has is sealed, and acknowledged by its successor.
        """
        try:
            async with asyncio.timeout(timeout_s):
                if self.stage is SegmentStage.SERVING and not self.log.has_followers:
                    await self._commit_all()
                else:
                    await self.seal()
        except (SeaweedMQError, TimeoutError) as error:
            log.warning(
                "%s: stopped with %d of %d offsets fsynced, %d committed: %s",
                *(self.segment, self.log.flushed, self.log.end, self.log.committed, error or "no time left"),
            )
        if not self.is_closed:
            await self.close(self.refusal or Unavailable(f"{self.segment} was sealed"))

    async def _commit_all(self) -> None:
        """Until the segment is sealed, or closed by whoever noticed that the lease was lost."""
        self._perform(
            self._lifecycle.drain(Unavailable(f"{self.segment}: broker is shutting down; it moves to another one"))
        )
        self._drained.fire()
        while self.log.written < self.log.end and self.stage is SegmentStage.DRAINING:
            await self._drained.wait()
        if self.stage is SegmentStage.DRAINING:
            self.files.retire()
            await self.sync()
        while self.log.committed < self.log.end and self.stage is SegmentStage.DRAINING:
            await self.committed_changed.wait()
        if self.stage is SegmentStage.SEALING:
            await self.seal()

    async def close(self, reason: SeaweedMQError) -> None:
        """Stop serving at once: nothing is written, committed or acknowledged from here on."""
        self._perform(self._lifecycle.close(reason))
        await self._followers.close()
        await self._look.close()
        if self._writer_task:
            self._writer_task.cancel()
            await asyncio.wait({self._writer_task})
        await self.files.close()
        self._context.budget.forget(self)
        self._context.budget.give(self.log.release_all())
        self.log.producers.release()
        self.committed_changed.fire()
        self._drained.fire()
