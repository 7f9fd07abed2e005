"""The log files of one open segment: begun when needed, complete when full, old or failed.

A file whose fsync failed is given up. What is not fsynced stays in memory until it is, so that a failed file costs
nobody an acknowledged record.

A file may begin while the end of the one before it waits for its fsync. After power loss that end may be missing, so
each file tells in its preamble how far the fsyncs were when it began, and none begins before those it follows are there
to stay: a file that is missing then was deleted, after tables held all of it (``storage.read.recovery``).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from seaweedmq.broker.segment.log_file import create_log_file, put_empty_log_file
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import AlreadyExists, StorageFailed
from seaweedmq.model.config import KIB
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import Environment, LogWriter, SegmentStore
from seaweedmq.runtime.retrying import backoff

log = logging.getLogger(__name__)

RETRY_S_MAX = 10.0
"""Longest pause between two attempts to write: each may leave a file behind until the storage works again."""
PROBE_S_MAX = 2.0
"""The same while not even a byte aside can be written, which leaves nothing behind: how late a full disk is found to
have room again."""
UNFLUSHED_BYTES_MAX = 32 * 1024 * 1024
"""Beyond this an fsync does not wait for the flush interval: followers hold what is not fsynced, and written pages that
leave the page cache early are there again for the next writes."""
SYNCED_WRITE_BYTES_MAX = 256 * KIB
"""Up to this a write and its fsync are one call; beyond, the next write goes on beside the fsync."""
CLOSE_TIMEOUT_S = 5.0
"""How long a hanging fsync may hold up the end of a segment: others must be able to leave or rejoin the cluster."""


@dataclass(slots=True)
class OpenFile:
    """A log file of this segment that is not closed yet. base <= flushed <= written."""

    writer: LogWriter
    writer_id: str
    base: int
    written: int
    flushed: int
    opened_at: float
    """Event loop time, seconds."""
    appending: bool = False
    """A write is under way: even a complete file is not closed before it is done and fsynced."""
    is_given_up: bool = False
    """Its fsync failed: what was written so far is being copied elsewhere, and nothing more counts as written here."""
    is_durable: bool = False
    """It was fsynced once: power loss may take the end of the file, but not the file."""


class HeldLog(Protocol):
    """What is looked at of the segment's log, which only the caller changes: see ``core.segment.segment_log``."""

    @property
    def written(self) -> int: ...
    @property
    def flushed(self) -> int: ...
    @property
    def cache_start(self) -> int: ...
    def written_entries(self, offset: int) -> list[LogEntry]: ...
    def producers_below(self, offset: int) -> tuple[ProducerState, ...]: ...


