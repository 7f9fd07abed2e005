"""One open segment on its primary: append in memory, replicate, write to the log files, fsync, commit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tenacity import AsyncRetrying

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.commit import Committer
from seaweedmq.broker.segment.files import SegmentFiles
from seaweedmq.broker.segment.flush import GroupSync
from seaweedmq.broker.segment.meter import Meter
from seaweedmq.broker.segment.replicate import FollowerLink
from seaweedmq.codec.frame import Frame, stamp
from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.core.segment.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry, SegmentLog
from seaweedmq.errors import Fenced, SeaweedMQError, StaleMetadata, StorageFailed, Unavailable, fresh
from seaweedmq.model.calls import Suspicion
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.publish import FrameAck
from seaweedmq.model.replication import ReplicateOpen, SealedLog, SegmentRef
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BrokerApi, Environment, SegmentStore
from seaweedmq.runtime.retrying import retrying, when
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

WRITE_BYTES = 8 * 1024 * 1024
"""Most bytes handed to the file at once; bounds how long one write keeps others of the segment waiting."""
UNSYNCED_BYTES_MAX = 32 * 1024 * 1024
"""Beyond this an fsync does not wait for the flush interval: followers hold what is not fsynced, and written pages that
leave the page cache early are there again for the next writes."""
SAFE_REPLICAS = 2
"""Replicas without which a record that is not fsynced would be lost with one machine."""
TELL_AGAIN_S = 2.0
"""How long a leader that was told of a broken segment has before it, or its successor, is told again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """What all open segments of a broker share."""

    config: BrokerConfig
    store: SegmentStore
    budget: MemoryBudget
    producers: ProducerPool
    relaying: MemoryBudget
    """For messages on their way to followers."""
    group_sync: GroupSync
    writer_id: str
    lease_alive: Callable[[], bool]
    """Whether this broker surely still owns its segments."""
    env: Environment
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Run something for a segment; an error that it does not handle ends the broker, which is better than silence."""
    dial: Callable[[str], BrokerApi]
    """Another broker by id; Unavailable if it is gone."""
    suspect: Callable[[Suspicion], Awaitable[None]]
    """Tell the leader, until it has heard."""


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
        self.closed: SeaweedMQError | None = None
        """Why this broker no longer serves the segment; set once."""
        self.files = SegmentFiles(
            topic,
            segment,
            self.log,
            store=context.store,
            writer_id=context.writer_id,
            roll_bytes=context.config.log_roll_bytes,
            env=context.env,
            ask_sync=lambda: context.group_sync.request(self, urgent=True),
            on_failure=self.committed_changed.fire,
        )
        self.commit = Committer(
            segment,
            self.log,
            lease_alive=context.lease_alive,
            is_fenced=lambda: context.store.is_fenced(topic.name, topic.uid, segment.id),
            ask_sync=lambda: context.group_sync.request(self, urgent=True),
            on_change=self._on_commit,
            spawn=context.spawn,
            rng=context.env.rng,
        )
        self._context = context
        self.closed_hard = False
        """Nothing is committed any more."""
        self._frozen = False
        """The segment is being sealed: what is not committed is not going to be acknowledged by this broker."""
        self._sealed: SealedLog | None = None
        self._links: list[FollowerLink] = []
        self._link_tasks: list[asyncio.Task[None]] = []
        self._write_failure: SeaweedMQError | None = None
        self._work = asyncio.Event()
        self._drained = Signal()
        self._loop = asyncio.get_running_loop()
        self._writer_task: asyncio.Task[None] | None = None

    @property
    def failure(self) -> SeaweedMQError | None:
        """Why nothing is committed at the moment; streams pass it on. None while all is well."""
        return self.commit.failure or self._write_failure or self.files.failure

    @property
    def is_sure(self) -> bool:
        """Whether nobody can have ended the segment yet, so that its high watermark is that of the topic's range."""
        return self.closed is None and not self.commit.fenced and self._context.lease_alive()

    # --- followers ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open a replicate stream to every follower."""
        opening = ReplicateOpen(
            topic=self.topic.name,
            topic_uid=self.topic.uid,
            segment=self.segment.id,
            epoch=self.segment.epoch,
            primary=self.segment.primary,
        )
        for follower in self.segment.replicas[1:]:
            link = FollowerLink(
                follower=follower,
                dial=self._context.dial,
                opening=opening,
                log=self.log,
                appended=self.appended,
                on_held=self._on_held,
                timeout_s=self._context.config.replica_timeout_s,
                memory=self._context.relaying,
            )
            self._links.append(link)
            self._link_tasks.append(
                self._context.spawn(self._replicate(link), f"replicate {self.segment} to {follower}")
            )

    async def _replicate(self, link: FollowerLink) -> None:
        """Nothing is committed once a follower is lost: the leader seals the segment, and it goes on elsewhere."""
        try:
            await link.run()
        except Fenced as error:
            log.warning("%s: %s", self.segment, error)
            self.commit.lose(link.follower, error)
            await self._follow_up_seal()
        except SeaweedMQError as error:
            log.warning("%s: lost follower %s: %s", self.segment, link.follower, error)
            self.commit.lose(link.follower, error)
            await self._ask_for_successor(link.follower, str(error))

    async def _follow_up_seal(self) -> None:
        await asyncio.sleep(TELL_AGAIN_S)
        await self._ask_for_successor("", "it was sealed or fenced, and has no successor yet")

    async def _ask_for_successor(self, suspect: str, reason: str) -> None:
        """Until this is cancelled by ``close``: a leader that has heard may die before it has done it."""
        ref = SegmentRef(
            topic=self.topic.name, topic_uid=self.topic.uid, segment=self.segment.id, epoch=self.segment.epoch
        )
        while True:
            await self._context.suspect(Suspicion(ref=ref, suspect=suspect, reason=reason))
            await asyncio.sleep(TELL_AGAIN_S)

    def _on_held(self) -> None:
        held = min(link.held for link in self._links)
        if held > self.log.replicated and not self._frozen:
            self.log.on_replicated(held)
            self._work.set()

    # --- publishers ---------------------------------------------------------------------------------------------------

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
        ack = self.log.append(header.producer_id, header.producer_epoch, header.first_sequence, entry)
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
        self._context.group_sync.request(self, urgent=self.log.waits_for_fsync)
        self.commit.advance()

    def check_open(self) -> None:
        """Raise what keeps the segment from taking records, if anything does."""
        if self.closed:
            raise fresh(self.closed)
        if self.failure:
            raise fresh(self.failure)

    def evict(self, bytes_wanted: int) -> int:
        """See ``budget.Evictable``."""
        return self.log.evict(bytes_wanted)

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
        async for attempt in self._persistently():
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    await self.files.probe()
                retired = await self.files.append(chunks, size, end)
        self._write_failure = None
        self.log.on_written(end, size)
        self._drained.fire()
        crowded = self.files.unsynced_bytes >= UNSYNCED_BYTES_MAX
        # A file that was retired while it was written to waits for this to be fsynced and closed.
        urgent = retired or crowded or self.log.waits_for_fsync
        self._context.group_sync.request(self, urgent=urgent)
        self.commit.advance()

    def _persistently(self) -> AsyncRetrying:
        """Storage comes back or the segment is closed; publishers hear of it meanwhile and memory stays bounded."""

        def note(_: int, error: BaseException) -> None:
            assert isinstance(error, StorageFailed)
            if self._write_failure is None:
                log.error("%s: can not write, retrying: %s", self.segment, error)
            self._write_failure = error
            self.committed_changed.fire()
            self._drained.fire()

        return retrying(self.files.pause_s, on=StorageFailed, stop=when(lambda: self.closed_hard), told=note)

    async def sync(self) -> None:
        """Fsync what is written. See ``flush.Syncable``."""
        await self.files.sync()
        if not self.closed_hard:
            self._context.budget.touch(self)  # what is fsynced may be evicted
        self.commit.advance()

    def _on_commit(self) -> None:
        self._context.budget.touch(self)
        self.committed_changed.fire()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def seal(self) -> SealedLog:
        """Take nothing more, acknowledge nothing more, have everything written and fsynced. Again is no error.

        What is not acknowledged yet becomes part of the segment all the same: its publishers learn that from the
        sealed segment, and do not send it again.

        Raises:
            StaleMetadata: others have sealed it from its files.
            StorageFailed: not everything could be written and fsynced yet.
        """
        if self.commit.fenced and self.commit.failure:
            raise fresh(self.commit.failure)
        if not self._frozen:
            self._frozen = True
            self.commit.stop()
            self.closed = StaleMetadata(f"{self.segment} is being sealed: go on in its successors")
            self._stop_replicating()
            self._link_tasks.append(self._context.spawn(self._follow_up_seal(), f"seal {self.segment}"))
            self.log.without_followers()
        if self._sealed is None:
            self._work.set()
            self._drained.fire()
            while self.log.written < self.log.end:
                await self._drained.wait()
                self._check_alive()
            self.files.retire()
            while self.log.flushed < self.log.end:
                await self.sync()
                self._check_alive()
                if self.files.failure:
                    raise fresh(self.files.failure)
            self._sealed = SealedLog(end_offset=self.log.end, sequences=self.log.producers.unsettled(self._loop.time()))
        return self._sealed

    def _check_alive(self) -> None:
        if self.closed_hard and self.closed:
            raise fresh(self.closed)

    def _stop_replicating(self) -> None:
        for task in self._link_tasks:
            task.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Take nothing more, store and commit what is there, close the files. What is not done in time is left to
        the recovery from files; nobody was told it is kept."""
        if self._links or self._frozen:
            await self._drain_replicated(timeout_s)
            return
        self.closed = Unavailable(f"{self.segment}: broker is shutting down; the segment moves to another one")
        self._drained.fire()
        try:
            async with asyncio.timeout(timeout_s):
                while self.log.written < self.log.end and not self.closed_hard:
                    await self._drained.wait()
                if self.closed_hard:
                    return  # the lease was lost meanwhile, and whoever noticed has closed it
                self.files.retire()
                await self.sync()
                while self.log.committed < self.log.end and not self.closed_hard:
                    await self.committed_changed.wait()
        except TimeoutError:
            log.warning(
                "%s: %d of %d offsets committed when time ran out", self.segment, self.log.committed, self.log.end
            )
        await self.close(self.closed)

    async def _drain_replicated(self, timeout_s: float) -> None:
        """The followers may be leaving as well: have everything in the files, and acknowledge nothing more."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.seal()
        except (SeaweedMQError, TimeoutError) as error:
            log.warning("%s: not all of it is in the files: %s", self.segment, error or "no time left")
        await self.close(self.closed or Unavailable(f"{self.segment} was sealed"))

    async def close(self, reason: SeaweedMQError) -> None:
        """Stop serving at once: nothing is written, committed or acknowledged from here on."""
        self.closed = reason
        self.closed_hard = True
        self.commit.stop()
        self._stop_replicating()
        if self._link_tasks:
            await asyncio.wait(self._link_tasks)
        await self.commit.close()
        if self._writer_task:
            self._writer_task.cancel()
            await asyncio.wait({self._writer_task})
        await self.files.close()
        self._context.budget.forget(self)
        self._context.budget.give(self.log.release_all())
        self.log.producers.release()
        self.committed_changed.fire()
        self._drained.fire()
