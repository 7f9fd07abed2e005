"""Writers and readers of one open file on the file system."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from seaweedmq.errors import Closed, NotFound, StorageFailed
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.faults import GONE, storage_failed
from seaweedmq.storage.store.marker import RootGuard

T = TypeVar("T")

DROP_BYTES = 4 * 1024 * 1024
"""Flushed bytes that leave the page cache at a time.

The broker has its own copy of recent records. Pages that are reused at once are also faster to write than untouched
memory (3 against 0.3 GB/s in a virtual machine).
"""


class Descriptor:
    """An open file descriptor, closed once its blocking calls have ended, even if their callers are cancelled."""

    def __init__(self, fd: int, closes: ThreadPoolExecutor) -> None:
        """Take over a descriptor; the threads ``closes`` close it."""
        self.fd = fd
        self._closes = closes
        self._running: set[asyncio.Future[Any]] = set()
        self._closing: asyncio.Future[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closing is not None

    def call(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a blocking call, which continues if the caller is cancelled; the caller must shield the future."""
        running = asyncio.get_running_loop().run_in_executor(pool, call)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    async def close(self) -> None:
        """Close the descriptor and ignore errors: flushed data is durable without the close."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._running:
            await asyncio.wait(self._running)
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().run_in_executor(self._closes, os.close, self.fd)


async def open_descriptor(pool: ThreadPoolExecutor, call: Callable[[], int]) -> int:
    """Open a descriptor by a blocking call; its thread closes it if the caller is cancelled meanwhile."""
    opening = pool.submit(call)
    try:
        return await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise


def _close_opened(opening: "Future[int]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result())


class FileLogWriter:
    """A ``ports.LogWriter`` on the file system. States: good -> failed (it rejects all calls) -> closed.

    A failed append may leave a part of its bytes in the file. After a failed fsync, the kernel may have dropped the
    pages it could not write and report success the next time. Either way later bytes could be lost or unreadable, so
    the writer rejects everything from then on and the segment continues in another file.
    """

    def __init__(
        self,
        place: DirectoryPlace,
        path: str,
        fd: int,
        size_bytes: int,
        *,
        writes: ThreadPoolExecutor,
        syncs: ThreadPoolExecutor,
        guard: RootGuard,
    ) -> None:
        """Take over an open log file; writes and fsyncs verify ``guard`` every ``VERIFY_INTERVAL_S``, then succeed."""
        self._guard = guard
        self._place = place
        self._path = path
        self._descriptor = Descriptor(fd, writes)
        self._size_bytes = size_bytes
        self._writes = writes
        self._syncs = syncs
        self._failure: str | None = None
        self._dropped_bytes = 0
        self._named = False
        """Whether the file's directory entry is durable."""
        self._appending = False

    @property
    def path(self) -> str:
        """Path of the log file below the storage root."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes, without a running append."""
        return self._size_bytes

    async def append(self, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        """Append bytes, one append at a time; return whether they are flushed. A failed flush fails the next call."""
        self._check()
        assert not self._appending, f"{self._path}: two appends at once would mix their bytes"
        self._appending = True
        end = self._size_bytes + sum(map(len, chunks))
        try:
            if sync:
                await self._run(self._syncs, "append to", lambda: self._write_and_sync(chunks, end, named=self._named))
            else:
                await self._run(self._writes, "append to", lambda: self._write(chunks))
            self._size_bytes = end
        except asyncio.CancelledError:
            self._failure = "an append was cancelled and may be written in part"
            raise
        finally:
            self._appending = False
        # Another fsync of this file may have failed meanwhile: the kernel reports an error only once.
        synced = sync and self._failure is None
        self._named = self._named or synced
        return synced

    async def sync(self) -> None:
        """Flush everything appended before the call."""
        self._check()
        named, end = self._named, self._size_bytes
        await self._run(self._syncs, "fsync", lambda: self._sync(end, named=named))
        self._check()  # another fsync of this file may have failed meanwhile: the kernel reports an error only once
        self._named = True

    def _write(self, chunks: Sequence[bytes | memoryview]) -> None:
        file_io.write_all(self._descriptor.fd, chunks)
        self._guard.verify_often()

    def _write_and_sync(self, chunks: Sequence[bytes | memoryview], end: int, *, named: bool) -> None:
        """Write and flush in one thread: a handover to another costs as much as both calls."""
        self._write(chunks)
        try:
            self._sync(end, named=named)
        except StorageFailed as e:
            self._failure = f"an earlier call failed ({e})"
        except OSError as e:
            self._failure = f"an earlier call failed ({storage_failed('fsync', str(self._place.path(self._path)), e)})"

    def _sync(self, end: int, *, named: bool) -> None:
        file_io.sync_file(self._descriptor.fd)
        if end - self._dropped_bytes >= DROP_BYTES:
            file_io.drop_cache(self._descriptor.fd, self._dropped_bytes, end)
            self._dropped_bytes = end
        if not named:
            self._place.sync_names(self._place.path(self._path).parent)
        self._guard.verify_often()

    async def close(self) -> None:
        """Close the file once running calls have ended, without a flush."""
        await self._descriptor.close()

    def _check(self) -> None:
        if self._descriptor.is_closed:
            raise Closed(f"{self._path} was closed by its writer")
        if self._failure is not None:
            raise StorageFailed(
                f"{self._place.path(self._path)} accepts no more records because {self._failure}: continue in another "
                "file"
            )

    async def _run(self, pool: ThreadPoolExecutor, action: str, call: Callable[[], None]) -> None:
        """Run a call that continues if the caller is cancelled; ``close`` waits for its end."""
        running = self._descriptor.call(pool, call)
        running.add_done_callback(self._finished)
        try:
            await asyncio.shield(running)
        except StorageFailed as e:
            self._failure = f"an earlier call failed ({e})"
            raise
        except OSError as e:
            failed = storage_failed(action, str(self._place.path(self._path)), e)
            self._failure = f"an earlier call failed ({failed})"
            raise failed from e

    def _finished(self, running: asyncio.Future[None]) -> None:
        error = None if running.cancelled() else running.exception()
        if error is not None and self._failure is None:
            self._failure = f"an earlier call failed ({error})"


class FileLogReader:
    """A ``ports.LogReader`` on the file system.

    The descriptor keeps a deleted file readable, except on network file systems. Reads add nothing to the page cache,
    which the written bytes have left (``DROP_BYTES``). Usually one subscriber reads them. To clear new pages takes
    longer than to read from a disk that reads ahead: 0.4 against 0.8 GB/s from file to subscriber in a virtual machine.
    """

    def __init__(self, path: str, fd: int, reads: ThreadPoolExecutor) -> None:
        self._path = path
        self._descriptor = Descriptor(fd, reads)
        self._once = file_io.OnceReader(fd)
        self._reads = reads
        self._last_position = 0
        self._last = memoryview(b"")
        """Bytes of the last read: a scan begins the next read within them, at the start of a frame."""

    async def read(self, position: int, length: int) -> memoryview:
        """Read ``length`` bytes from ``position``; fewer only at the end of the file."""
        if self._descriptor.is_closed:
            raise Closed(f"{self._path} was closed by its reader")
        known = self._last[position - self._last_position :][:length] if position >= self._last_position else b""
        call = partial(self._once.read_at, position, length, known=known)
        try:
            self._last = await asyncio.shield(self._descriptor.call(self._reads, call))
            self._last_position = position
            return self._last
        except OSError as e:
            if e.errno in GONE:
                raise NotFound(f"{self._path} was deleted: list the segment's files again") from e
            raise storage_failed("read", self._path, e) from e

    async def close(self) -> None:
        """Close the file once running reads have ended."""
        self._last = memoryview(b"")
        await self._descriptor.close()