class SegmentFiles:
    """Files of one segment that this broker writes. The caller tells the log what is written, and what is ``flushed``.

    Raises StorageFailed from ``append`` only; a failed fsync is made good, or tried again later, with ``failure`` set.
    """

    def __init__(
        self,
        topic: Topic,
        segment: Segment,
        segment_log: HeldLog,
        *,
        store: SegmentStore,
        writer_id: str,
        roll_bytes: int,
        env: Environment,
        ask_sync: Callable[[], None],
        provenance: Callable[[Segment], Sequence[Segment]] = lambda segment: (segment,),
    ) -> None:
        self.sealed: list[SegmentFile] = []
        """Log files that nothing is added to and that are not tables yet. Below ``flushed`` they are complete."""
        self.failure: StorageFailed | None = None
        """Why nothing is fsynced at the moment."""
        self.flushed = segment_log.flushed
        """Everything below is fsynced."""
        self._unflushed_bytes = 0
        self._topic = topic
        self._segment = segment
        self._log = segment_log
        self._store = store
        self._writer_id = writer_id
        self.roll_bytes = roll_bytes
        """At this size a file is complete."""
        self._env = env
        self._provenance = provenance
        self._ask_sync = ask_sync
        """Have ``sync`` called soon."""
        self.open_files: list[OpenFile] = []
        """Every file not closed yet, in the order they were begun."""
        self.active: OpenFile | None = None
        """The one that takes the next write; the others wait for their fsync."""
        self._begun: dict[int, int] = {}
        """Base offset -> how many files were begun there, of the offsets where another one may have to begin."""
        self._leftovers: list[tuple[int, SegmentFile]] = []
        """Files of failed writes, with the end of what they may hold in part."""
        self._failed_rewrites = 0
        self._again: asyncio.TimerHandle | None = None
        """When the rewrite that failed is tried again."""
        self._unusable = False
        """The last probe failed."""
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._last: tuple[int, float] | None = None
        """Base offset of the last file that was sealed, and the event loop's time of that. None: the newest file is
        empty, or there is none."""

    async def append(
        self, chunks: Sequence[bytes | memoryview], size_bytes: int, end: int, *, urgent: bool = False
    ) -> bool:
        """Write frames that begin at ``written`` and end at offset ``end``; whether ``sync`` should follow at once.

        If they are ``urgent`` and few, and no other file waits for its fsync, they are fsynced, too.

        Raises:
            StorageFailed: nothing of it counts as written; the next attempt goes to another file.
        """
        file = await self._file_for(self._log.written)
        idle = self.open_files == [file] and not self._lock.locked()
        sync = urgent and idle and size_bytes <= SYNCED_WRITE_BYTES_MAX
        file.appending = True
        try:
            # One fsync at a time: the kernel tells of a failed one only once.
            async with self._lock if sync else nullcontext():
                synced = await file.writer.append(chunks, sync=sync)
            if file.is_given_up:
                raise StorageFailed(f"{file.writer.path} was given up under a write: its fsync failed")
        except StorageFailed:
            await self._give_up(file, end)
            raise
        finally:
            file.appending = False
        file.written = end
        if synced:
            self._unflushed_bytes = 0
            self._note_flushed(file, end)
        else:
            self._unflushed_bytes += size_bytes
        # A file that was retired while it was written to waits to be fsynced and closed.
        return file is not self.active or self._unflushed_bytes >= UNFLUSHED_BYTES_MAX

    async def probe(self) -> None:
        """After a failure, see whether anything can be written at all, before another file is begun.

        Raises:
            StorageFailed: it can not.
        """
        self._unusable = True
        await self._store.check()
        self._unusable = False

    def pause_s(self, failed: int) -> float:
        """How long to wait after so many failures in a row, and whatever the last probe said."""
        limit_s = PROBE_S_MAX if self._unusable else RETRY_S_MAX
        return backoff(self._env.rng, 0.1, limit_s)(failed)

    async def close(self) -> None:
        """Close every file as it is; one whose storage hangs is left open."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S), self._lock:
                for file in list(self.open_files):
                    await self._close_quietly(file)
        except TimeoutError:
            log.error("%s: the storage hangs, %d files are left open", self._segment, len(self.open_files))
        finally:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def _file_for(self, base: int) -> OpenFile:
        """The file that takes what begins at ``base``."""
        if self.active and self.active.writer.size_bytes >= self.roll_bytes:
            if self.active.is_durable:
                self.retire()
            else:
                self._ask_sync()  # it grows on meanwhile, within the bound on what is not fsynced
        if self.active is None:
            await self._make_durable()
            self.active = await self._create_file(base)
        return self.active

    async def _make_durable(self) -> None:
        """Wait, if an append failed before the file's first fsync, until every file is there to stay.

        Raises:
            StorageFailed: they can not be fsynced, nor written again.
        """
        while not all(file.is_durable for file in self.open_files):
            await self.sync()
            if self.failure:
                raise StorageFailed(str(self.failure))

    async def _create_file(self, base: int) -> OpenFile:
        while True:
            # After a failure another file may begin at the same offset, and needs a name of its own.
            repeats = self._begun.get(base, 0)
            writer_id = self._writer_id if not repeats else f"{self._writer_id}.{repeats}"
            self._begun = {b: count for b, count in self._begun.items() if b >= self.flushed}
            self._begun[base] = repeats + 1  # before the attempt: it may fail half done
            try:
                writer = await create_log_file(
                    self._store,
                    self._topic,
                    self._segment,
                    base,
                    writer_id,
                    self._log.producers_below(base),
                    lineage=self._provenance(self._segment),
                    flushed=self.flushed,
                )
                break
            except AlreadyExists:
                continue  # this broker served an earlier topic of the name, and wrote this when its files were gone
        file = OpenFile(writer, writer_id, base, base, base, self._loop.time())
        self.open_files.append(file)
        return file

    def retire(self) -> None:
        """Let the newest file be complete: the next write begins another one, and this one is fsynced and closed."""
        if self.active is not None:
            self.active = None
            self._ask_sync()

    def retire_if_older(self, age_s: float) -> None:
        """Seal the newest file if it was opened longer ago than ``age_s`` seconds, once it is there to stay."""
        file = self.active
        if file and file.is_durable and file.written > file.base and self._loop.time() - file.opened_at >= age_s:
            self.retire()

    async def sync(self) -> None:
        """Fsync what is written, close files that are complete."""
        async with self._lock:
            self._unflushed_bytes = 0
            for file in list(self.open_files):
                if file not in self.open_files:
                    continue  # given up meanwhile
                end = file.written
                if file.flushed < end:
                    try:
                        await file.writer.sync()
                    except StorageFailed as error:
                        await self._rewrite(file, error)
                        break
                    self._note_flushed(file, end)
                if file is not self.active and not file.appending and file.flushed == file.written:
                    await self._seal(file)
            await self._delete_leftovers()

    def _note_flushed(self, file: OpenFile, end: int) -> None:
        """What it has below ``end`` is fsynced, and so is all that lies in files before it."""
        file.flushed = max(file.flushed, end)
        file.is_durable = True
        self.flushed = max(self.flushed, end)

    async def _seal(self, file: OpenFile) -> None:
        await self._close_quietly(file)
        if file.written > file.base:
            self.sealed.append(self._described(file))
            self._last = file.base, self._loop.time()

    def is_last_due(self, low_watermark: int, expires_s: float | None) -> bool:
        """Whether nothing is added to the segment, all its files became tables, and the last of them holds records that
        are deleted, or idled for so long that they expire."""
        if self._last is None or self.open_files or self.sealed or self._leftovers:
            return False
        base, since = self._last
        return low_watermark > base or (expires_s is not None and self._loop.time() - since >= expires_s)

    async def put_empty(self) -> None:
        """Put an empty log file at the end of an idle segment: retention keeps the newest one, and takes the others.

        Raises:
            StorageFailed: the storage refused.
        """
        end = self._log.written
        producers = self._log.producers_below(end)
        lineage = self._provenance(self._segment)
        await put_empty_log_file(
            self._store, self._topic, self._segment, end, self._writer_id, producers, lineage=lineage
        )
        if not self.open_files and not self.sealed:
            self._last = None

    def _described(self, file: OpenFile) -> SegmentFile:
        return SegmentFile(
            topic=self._segment.topic,
            segment=self._segment.id,
            kind=FileKind.LOG,
            base_offset=file.base,
            end_offset=None,
            writer=file.writer_id,
            size_bytes=file.writer.size_bytes,
            path=file.writer.path,
            modified_us=self._env.wall_us(),
        )

    async def _rewrite(self, failed: OpenFile, error: StorageFailed) -> None:
        """After a failed fsync the kernel may have dropped pages while a second fsync succeeds ("fsyncgate"): give the
        file up and write what it held to another one, from memory."""
        failed.is_given_up = True
        if self.active is failed:
            self.active = None
        if self.failure is None:
            log.error("%s: fsync failed, writing %s again elsewhere: %s", self._segment, failed.writer.path, error)
        base = max(self.flushed, self._log.cache_start)
        entries = self._log.written_entries(base)
        try:
            if self._failed_rewrites:
                await self.probe()
            if entries:
                await self._write_copy(base, entries)
            if failed.base < base:
                # What was fsynced before, or is in memory no longer, is in no other file. In one step with its copy,
                # so that they are converted together: only the copy makes good what the disk lost of this one.
                self.sealed.append(self._described(failed))
            self.open_files.remove(failed)
            if not failed.appending:  # else the write under way finds it given up, and closes it
                await self._close_quietly(failed)
            self.failure = None
            self._failed_rewrites = 0
            self._ask_sync()  # files behind the failed one were not looked at
        except StorageFailed as again:
            self.failure = again
            self._failed_rewrites += 1
            self._stop_timer()
            self._again = self._loop.call_later(self.pause_s(self._failed_rewrites), self._ask_sync)

    async def _write_copy(self, base: int, entries: list[LogEntry]) -> None:
        copy = await self._create_file(base)
        end = entries[-1].end_offset
        try:
            await copy.writer.append([part for e in entries for part in (e.header, e.payload)])
            await copy.writer.sync()
        except StorageFailed:
            await self._leave(copy, end)
            raise
        copy.written = end
        self._note_flushed(copy, end)
        await self._seal(copy)

    async def _give_up(self, file: OpenFile, end: int) -> None:
        """After a failed append of what ends at ``end``: what was written before it is still to be fsynced, nothing
        is added."""
        if self.active is file:
            self.active = None
        if file not in self.open_files:
            await self._close_quietly(file)
        elif file.written == file.base:
            await self._leave(file, end)

    async def _leave(self, file: OpenFile, end: int) -> None:
        """Close a file that counts for nothing. It may hold whole frames all the same, which a successor of this
        broker may have found: it is deleted only when all of that is fsynced in another file."""
        self._leftovers.append((end, self._described(file)))
        await self._close_quietly(file)

    async def _delete_leftovers(self) -> None:
        useless = [file for end, file in self._leftovers if end <= self.flushed]
        if not useless:
            return
        self._leftovers = [entry for entry in self._leftovers if entry[0] > self.flushed]
        try:
            await self._store.delete(useless)
        except StorageFailed as error:
            log.warning("%s: %d files of failed writes stay: %s", self._segment, len(useless), error)

    async def _close_quietly(self, file: OpenFile) -> None:
        if file in self.open_files:
            self.open_files.remove(file)
        try:
            await file.writer.close()
        except StorageFailed as error:
            log.warning("%s: closing %s: %s", self._segment, file.writer.path, error)
