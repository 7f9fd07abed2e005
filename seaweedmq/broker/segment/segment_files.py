"""The log files of one open segment: created on demand, completed when full, old or failed.

A file whose fsync failed is abandoned. Frames stay in memory until they are flushed, so a failed file loses no
acknowledged record.

A file may begin while the end of its predecessor is not flushed yet. Power loss may then cut off that end, so the
preamble of each file records the offset flushed when it began. No file begins before all earlier ones are durable.
A missing file was therefore deleted after tables held all of it (``storage.read.recovery``).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from seaweedmq.broker.segment.log_file import LogFileCreator, OpenFile
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import StorageFailed
from seaweedmq.model.config import KIB
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.ports import DirectoryStore, Environment
from seaweedmq.runtime.retrying import backoff

log = logging.getLogger(__name__)

RETRY_S_MAX = 10.0
"""Longest pause in seconds between two attempts to write. Each attempt may leave a file until storage recovers."""
PROBE_S_MAX = 2.0
"""Longest pause in seconds while even a probe fails. A probe leaves no file, so a full disk with room again is noticed
soon."""
UNFLUSHED_BYTES_MAX = 32 * 1024 * 1024
"""Written bytes beyond which an fsync does not wait for the flush interval.

It bounds the unflushed frames that followers hold, and frees pages of the page cache early for the next writes.
"""
SYNCED_WRITE_BYTES_MAX = 256 * KIB
"""Largest write in bytes that is one call with its fsync. A larger one lets the next write overlap with its fsync."""
CLOSE_TIMEOUT_S = 5.0
"""Longest time in seconds that a hanging fsync may delay closing a segment: the broker must be able to leave or rejoin
the cluster."""


class SegmentFiles:
    """The log files of one open segment. The caller reports to the log what is written and what is ``flushed``.

    Of writes and fsyncs only ``append`` raises StorageFailed. After a failed fsync the frames are written again; while
    that fails as well, it is retried later and ``failure`` is set.
    """

    def __init__(
        self,
        segment: Segment,
        segment_log: SegmentLog,
        *,
        store: DirectoryStore,
        log_files: LogFileCreator,
        roll_bytes: int,
        env: Environment,
        request_sync: Callable[[], None],
    ) -> None:
        self.sealed: list[SegmentFile] = []
        """The closed log files that are not converted to tables yet. They have all frames below ``flushed``."""
        self.failure: StorageFailed | None = None
        """The reason why nothing is flushed at the moment; None if there is none."""
        self.flushed = segment_log.flushed
        """The offset below which all frames are flushed."""
        self._unflushed_bytes = 0
        self._segment = segment
        self._log = segment_log
        self._store = store
        self._log_files = log_files
        self.roll_bytes = roll_bytes
        """The size in bytes at which a file is complete."""
        self._env = env
        self._request_sync = request_sync
        """Function that requests a call of ``sync`` soon."""
        self.open_files: list[OpenFile] = []
        """The files that are not closed yet, in order of creation."""
        self.active: OpenFile | None = None
        """The file for the next write; the other open files wait for their fsync."""
        self._leftovers: list[tuple[int, SegmentFile]] = []
        """The files of failed writes, each with the end offset of the frames it may hold in part."""
        self._failed_rewrites = 0
        self._retry_timer: asyncio.TimerHandle | None = None
        """The timer that retries a failed rewrite."""
        self._unusable = False
        """Whether the last probe failed."""
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._last_sealed: tuple[int, float] | None = None
        """The base offset of the file sealed last, and the time of that on the event loop's clock, in seconds.

        None if the newest file is empty, or there is none.
        """

    async def append(
        self, chunks: Sequence[bytes | memoryview], size_bytes: int, end: int, *, urgent: bool = False
    ) -> bool:
        """Write frames that begin at the log's ``written`` offset; return whether ``sync`` should follow at once.

        ``urgent`` fsyncs in the same call if the frames are few and no other file waits for its fsync. After
        StorageFailed no frame counts as written, and the next attempt uses another file.
        """
        file = await self._file_for(self._log.written)
        idle = self.open_files == [file] and not self._lock.locked()
        sync = urgent and idle and size_bytes <= SYNCED_WRITE_BYTES_MAX
        file.appending = True
        try:
            # Serialize fsyncs: the kernel reports a failure only once.
            async with self._lock if sync else nullcontext():
                synced = await file.writer.append(chunks, sync=sync)
            if file.is_abandoned:
                raise StorageFailed(f"{file.writer.path} was abandoned during a write: its fsync failed")
        except StorageFailed:
            await self._stop_writing(file, end)
            raise
        finally:
            file.appending = False
        file.written = end
        if synced:
            self._unflushed_bytes = 0
            self._note_flushed(file, end)
        else:
            self._unflushed_bytes += size_bytes
        # A file retired during the write waits for its fsync and close.
        return file is not self.active or self._unflushed_bytes >= UNFLUSHED_BYTES_MAX

    async def probe(self) -> None:
        """Raise StorageFailed if storage accepts no writes at all. Call after a failure, before the next file."""
        self._unusable = True
        await self._store.check()
        self._unusable = False

    def pause_s(self, failed: int) -> float:
        """Return the pause in seconds after ``failed`` failures in a row; it is shorter while probes fail."""
        limit_s = PROBE_S_MAX if self._unusable else RETRY_S_MAX
        return backoff(self._env.rng, 0.1, limit_s)(failed)

    async def close(self) -> None:
        """Close every file as it is. Files are left open if storage hangs."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S), self._lock:
                for file in list(self.open_files):
                    await self._close_quietly(file)
        except TimeoutError:
            log.error("close timed out: %s leaves %d files open: storage hangs", self._segment, len(self.open_files))
        finally:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    async def _file_for(self, base: int) -> OpenFile:
        """Return the file for frames that begin at ``base``, creating it if needed."""
        if self.active and self.active.writer.size_bytes >= self.roll_bytes:
            if self.active.is_durable:
                self.retire()
            else:
                self._request_sync()  # until then the file grows, up to UNFLUSHED_BYTES_MAX
        if self.active is None:
            await self._make_durable()
            self.active = await self._create_file(base)
        return self.active

    async def _make_durable(self) -> None:
        """Wait until every open file is durable. One is not if an append failed before its first fsync.

        Raises StorageFailed if the files can neither be fsynced nor written again.
        """
        while not all(file.is_durable for file in self.open_files):
            await self.sync()
            if self.failure:
                raise StorageFailed(str(self.failure))

    async def _create_file(self, base: int) -> OpenFile:
        writer, writer_id = await self._log_files.create(base, self._log.producers_below(base), flushed=self.flushed)
        file = OpenFile(writer, writer_id, base, base, base, self._loop.time())
        self.open_files.append(file)
        return file

    def retire(self) -> None:
        """Complete the active file: the next write begins another one, and ``sync`` closes this one."""
        if self.active is not None:
            self.active = None
            self._request_sync()

    def retire_if_older(self, age_s: float) -> None:
        """Complete the active file if it is durable, has frames, and was created ``age_s`` seconds ago or earlier."""
        file = self.active
        if file and file.is_durable and file.written > file.base and self._loop.time() - file.opened_at >= age_s:
            self.retire()

    async def sync(self) -> None:
        """Fsync all written frames and close completed files. A failure is set as ``failure``, not raised."""
        async with self._lock:
            self._unflushed_bytes = 0
            for file in list(self.open_files):
                if file not in self.open_files:
                    continue  # abandoned meanwhile
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
        """Note that the file is flushed up to ``end``, and with it all earlier files."""
        file.flushed = max(file.flushed, end)
        file.is_durable = True
        self.flushed = max(self.flushed, end)

    async def _seal(self, file: OpenFile) -> None:
        await self._close_quietly(file)
        if file.written > file.base:
            self.sealed.append(self._described(file))
            self._last_sealed = file.base, self._loop.time()

    def is_last_due(self, low_watermark: int, expires_s: float | None) -> bool:
        """Whether an idle segment, all of whose files are tables, has deleted or expired records in its last file.

        Records below ``low_watermark`` are deleted; those older than ``expires_s`` seconds, if not None, are expired.
        """
        if self._last_sealed is None or self.open_files or self.sealed or self._leftovers:
            return False
        base, since = self._last_sealed
        return low_watermark > base or (expires_s is not None and self._loop.time() - since >= expires_s)

    async def put_empty(self) -> None:
        """Put an empty log file at the end of an idle segment: retention keeps the newest one. Raises StorageFailed."""
        end = self._log.written
        await self._log_files.put_empty(end, self._log.producers_below(end))
        if not self.open_files and not self.sealed:
            self._last_sealed = None

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
        """Abandon a file whose fsync failed, and write its frames to another one, from memory.

        The kernel may have dropped the pages, and still report success for a second fsync ("fsyncgate").
        """
        failed.is_abandoned = True
        if self.active is failed:
            self.active = None
        if self.failure is None:
            log.error("fsync failed: %s writes %s again to another file: %s", self._segment, failed.writer.path, error)
        base = max(self.flushed, self._log.cache_start)
        entries = self._log.written_entries(base)
        try:
            if self._failed_rewrites:
                await self.probe()
            if entries:
                await self._write_copy(base, entries)
            if failed.base < base:
                # No other file has the frames below ``base``. The failed file joins ``sealed`` in one step with its
                # copy, so that both are converted together: only the copy has the frames that the disk lost.
                self.sealed.append(self._described(failed))
            self.open_files.remove(failed)
            if not failed.appending:  # else the write under way notices and closes it
                await self._close_quietly(failed)
            self.failure = None
            self._failed_rewrites = 0
            self._request_sync()  # this round skipped the files after the failed one
        except StorageFailed as again:
            self.failure = again
            self._failed_rewrites += 1
            self._stop_timer()
            self._retry_timer = self._loop.call_later(self.pause_s(self._failed_rewrites), self._request_sync)

    async def _write_copy(self, base: int, entries: list[LogEntry]) -> None:
        copy = await self._create_file(base)
        end = entries[-1].end_offset
        try:
            await copy.writer.append([part for e in entries for part in (e.header, e.payload)])
            await copy.writer.sync()
        except StorageFailed:
            await self._abandon(copy, end)
            raise
        copy.written = end
        self._note_flushed(copy, end)
        await self._seal(copy)

    async def _stop_writing(self, file: OpenFile, end: int) -> None:
        """Stop writing to a file after a failed append up to ``end``. Its earlier frames still need their fsync."""
        if self.active is file:
            self.active = None
        if file not in self.open_files:
            await self._close_quietly(file)
        elif file.written == file.base:
            await self._abandon(file, end)

    async def _abandon(self, file: OpenFile, end: int) -> None:
        """Close a file without counted frames.

        It may hold whole frames that recovery by another broker has found. It is deleted only when all of them are
        flushed to another file.
        """
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
            log.warning("cleanup failed: %s keeps %d files of failed writes: %s", self._segment, len(useless), error)

    async def _close_quietly(self, file: OpenFile) -> None:
        if file in self.open_files:
            self.open_files.remove(file)
        try:
            await file.writer.close()
        except StorageFailed as error:
            log.warning("close failed: %s, %s: %s", self._segment, file.writer.path, error)
