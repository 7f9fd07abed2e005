"""Memory budgets, which bound what a broker holds: large objects take memory from a budget first."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Protocol

from seaweedmq.errors import ResourceExhausted


class Evictable(Protocol):
    """A cache that can free its memory on request."""

    def evict(self, bytes_wanted: int) -> int:
        """Free about ``bytes_wanted`` bytes and return how many were freed. Bytes freed later go through ``give``."""


class MemoryBudget:
    """A budget of bytes. At the limit caches are evicted first, then ``take`` waits, in the order of the callers.

    Invariant: ``used`` <= ``limit``.
    """

    def __init__(self, limit_bytes: int, purpose: str = "buffer") -> None:
        self.limit = limit_bytes
        self.purpose = purpose
        self.used = 0
        self.peak = 0
        """The highest value of ``used``."""
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._caches: OrderedDict[Evictable, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """The number of callers that wait for memory."""
        return sum(not turn.cancelled() for _, turn in self._queue)

    @property
    def longest_waiting(self) -> object:
        """An identity of the caller that has waited longest, only to be compared; None if there is none."""
        return next((turn for _, turn in self._queue if not turn.done()), None)

    @property
    def caches(self) -> Collection[Evictable]:
        """The caches that may be evicted, the longest untouched first."""
        return self._caches.keys()

    async def take(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` fit, and count them; raise ResourceExhausted if they exceed the whole budget."""
        if size_bytes > self.limit:
            raise ResourceExhausted(
                f"frame of {size_bytes} bytes is above this broker's {self.purpose} memory of {self.limit} bytes: "
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
                self._serve()  # the next callers no longer wait for this one
            else:
                self.give(size_bytes)
            raise

    def take_now(self, size_bytes: int) -> bool:
        """Count ``size_bytes`` as used if they fit and no caller waits; return whether they were counted."""
        if self._queue or not self._make_room(size_bytes):
            return False
        self._count(size_bytes)
        return True

    @asynccontextmanager
    async def holding(self, size_bytes: int) -> AsyncIterator[None]:
        """Take ``size_bytes`` for the duration of the block. Raises as ``take``."""
        await self.take(size_bytes)
        try:
            yield
        finally:
            self.give(size_bytes)

    def give(self, size_bytes: int) -> None:
        """Return bytes that were taken to the budget."""
        self.used -= size_bytes
        assert self.used >= 0
        self._serve()

    async def lend(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` are free, and lower the limit by them until ``restore``."""
        await self.take(size_bytes)
        self.limit -= size_bytes
        self.give(size_bytes)

    def restore(self, size_bytes: int) -> None:
        """Raise the limit again by lent bytes."""
        self.limit += size_bytes
        self._serve()

    def touch(self, cache: Evictable) -> None:
        """Register a cache that has bytes to evict. The longest untouched cache is evicted first."""
        self._caches[cache] = None
        self._caches.move_to_end(cache)
        self._serve()

    def forget(self, cache: Evictable) -> None:
        """Unregister a cache. The caller returns its bytes with ``give``."""
        self._caches.pop(cache, None)

    def _serve(self) -> None:
        """Grant memory to waiting callers, in order."""
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
