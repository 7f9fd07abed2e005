"""A subscriber's turn at reading files: a bounded piece of the memory for reading, given up for who waits for it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.codec.frame import split_frames
from seaweedmq.errors import SeaweedMQError
from seaweedmq.storage.logs.chunk import Chunk

PERMIT_BYTES = 16 * 1024 * 1024
"""A turn that others wait for ends after so much; opening a table anew costs up to a row group."""
RUNS_HELD = 8
"""Chunks a reader of files holds at most: a run in use, one read ahead, and what they are made from ..."""
FRAMES_HELD = 4
"""... and copies of a large frame on its way through."""


def turn_bytes(chunk_bytes: int, largest_bytes: int = 0) -> int:
    """Return the memory of one turn, from the size of what is read at once and of the largest frame met so far."""
    return RUNS_HELD * chunk_bytes + FRAMES_HELD * max(chunk_bytes, largest_bytes)


class ReadPermit:
    """From ``begin`` to ``end`` it holds memory and a reader of files. States: begun -> ended | evicted.

    It is evictable while its subscriber has no credit or takes nothing: what was read ahead is read again later.
    """

    def __init__(self, budget: MemoryBudget, chunk_bytes: int, largest_bytes: int) -> None:
        self._budget = budget
        self._size = min(budget.limit, turn_bytes(chunk_bytes, largest_bytes))
        self._covered_bytes = 3 * max(chunk_bytes, largest_bytes)
        self._chunks: AsyncGenerator[Chunk, None] | None = None
        self._rest = Chunk(0, b"")
        self._given_bytes = 0
        self._ending: asyncio.Task[None] | None = None
        self.largest_bytes = largest_bytes
        """Of the chunks that were read, and those that turns before had."""
        self.evicted = False

    async def begin(self, chunks: AsyncGenerator[Chunk, None]) -> None:
        """Wait for the memory. Nothing is read before it is there."""
        try:
            await self._budget.take(self._size)
        except BaseException:
            await chunks.aclose()
            raise
        self._chunks = chunks

    async def more(self) -> bool:
        """Whether there is something to send; False at the end of the turn, or of what was to be read."""
        while not self.evicted:  # then what is left of it may be forgotten at any moment
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
        """The next frames that fit, the first one at least. Requires ``more``."""
        fitting = _fitting(self._rest, size_bytes)
        self._rest = Chunk(self._rest.end_offset, memoryview(self._rest.data)[len(fitting.data) :])
        self._given_bytes += len(fitting.data)
        return fitting

    @property
    def ahead_bytes(self) -> int:
        """Read, and not sent yet."""
        return len(self._rest.data)

    def next_bytes(self, size_bytes: int) -> int:
        """What ``take`` would give."""
        return len(_fitting(self._rest, size_bytes).data)

    def offer(self) -> None:
        """The memory may be taken away from here on."""
        if self._chunks is not None:
            self._budget.touch(self)

    def keep(self) -> None:
        """It may not any more."""
        self._budget.forget(self)

    def evict(self, bytes_wanted: int) -> int:
        """See ``budget.Evictable``. The reader of files is closed first, so what it frees is given back later."""
        if not self.evicted and self._chunks is not None:
            self.evicted = True
            self._ending = asyncio.create_task(self._end(), name="end of a turn")
        return 0

    async def end(self) -> None:
        """Give everything back. May be called again."""
        self.keep()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="end of a turn")
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        chunks, self._chunks = self._chunks, None
        self._rest = Chunk(0, b"")
        if chunks is not None:
            try:
                with suppress(SeaweedMQError):  # nobody reads on: a close that fails costs no record
                    await chunks.aclose()
            finally:
                self._budget.give(self._size)


def _fitting(chunk: Chunk, size_bytes: int) -> Chunk:
    """The frames at the beginning that fit, the first one at least."""
    if len(chunk.data) <= size_bytes:
        return chunk
    fitting, end_offset = 0, 0
    for frame in split_frames(chunk.data, verify=False):
        if fitting and fitting + frame.header.frame_bytes > size_bytes:
            break
        fitting += frame.header.frame_bytes
        end_offset = frame.header.end_offset
    return Chunk(end_offset, memoryview(chunk.data)[:fitting])
