"""One open segment on its primary: append in memory, replicate, write to the log files, fsync, commit.

Only this module changes the segment's log, of which ``segment_writer`` takes the unwritten frames.
``core.segment.segment_lifecycle`` decides how to react to each event.
"""

import asyncio
import logging
from collections.abc import Sequence

from seaweedmq.broker.segment.context import SegmentContext
from seaweedmq.broker.segment.fence_check import FenceCheck
from seaweedmq.broker.segment.follower_set import FollowerSet
from seaweedmq.broker.segment.meter import Meter
from seaweedmq.broker.segment.segment_writer import SegmentWriter
from seaweedmq.broker.segment.sink import SinkEvents
from seaweedmq.codec.frame import Frame, FrameHeader, stamp
from seaweedmq.core.files.retention import expires_after_s
from seaweedmq.core.files.rolling import roll_bounds
from seaweedmq.core.segment.commit_rule import CheckFence, RaiseHighWatermark, RequestFsync, RetrySoon
from seaweedmq.core.segment.producer_limits import ProducerLimits
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.core.segment.segment_lifecycle import (
    UNDISPUTED,
    Action,
    CommitFlushedOnly,
    Halt,
    LeaveFollowers,
    NotifyPublishers,
    SegmentStage,
)
from seaweedmq.core.segment.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry, SegmentLog
from seaweedmq.errors import SeaweedMQError, Unavailable, fresh
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.messages.replication import SealedLog
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

SAFE_REPLICAS = 2
"""Number of replicas below which one lost machine loses records that are not flushed."""
REEVALUATE_S = 0.05
"""Pause in seconds before a commit that waits for the lease or for an fsync is re-evaluated."""


