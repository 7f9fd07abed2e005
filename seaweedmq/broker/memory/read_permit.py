"""Permit of a subscriber to read files: bounded memory of the reading budget, returned when others wait for it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.codec.frame import split_frames
from seaweedmq.errors import SeaweedMQError
from seaweedmq.storage.logs.log_scan import Chunk

PERMIT_BYTES = 16 * 1024 * 1024
"""Bytes after which a permit ends if others wait for its memory. Opening a table again costs up to a row group."""
RUNS_HELD = 8
"""Most chunks that a reader of files holds: the current one, one read ahead, and the data they are made from."""
FRAMES_HELD = 4
"""Most copies of a large frame that a reader of files holds in addition."""


def permit_bytes(chunk_bytes: int, largest_bytes: int = 0) -> int:
    """Return the memory of one permit in bytes, from the chunk size and the largest frame found so far."""
    return RUNS_HELD * chunk_bytes + FRAMES_HELD * max(chunk_bytes, largest_bytes)


class ReadPermit:
    """A holder of memory and a reader of files, from ``begin`` to ``end``. States: begun -> ended | evicted.

    It is evictable while its subscriber has no credit or reads nothing. Chunks read ahead are then read again later.
    """

    def __init__(self, budget: MemoryBudget, chunk_bytes: int, largest_bytes: int) -> None:
        self._budget = budget
        self._size = min(budget.limit, permit_bytes(chunk_bytes, largest_bytes))
        self._covered_bytes = 3 * max(chunk_bytes, largest_bytes)
        self._chunks: AsyncGenerator[Chunk, None] | None = None
        self._rest = Chunk(0, b"")
        self._given_bytes = 0
        self._ending: asyncio.Task[None] | None = None
        self.largest_bytes = largest_bytes
        """The size of the largest chunk read, also by earlier permits of the subscriber, in bytes."""
        self.evicted = False

    async def begin(self, chunks: AsyncGenerator[Chunk, None]) -> None:
        """Wait for the memory. ``chunks`` is not read before, and is closed if the wait fails."""
        try:
            await self._budget.take(self._size)
        except BaseException:
            await chunks.aclose()
            raise
        self._chunks = chunks

    async def more(self) -> bool:
        """Read ahead if needed; return whether there are frames to send. False if the permit or its chunks end."""
        while not self.evicted:  # an evicted permit may drop its frames at any moment
            if self._rest.data:
                return True
            if self._chunks is None:
                return False
            is_long = self._given_bytes >= PERMIT_BYTES or self.largest_bytes > self._covered_bytes
            if self._given_bytes and is_long and (self._budget.waiting or self.largest_bytes > self._covered_bytes):
                return False
            chunk = await anext(self._chunks, None)
            if chunk is None:
                return False
            self.largest_bytes = max(self.largest_bytes, len(chunk.data))
            self._rest = chunk
        return False

    def take(self, size_bytes: int) -> Chunk:
        """Return the next frames that fit, at least one. Requires ``more``."""
        fitting = _fitting(self._rest, size_bytes)
        self._rest = Chunk(self._rest.end_offset, memoryview(self._rest.data)[len(fitting.data) :])
        self._given_bytes += len(fitting.data)
        return fitting

    @property
    def ahead_bytes(self) -> int:
        """The bytes read and not sent yet."""
        return len(self._rest.data)

    def next_bytes(self, size_bytes: int) -> int:
        """Return the size in bytes of what ``take`` would return."""
        return len(_fitting(self._rest, size_bytes).data)

    def offer(self) -> None:
        """Let others take the memory from now on."""
        if self._chunks is not None:
            self._budget.touch(self)

    def keep(self) -> None:
        """Withdraw the offer of the memory."""
        self._budget.forget(self)

    def evict(self, bytes_wanted: int) -> int:
        """End the permit: see ``budget.Evictable``. The memory returns later, once the reader of files is closed."""
        if not self.evicted and self._chunks is not None:
            self.evicted = True
            self._ending = asyncio.create_task(self._end(), name="end of a read permit")
        return 0

    async def end(self) -> None:
        """Close the reader of files and return the memory. Further calls have no effect."""
        self.keep()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="end of a read permit")
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        chunks, self._chunks = self._chunks, None
        self._rest = Chunk(0, b"")
        if chunks is not None:
            try:
                with suppress(SeaweedMQError):  # reading has ended: a failed close loses no record
                    await chunks.aclose()
            finally:
                self._budget.give(self._size)


def _fitting(chunk: Chunk, size_bytes: int) -> Chunk:
    """Return the first frames that fit, at least one."""
    if len(chunk.data) <= size_bytes:
        return chunk
    fitting, end_offset = 0, 0
    for frame in split_frames(chunk.data, verify=False):
        if fitting and fitting + frame.header.frame_bytes > size_bytes:
            break
        fitting += frame.header.frame_bytes
        end_offset = frame.header.end_offset
    return Chunk(end_offset, memoryview(chunk.data)[:fitting])
