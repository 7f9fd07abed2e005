"""``seaweedmq broker`` whose storage writes no faster than ``DISK_BYTES_PER_S``, for the memory suite alone.

The broker, its store and its files are the real ones; only an append takes as long as it would on such a disk. Limits
of the kernel (cgroup io.max) would do the same for those who are root, and not for the page cache.
"""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from seaweedmq.cli.main import run
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.file_handles import FileLogWriter
from seaweedmq.storage.files import FileSegmentStore, open_store

DISK_BYTES_PER_S = 20e6


class SlowStore(FileSegmentStore):
    """One slow disk: appends to all files share its speed."""

    def __init__(self, store: FileSegmentStore) -> None:
        super().__init__(store.root)
        self._free_at = 0.0

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> FileLogWriter:
        """As of the real store, with a writer that waits for the disk."""
        log = await super().create_log(topic, segment, base_offset, writer, preamble)
        append = log.append

        async def slowly(chunks: Sequence[bytes | memoryview]) -> None:
            await self._pause(sum(map(len, chunks)))
            await append(chunks)

        log.append = slowly  # type: ignore[method-assign]
        return log

    async def _pause(self, size_bytes: int) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + size_bytes / DISK_BYTES_PER_S
        await asyncio.sleep(self._free_at - now)


if __name__ == "__main__":
    command: Any = importlib.import_module("seaweedmq.cli.broker")
    command.open_store = lambda uri: SlowStore(open_store(uri))
    run()