class OpenSegment:
    """An open segment on its primary. ``committed_changed`` fires with each high watermark, failure or stage."""

    def __init__(self, topic: Topic, segment: Segment, context: SegmentContext) -> None:
        self.topic = topic
        self.segment = segment
        self.log = SegmentLog(
            start_offset=segment.start_offset,
            durability=topic.durability,
            producers=ProducerTable(ProducerLimits.of(context.config), context.producers),
            followers=len(segment.replicas) > 1,
            is_under_replicated=len(segment.replicas) < min(topic.replicas, SAFE_REPLICAS),
        )
        self.committed_changed = Signal()
        self.appended = Signal()
        self.meter = Meter(asyncio.get_running_loop().time(), context.config.load_short_s, context.config.load_long_s)
        opened = context.storage.open(
            topic,
            segment,
            self.log,
            SinkEvents(request_sync=self._request_sync, on_progress=self._on_sink_progress, on_actions=self._perform),
        )
        self.files = opened.sink
        self._writer = SegmentWriter(
            segment,
            self.log,
            self.files,
            is_closed=lambda: self.is_closed,
            on_written=self._on_written,
            on_failed=self._on_write_failed,
            spawn=context.spawn,
        )
        self._context = context
        self._lifecycle = opened.lifecycle
        self._advanced = opened.advance
        self._followers = FollowerSet(
            topic,
            segment,
            self.log,
            context,
            appended=self.appended,
            on_held=self._on_held,
            on_lost=lambda follower, error: self._on_event(self._lifecycle.follower_lost(follower, error)),
        )
        self._fence_check = FenceCheck(
            topic,
            segment,
            context,
            on_answer=lambda fenced: self._on_event(self._lifecycle.fence_checked(fenced=fenced)),
            on_failure=lambda error: self._perform(self._lifecycle.fence_check_failed(error)),
        )
        self._sealed: SealedLog | None = None
        self._drained = Signal()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stage(self) -> SegmentStage:
        """The stage of the segment's lifecycle."""
        return self._lifecycle.stage

    @property
    def is_closed(self) -> bool:
        """Whether the segment is closed, so that nothing more is written."""
        return self._lifecycle.stage is SegmentStage.CLOSED

    @property
    def rejection(self) -> SeaweedMQError | None:
        """The reason why the segment permanently rejects records; None while it accepts them."""
        return self._lifecycle.rejection

    @property
    def failure(self) -> SeaweedMQError | None:
        """The reason why nothing is committed at the moment, which streams report to clients; None if there is none."""
        return self._lifecycle.failure or self._writer.failure or self.files.failure

    @property
    def is_sure(self) -> bool:
        """Whether no other broker can have sealed the segment: its high watermark is then that of the topic's range."""
        return self._lifecycle.stage in UNDISPUTED and self._context.lease_alive()

    def start(self) -> None:
        """Open a replicate stream to every follower."""
        self._followers.start()

    def _advance(self) -> None:
        """Commit as far as the rule allows. Call after every event that may raise the high watermark."""
        self._stop_timer()
        self._perform(self._advanced())

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
                    self.files.hurry()
                case CheckFence():
                    self._fence_check.begin()
                case RetrySoon():
                    self._timer = self._loop.call_later(REEVALUATE_S, self._advance)
                case CommitFlushedOnly():
                    self.log.is_under_replicated = True
                case LeaveFollowers():
                    self._followers.leave()
                    self.log.without_followers()
                case Halt():
                    self._stop_timer()
                    self._fence_check.cancel()
                case NotifyPublishers():
                    level = logging.ERROR if self.stage is SegmentStage.FENCED else logging.WARNING
                    log.log(level, "%s", self._lifecycle.failure)
                    self.committed_changed.fire()

    def _on_files(self) -> None:
        """React to the end of a write or an fsync, successful or not. A write may include an fsync."""
        self.log.on_flushed(self.files.flushed, self.files.readable)
        self._advance()
        self._followers.on_flushed()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _request_sync(self) -> None:
        self._context.sync_rounds.request(self, urgent=True)

    def _on_held(self, held: int) -> None:
        if held > self.log.replicated and self.log.has_followers:
            self.log.on_replicated(held)
            self._writer.wake()

    def open_producer(self, producer_id: int, producer_epoch: int, first_sequence: int) -> int:
        """Register a producer's stream and return the sequence to continue from. Raises as ``ProducerTable.open``."""
        return self.log.producers.open(producer_id, producer_epoch, first_sequence, self._loop.time())

    def close_producer(self, producer_id: int) -> None:
        """Note that one stream of the producer has ended."""
        self.log.producers.close(producer_id, self._loop.time())

    def find_repeat(self, header: FrameHeader) -> FrameAck | None:
        """Return the acknowledgement of a frame's earlier copy, or None. Raises as ``ProducerTable.find_repeat``."""
        return self.log.producers.find_repeat(
            header.producer_id, header.producer_epoch, header.first_sequence, header.record_count, self._loop.time()
        )

    @property
    def producer_idle_s(self) -> float:
        """The seconds of idleness after which a producer can no longer repeat a frame."""
        return self._context.config.producer_idle_s

    def adopt_producer(self, state: ProducerState) -> None:
        """Adopt an earlier segment's state of a producer. Raises as ``check_open`` and ``ProducerTable.adopt``."""
        self.check_open()
        self.log.producers.adopt(state, self._loop.time())

    async def admit(self, size_bytes: int) -> None:
        """Wait until a frame of this size fits the segment's and the broker's memory, and reserve that memory.

        Raises the reason if the segment rejects records, or commits nothing at the moment.
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
        """Assign offsets to an admitted frame. It is committed once ``log.committed`` has passed the returned range."""
        header = frame.header
        base = self.log.end
        stamped = stamp(frame.header_bytes, base)
        entry = LogEntry(base, base + header.record_count, header.encoding, stamped, frame.payload)
        ack = self.log.append(
            header.producer_id, header.producer_epoch, header.first_sequence, entry, self._loop.time()
        )
        self.meter.add(entry.size_bytes, header.record_count, header.histogram)
        self._writer.start()
        self._writer.wake()
        self.appended.fire()
        return ack

    def release(self, size_bytes: int) -> None:
        """Release the memory that ``admit`` reserved for a frame that was not appended."""
        self._context.budget.give(size_bytes + ENTRY_OVERHEAD_BYTES)

    def update(self, topic: Topic) -> None:
        """Apply changed settings of the topic."""
        self.topic = topic
        self.log.durability = topic.durability
        self.files.roll_bytes = roll_bounds(topic, self._context.config).size_bytes
        self._context.sync_rounds.request(self, urgent=self.log.waits_for_fsync)
        self._advance()

    def check_open(self) -> None:
        """Raise ``rejection`` or ``failure`` if one of them keeps the segment from accepting records."""
        if reason := self.rejection or self.failure:
            raise fresh(reason)

    def evict(self, bytes_wanted: int) -> int:
        """Evict frames from memory: see ``budget.Evictable``."""
        freed = self.log.evict(bytes_wanted)
        if freed < bytes_wanted and self.log.readable < self.log.flushed:
            self.files.relieve()
        return freed

    def forget_older(self, age_s: float) -> None:
        """Free frames that are in files and were in memory ``age_s`` seconds ago. Call at intervals."""
        self._context.budget.give(self.log.forget_older(age_s, self._loop.time()))

    def _on_written(self, end: int, size_bytes: int, *, sync_due: bool) -> None:
        self.log.on_written(end, size_bytes)
        self._drained.fire()
        if sync_due or self.files.flushed < end:
            self._context.sync_rounds.request(self, urgent=sync_due or self.log.waits_for_fsync)
        self._on_files()

    def _on_write_failed(self) -> None:
        self.committed_changed.fire()
        self._drained.fire()
        self._on_files()

    async def sync(self) -> None:
        """Fsync all written frames: see ``fsync.Syncable``."""
        await self.files.sync()
        self._on_sink_progress()

    def _on_sink_progress(self) -> None:
        """React to flushed or readable frames, and to a failure."""
        if self.is_closed:
            return
        self._on_files()
        self._context.budget.touch(self)  # flushed frames may be evicted
        if self.files.failure:
            self.committed_changed.fire()

    async def release_last_log(self) -> None:
        """Put an empty log file in an idle segment if records of its newest file are deleted or have expired.

        Retention keeps the newest log file and can then remove the one before it. Raises StorageFailed.
        """
        topic = self.topic
        is_idle = self.stage is SegmentStage.SERVING and self.log.committed == self.log.flushed == self.log.end
        low_watermark = topic.low_watermark(self.segment.slots)
        if is_idle and self.is_sure and self.files.is_last_due(low_watermark, expires_after_s(topic)):
            await self.files.put_empty()

    async def seal(self) -> SealedLog:
        """Accept and acknowledge nothing more, write and fsync all records. Repeated calls return the same end.

        Records that are not acknowledged yet also belong to the sealed segment. Publishers learn that from its metadata
        and do not send them again. Raises StaleMetadata if others have sealed the segment from its files, and
        StorageFailed if some records could not be written and flushed yet.
        """
        if self.stage is SegmentStage.FENCED and self._lifecycle.failure:
            raise fresh(self._lifecycle.failure)
        self._check_writing()
        self._perform(self._lifecycle.seal())
        if self._sealed is None:
            self._writer.wake()
            self._drained.fire()
            while self.log.written < self.log.end:
                await self._drained.wait()
                self._check_writing()
            self.files.retire()
            while self.log.readable < self.log.end:
                await self.sync()
                self._check_writing()
                if self.files.failure:
                    raise fresh(self.files.failure)
            self._perform(self._lifecycle.all_flushed())
            self._sealed = SealedLog(end_offset=self.log.end, sequences=self.log.producers.unsettled(self._loop.time()))
        return self._sealed

    def _check_writing(self) -> None:
        if self.stage in (SegmentStage.CLOSED, SegmentStage.FENCED) and self.rejection:
            raise fresh(self.rejection)

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing more, write and fsync all records, and close the files, within ``timeout_s`` seconds.

        Records that are not done in time were not acknowledged; recovery from files decides about them. A segment
        without followers also commits its records. One with followers is sealed instead, because its followers may be
        leaving as well, or be unreachable. Its successor then acknowledges the records.
        """
        try:
            async with asyncio.timeout(timeout_s):
                if self.stage is SegmentStage.SERVING and not self.log.has_followers:
                    await self._commit_all()
                else:
                    await self.seal()
        except (SeaweedMQError, TimeoutError) as error:
            log.warning(
                "drain incomplete: %s has flushed offsets up to %d of %d, committed up to %d: %s",
                *(self.segment, self.log.flushed, self.log.end, self.log.committed, error or "time is up"),
            )
        if not self.is_closed:
            await self.close(self.rejection or Unavailable(f"{self.segment} was sealed"))

    async def _commit_all(self) -> None:
        """Write and commit all records, until done or until the segment is sealed or closed meanwhile."""
        reason = f"{self.segment}: broker is shutting down, the segment moves to another one: retry"
        self._perform(self._lifecycle.drain(Unavailable(reason)))
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
        """Stop serving at once: write, commit and acknowledge nothing more. Clients receive ``reason``."""
        self._perform(self._lifecycle.close(reason))
        await self._followers.close()
        await self._fence_check.close()
        await self._writer.close()
        await self.files.close()
        self._context.budget.forget(self)
        self._context.budget.give(self.log.release_all())
        self.log.producers.release()
        self.committed_changed.fire()
        self._drained.fire()
