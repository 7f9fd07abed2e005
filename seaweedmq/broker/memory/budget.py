"""Bounds on what a broker holds in memory: everything of size is taken from a budget before it is held."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Protocol

from seaweedmq.errors import ResourceExhausted


class Evictable(Protocol):
    """Something that holds memory it can do without."""

    def evict(self, bytes_wanted: int) -> int:
        """Free up to about ``bytes_wanted`` bytes and return how many were freed. What is freed later is given back."""


class MemoryBudget:
    """Bytes in memory. ``take`` waits at the bound, in the order of the callers; caches give way before anybody waits.

    Invariant: ``used`` <= ``limit``, whatever comes in.
    """

    def __init__(self, limit_bytes: int, purpose: str = "buffer") -> None:
        self.limit = limit_bytes
        self.purpose = purpose
        self.used = 0
        self.peak = 0
        """The most that was used at one time."""
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._caches: OrderedDict[Evictable, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many wait for memory."""
        return sum(not turn.cancelled() for _, turn in self._queue)

    @property
    def longest_waiting(self) -> object:
        """Who waits for memory the longest, to be told from others only; None if nobody does."""
        return next((turn for _, turn in self._queue if not turn.done()), None)

    @property
    def caches(self) -> Collection[Evictable]:
        """What may be evicted, the longest untouched first."""
        return self._caches.keys()

    async def take(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` fit, and count them as used.

        Raises:
            ResourceExhausted: more than the whole budget.
        """
        if size_bytes > self.limit:
            raise ResourceExhausted(
                f"a frame of {size_bytes} bytes is above this broker's {self.purpose} memory of {self.limit} bytes: "
                "raise memory_bytes_max or send smaller batches"
            )
        if self.take_now(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._serve()  # those behind need wait no longer for this one
            else:
                self.give(size_bytes)
            raise

    def take_now(self, size_bytes: int) -> bool:
        """Count ``size_bytes`` as used if they fit and nobody waits; return whether they were."""
        if self._queue or not self._make_room(size_bytes):
            return False
        self._count(size_bytes)
        return True

    @asynccontextmanager
    async def holding(self, size_bytes: int) -> AsyncIterator[None]:
        """Take, and give back at the end of the block."""
        await self.take(size_bytes)
        try:
            yield
        finally:
            self.give(size_bytes)

    def give(self, size_bytes: int) -> None:
        """Return bytes that were taken."""
        self.used -= size_bytes
        assert self.used >= 0
        self._serve()

    async def lend(self, size_bytes: int) -> None:
        """Wait until so much is free, and do without it until ``restore``."""
        await self.take(size_bytes)
        self.limit -= size_bytes
        self.give(size_bytes)

    def restore(self, size_bytes: int) -> None:
        """What was lent is back."""
        self.limit += size_bytes
        self._serve()

    def touch(self, cache: Evictable) -> None:
        """The cache got something that may be evicted later; the longest untouched cache is evicted first."""
        self._caches[cache] = None
        self._caches.move_to_end(cache)
        self._serve()

    def forget(self, cache: Evictable) -> None:
        """The cache is gone; what it used was given back."""
        self._caches.pop(cache, None)

    def _serve(self) -> None:
        """Give those that wait longest what they wait for."""
        while self._queue:
            size_bytes, turn = self._queue[0]
            if not turn.cancelled():
                if not self._make_room(size_bytes):
                    return
                self._count(size_bytes)
                turn.set_result(None)
            self._queue.popleft()

    def _count(self, size_bytes: int) -> None:
        self.used += size_bytes
        self.peak = max(self.peak, self.used)

    def _make_room(self, size_bytes: int) -> bool:
        missing = self.used + size_bytes - self.limit
        while missing > 0 and self._caches:
            cache = next(iter(self._caches))
            freed = cache.evict(missing)
            self.used -= freed
            missing -= freed
            if missing > 0:
                self._caches.pop(cache, None)
        return missing <= 0
