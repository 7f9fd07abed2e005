"""Writing of an open segment's frames to its log files, in the order of their offsets."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from seaweedmq.broker.segment.sink import SegmentSink
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import StorageFailed
from seaweedmq.model.segment import Segment
from seaweedmq.runtime.retrying import retrying, when

log = logging.getLogger(__name__)

WRITE_BYTES = 8 * 1024 * 1024
"""Most bytes in one write to the file. It bounds the time that other operations of the segment wait for a write."""


class OnWritten(Protocol):
    """The reaction to a write."""

    def __call__(self, end: int, size_bytes: int, *, sync_due: bool) -> None:
        """React to written frames that end at ``end``; ``sync_due``: whether an fsync should follow at once."""


class SegmentWriter:
    """A task that writes the frames of one segment. A failed write is retried until the segment is closed.

    Meanwhile publishers receive the failure, and memory stays bounded.
    """

    def __init__(
        self,
        segment: Segment,
        segment_log: SegmentLog,
        files: SegmentSink,
        *,
        is_closed: Callable[[], bool],
        on_written: OnWritten,
        on_failed: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        """Create the writer; ``start`` runs it. ``failure`` is set before ``on_failed`` is called."""
        self.failure: StorageFailed | None = None
        """The reason why the last write failed; None if it did not."""
        self._segment = segment
        self._log = segment_log
        self._files = files
        self._is_closed = is_closed
        self._on_written = on_written
        self._on_failed = on_failed
        self._spawn = spawn
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, unless it was started before: a segment without frames needs none."""
        if self._task is None:
            self._task = self._spawn(self._run(), f"write {self._segment}")

    def wake(self) -> None:
        """Write the frames that may be written by now."""
        self._work.set()

    async def close(self) -> None:
        """Stop writing. On return no task runs."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while entries := self._log.take_unwritten(WRITE_BYTES):
                try:
                    await self._write(entries)
                except StorageFailed as error:
                    log.error("segment closed: %s has unwritten records, none acknowledged: %s", self._segment, error)
                    return

    async def _write(self, entries: list[LogEntry]) -> None:
        chunks: list[bytes | memoryview] = [part for e in entries for part in (e.header, e.payload)]
        size, end = sum(e.size_bytes for e in entries), entries[-1].end_offset
        try:
            sync_due = await self._files.append(chunks, size, end, urgent=self._log.waits_for_fsync)
        except StorageFailed as error:
            self._note_failure(error)
            if self._is_closed():
                raise
            await asyncio.sleep(self._files.pause_s(1))
            sync_due = await self._append_persistently(chunks, size, end)
        self.failure = None
        self._on_written(end, size, sync_due=sync_due)

    async def _append_persistently(self, chunks: Sequence[bytes | memoryview], size_bytes: int, end: int) -> bool:
        """Retry after a first failure until storage recovers or the segment is closed."""

        async def attempt() -> bool:
            await self._files.probe()
            return await self._files.append(chunks, size_bytes, end)

        appending = retrying(
            lambda failed: self._files.pause_s(failed + 1),
            on=StorageFailed,
            stop=when(self._is_closed),
            on_retry=lambda _, error: self._note_failure(error),
        )
        sync_due: bool = await appending(attempt)
        return sync_due

    def _note_failure(self, error: BaseException) -> None:
        assert isinstance(error, StorageFailed)
        if self.failure is None:
            log.error("write failed: %s: %s; retrying", self._segment, error)
        self.failure = error
        self._on_failed()
