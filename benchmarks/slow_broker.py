"""``seaweedmq broker`` whose storage writes no faster than ``DISK_BYTES_PER_S``, for the memory suite alone.

The broker, its store and its files are the real ones; only an append takes as long as it would on such a disk. Kernel
limits (cgroup io.max) would do the same for root, and not for the page cache.
"""

import asyncio
from collections.abc import Sequence

from seaweedmq.cli.main import run
from seaweedmq.storage.store.file_handles import FileLogWriter

DISK_BYTES_PER_S = 20e6


class SlowDisk:
    """A disk whose speed the appends to all files share."""

    def __init__(self) -> None:
        self._free_at = 0.0
        self._append = FileLogWriter.append

    async def append(self, writer: FileLogWriter, chunks: Sequence[bytes | memoryview], *, sync: bool) -> bool:
        """Replace ``FileLogWriter.append``."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + sum(map(len, chunks)) / DISK_BYTES_PER_S
        await asyncio.sleep(self._free_at - now)
        return await self._append(writer, chunks, sync=sync)


if __name__ == "__main__":
    disk = SlowDisk()

    async def append(writer: FileLogWriter, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        return await disk.append(writer, chunks, sync=sync)

    FileLogWriter.append = append  # type: ignore[method-assign, assignment]
    run()
