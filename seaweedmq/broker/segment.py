"""One open segment on its primary: append in memory, write to the log file, fsync, commit.

The log file comes with the first record and is replaced when it is full, old, or failed. What is not committed stays
in memory, so that a failed file costs nobody an acknowledged record.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from seaweedmq.broker.budget import MemoryBudget
from seaweedmq.broker.flush import GroupSync
from seaweedmq.broker.log_file import create_log_file
from seaweedmq.broker.meter import Meter
from seaweedmq.broker.replicate import FollowerLink
from seaweedmq.broker.signal import Signal
from seaweedmq.codec.frame import Frame, stamp
from seaweedmq.core.producers import ProducerTable
from seaweedmq.core.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry, SegmentLog
from seaweedmq.errors import Fenced, SeaweedMQError, StaleMetadata, StorageFailed, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.protocol import FrameAck
from seaweedmq.model.replication import ReplicateOpen, SealedLog, SegmentRef, Suspicion
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Durability, Topic
from seaweedmq.ports import BrokerApi, FileKind, LogWriter, SegmentFile, SegmentStore

log = logging.getLogger(__name__)

WRITE_BYTES = 8 * 1024 * 1024
"""Most bytes handed to the file at once; bounds how long one write keeps others of the segment waiting."""
UNSYNCED_BYTES_MAX = 32 * 1024 * 1024
"""Beyond this an fsync does not wait for the flush interval: followers hold what is not fsynced, and written pages that
leave the page cache early are there again for the next writes."""
RETRY_S_MAX = 10.0
"""Longest pause between two attempts to write: each may leave a file behind until the storage works again."""
CLOSE_TIMEOUT_S = 5.0
"""How long a hanging fsync may hold up the end of a segment: others must be able to leave or rejoin the cluster."""
TELL_AGAIN_S = 2.0
"""How long a leader that was told of a broken segment has before it, or its successor, is told again."""
LEASE_CHECK_S = 0.05
"""How soon a commit that waits for the lease is tried again."""


@dataclass(slots=True)
class OpenFile:
    """A log file of this segment that is not closed yet. base <= synced <= written."""

    writer: LogWriter
    writer_id: str
    base: int
    written: int
    synced: int
    opened_at: float
    """Event loop time, seconds."""
    appending: bool = False
    """A write is under way: even a complete file is not closed before it is done and fsynced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """What all open segments of a broker share."""

    config: BrokerConfig
    store: SegmentStore
    budget: MemoryBudget
    group_sync: GroupSync
    writer_id: str
    lease_alive: Callable[[], bool]
    """Whether this broker surely still owns its segments."""
    wall_us: Callable[[], int]
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
            producers=ProducerTable(context.config.producers_per_segment_max),
            followers=len(segment.replicas) > 1,
        )
        self.committed_changed = Signal()
        self.appended = Signal()
        self.meter = Meter()
        self.closed: SeaweedMQError | None = None
        """Why this broker no longer serves the segment; set once."""
        self.sealed_logs: list[SegmentFile] = []
        """Log files that nothing is added to and that are not tables yet. Below ``log.flushed`` they are complete."""
        self._context = context
        self.closed_hard = False
        """Nothing is committed any more."""
        self._frozen = False
        """The segment is being sealed: what is not committed is not going to be acknowledged by this broker."""
        self._sealed: SealedLog | None = None
        self._links: list[FollowerLink] = []
        self._link_tasks: list[asyncio.Task[None]] = []
        self._unsynced_bytes = 0
        self._write_failure: SeaweedMQError | None = None
        self._sync_failure: SeaweedMQError | None = None
        self._lease_failure: SeaweedMQError | None = None
        self._files: list[OpenFile] = []
        """Every file not closed yet, in the order they were begun."""
        self._active: OpenFile | None = None
        """The one that takes the next write; the others wait for their fsync."""
        self._work = asyncio.Event()
        self._drained = Signal()
        self._sync_lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._commit_timer: asyncio.TimerHandle | None = None
        self._begun: dict[int, int] = {}
        """Base offset -> how many files were begun there, of the offsets where another one may have to begin."""
        self._leftovers: list[tuple[int, SegmentFile]] = []
        """Files of failed writes, with the end of what they may hold in part."""
        self._failed_rewrites = 0
        self._writer_task: asyncio.Task[None] | None = None

    @property
    def failure(self) -> SeaweedMQError | None:
        """Why nothing is committed at the moment; streams pass it on. None while all is well."""
        return self._lease_failure or self._write_failure or self._sync_failure

    # --- followers ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open a replicate stream to every follower."""
        opening = ReplicateOpen(
            topic=self.topic.name, segment=self.segment.id, epoch=self.segment.epoch, primary=self.segment.primary
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
            await self._follow_up_seal()
        except SeaweedMQError as error:
            log.warning("%s: lost follower %s: %s", self.segment, link.follower, error)
            await self._ask_for_successor(link.follower, str(error))

    async def _follow_up_seal(self) -> None:
        await asyncio.sleep(TELL_AGAIN_S)
        await self._ask_for_successor("", "it was sealed or fenced, and has no successor yet")

    async def _ask_for_successor(self, suspect: str, reason: str) -> None:
        """Until this is cancelled by ``close``: a leader that has heard may die before it has done it."""
        ref = SegmentRef(topic=self.topic.name, segment=self.segment.id, epoch=self.segment.epoch)
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
        entry = LogEntry(
            base, base + header.record_count, header.timestamp_max, stamp(frame.header_bytes, base), frame.payload
        )
        ack = self.log.append(header.producer_id, header.producer_epoch, header.first_sequence, entry)
        self.meter.add(self._loop.time(), entry.size_bytes, header.record_count, header.histogram)
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
        self._context.group_sync.request(self, urgent=topic.durability is Durability.STORED)
        self._commit()

    def check_open(self) -> None:
        """Raise what keeps the segment from taking records, if anything does."""
        if self.closed:
            raise self.closed
        if self.failure:
            raise self.failure

    def evict(self, bytes_wanted: int) -> int:
        """See ``budget.Evictable``."""
        return self.log.evict(bytes_wanted)

    # --- the file -----------------------------------------------------------------------------------------------------

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
                file = await self._file_for(self.log.written)
                file.appending = True
                try:
                    await file.writer.append(chunks)
                    if file not in self._files:
                        raise StorageFailed(f"{file.writer.path} was given up under a write: its fsync failed")
                except StorageFailed:
                    await self._give_up(file, end)
                    raise
                finally:
                    file.appending = False
        self._write_failure = None
        file.written = end
        self.log.on_written(end, size)
        self._drained.fire()
        retired = file is not self._active  # while it was written to: it waits for this to be fsynced and closed
        self._unsynced_bytes += size
        crowded = self._unsynced_bytes >= UNSYNCED_BYTES_MAX
        urgent = retired or crowded or self.log.durability is Durability.STORED
        self._context.group_sync.request(self, urgent=urgent)
        self._commit()

    def _persistently(self) -> AsyncRetrying:
        """Storage comes back or the segment is closed; publishers hear of it meanwhile and memory stays bounded."""

        def note(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            assert isinstance(error, StorageFailed)
            if self._write_failure is None:
                log.error("%s: can not write, retrying: %s", self.segment, error)
            self._write_failure = error
            self.committed_changed.fire()
            self._drained.fire()

        return AsyncRetrying(
            retry=retry_if_exception_type(StorageFailed),
            wait=wait_random_exponential(multiplier=0.1, max=RETRY_S_MAX),
            stop=lambda _: self.closed_hard,
            before_sleep=note,
            reraise=True,
        )

    async def _file_for(self, base: int) -> OpenFile:
        """The file that takes what begins at ``base``."""
        if self._active and self._active.writer.size_bytes >= self._context.config.log_roll_bytes:
            self.retire()
        if self._active is None:
            self._active = await self._create_file(base)
        return self._active

    async def _create_file(self, base: int) -> OpenFile:
        context = self._context
        # After a failure another file may begin at the same offset, and needs a name of its own.
        repeats = self._begun.get(base, 0)
        writer_id = context.writer_id if not repeats else f"{context.writer_id}.{repeats}"
        self._begun = {b: count for b, count in self._begun.items() if b >= self.log.flushed}
        self._begun[base] = repeats + 1  # before the attempt: it may fail half done
        writer = await create_log_file(
            context.store, self.topic, self.segment, base, writer_id, self.log.producers_below(base)
        )
        file = OpenFile(writer, writer_id, base, base, base, self._loop.time())
        self._files.append(file)
        return file

    def retire(self) -> None:
        """Let the newest file be complete: the next write begins another one, and this one is fsynced and closed."""
        if self._active is not None:
            self._active = None
            self._context.group_sync.request(self, urgent=True)

    def retire_if_older(self, age_s: float) -> None:
        """Seal the newest file if it was opened longer ago than ``age_s`` seconds."""
        file = self._active
        if file and file.written > file.base and self._loop.time() - file.opened_at >= age_s:
            self.retire()

    async def sync(self) -> None:
        """Fsync what is written, close files that are complete. See ``flush.Syncable``."""
        async with self._sync_lock:
            self._unsynced_bytes = 0
            for file in list(self._files):
                if file not in self._files:
                    continue  # given up meanwhile
                end = file.written
                if file.synced < end:
                    try:
                        await file.writer.sync()
                    except StorageFailed as error:
                        await self._rewrite(file, error)
                        break
                    file.synced = end
                    self.log.on_synced(end)
                if file is not self._active and not file.appending and file.synced == file.written:
                    await self._seal(file)
            await self._delete_leftovers()
        self._commit()

    async def _seal(self, file: OpenFile) -> None:
        await file.writer.close()
        self._files.remove(file)
        if file.written > file.base:
            self.sealed_logs.append(self._described(file))

    def _described(self, file: OpenFile) -> SegmentFile:
        return SegmentFile(
            topic=self.topic.name,
            segment=self.segment.id,
            kind=FileKind.LOG,
            base_offset=file.base,
            end_offset=None,
            writer=file.writer_id,
            size_bytes=file.writer.size_bytes,
            path=file.writer.path,
            modified_us=self._context.wall_us(),
        )

    async def _rewrite(self, failed: OpenFile, error: StorageFailed) -> None:
        """After a failed fsync the kernel may have dropped pages while a second fsync succeeds ("fsyncgate"): give the
        file up and write what it held to another one, from memory."""
        if self._active is failed:
            self._active = None
        if self._sync_failure is None:
            log.error("%s: fsync failed, writing %s again elsewhere: %s", self.segment, failed.writer.path, error)
        base = max(self.log.flushed, self.log.cache_start)
        entries = self.log.written_entries(base)
        try:
            if entries:
                await self._write_copy(base, entries)
            if failed.base < base:
                # What was fsynced before, or is in memory no longer, is in no other file. In one step with its copy,
                # so that they are converted together: only the copy makes good what the disk lost of this one.
                self.sealed_logs.append(self._described(failed))
            self._files.remove(failed)
            if not failed.appending:  # else the write under way finds it given up, and closes it
                await self._close_quietly(failed)
            self._sync_failure = None
            self._failed_rewrites = 0
            self._context.group_sync.request(self, urgent=True)  # files behind the failed one were not looked at
        except StorageFailed as again:
            self._sync_failure = again
            self.committed_changed.fire()
            pause_s = random.uniform(0, min(0.5 * 2**self._failed_rewrites, RETRY_S_MAX))
            self._failed_rewrites = min(self._failed_rewrites + 1, 10)
            self._loop.call_later(pause_s, lambda: self._context.group_sync.request(self, urgent=True))

    async def _write_copy(self, base: int, entries: list[LogEntry]) -> None:
        copy = await self._create_file(base)
        end = entries[-1].end_offset
        try:
            await copy.writer.append([part for e in entries for part in (e.header, e.payload)])
            await copy.writer.sync()
        except StorageFailed:
            await self._leave(copy, end)
            raise
        copy.written = copy.synced = end
        self.log.on_synced(end)
        await self._seal(copy)

    async def _give_up(self, file: OpenFile, end: int) -> None:
        """After a failed append of what ends at ``end``: what was written before it is still to be fsynced, nothing
        is added."""
        if self._active is file:
            self._active = None
        if file not in self._files:
            await self._close_quietly(file)
        elif file.written == file.base:
            await self._leave(file, end)

    async def _leave(self, file: OpenFile, end: int) -> None:
        """Close a file that counts for nothing. It may hold whole frames all the same, which a successor of this
        broker may have found: it is deleted only when all of that is fsynced in another file."""
        self._leftovers.append((end, self._described(file)))
        await self._close_quietly(file)

    async def _delete_leftovers(self) -> None:
        useless = [file for end, file in self._leftovers if end <= self.log.flushed]
        if not useless:
            return
        self._leftovers = [entry for entry in self._leftovers if entry[0] > self.log.flushed]
        try:
            await self._context.store.delete(useless)
        except StorageFailed as error:
            log.warning("%s: %d files of failed writes stay: %s", self.segment, len(useless), error)

    async def _close_quietly(self, file: OpenFile) -> None:
        if file in self._files:
            self._files.remove(file)
        try:
            await file.writer.close()
        except StorageFailed as error:
            log.warning("%s: closing %s: %s", self.segment, file.writer.path, error)

    # --- commit -------------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Make visible what is durable, if the lease lives now, after the durable step: a broker that was frozen
        between the two must not acknowledge what its successor may not have."""
        if self._commit_timer:
            self._commit_timer.cancel()
            self._commit_timer = None
        target = self.log.committable
        if target <= self.log.committed or self.closed_hard or self._frozen:
            return
        if not self._context.lease_alive():
            if self._lease_failure is None:
                self._lease_failure = Unavailable(
                    f"{self.segment}: this broker could not renew its lease, etcd is out of reach; "
                    "nothing is acknowledged until it is back"
                )
                self.committed_changed.fire()
            self._commit_timer = self._loop.call_later(LEASE_CHECK_S, self._commit)
            return
        self._lease_failure = None
        self.log.on_committed(target)
        self._context.budget.touch(self)
        self.committed_changed.fire()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def seal(self) -> SealedLog:
        """Take nothing more, acknowledge nothing more, have everything written and fsynced. Again is no error.

        What is not acknowledged yet becomes part of the segment all the same: its publishers learn that from the
        sealed segment, and do not send it again.
        """
        if not self._frozen:
            self._frozen = True
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
            self._active = None
            while self.log.flushed < self.log.end:
                await self.sync()
                self._check_alive()
                if self._sync_failure:
                    raise self._sync_failure
            self._sealed = SealedLog(
                end_offset=self.log.end, sequences=tuple(p.sequence for p in self.log.producers.snapshot())
            )
        return self._sealed

    def _check_alive(self) -> None:
        if self.closed_hard and self.closed:
            raise self.closed

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
                while self.log.written < self.log.end:
                    await self._drained.wait()
                self._active = None
                await self.sync()
                while self.log.committed < self.log.end:
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
        if self._commit_timer:
            self._commit_timer.cancel()
        self._stop_replicating()
        if self._link_tasks:
            await asyncio.wait(self._link_tasks)
        if self._writer_task:
            self._writer_task.cancel()
            await asyncio.wait({self._writer_task})
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S), self._sync_lock:
                for file in list(self._files):
                    await self._close_quietly(file)
        except TimeoutError:
            log.error("%s: the storage hangs, %d files are left open", self.segment, len(self._files))
        self._context.budget.forget(self)
        self._context.budget.give(self.log.release_all())
        self.committed_changed.fire()
        self._drained.fire()
