"""One bound on the log buffers and caches of a broker, shared by all its segments."""

from collections import OrderedDict
from typing import Protocol

from seaweedmq.broker.signal import Signal
from seaweedmq.errors import ResourceExhausted


class Evictable(Protocol):
    """Something that holds committed frames in memory and can forget them."""

    def evict(self, bytes_wanted: int) -> int:
        """Free up to about ``bytes_wanted`` bytes and return how many were freed."""


class MemoryBudget:
    """Bytes of frames in memory. ``take`` waits at the bound; caches give way before anybody waits.

    Invariant: ``used`` <= ``limit``, whatever comes in.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.used = 0
        self._freed = Signal()
        self._caches: OrderedDict[Evictable, None] = OrderedDict()

    async def take(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` fit, and count them as used.

        Raises:
            ResourceExhausted: more than the whole budget.
        """
        if size_bytes > self.limit:
            raise ResourceExhausted(
                f"a frame of {size_bytes} bytes is above this broker's buffer memory of {self.limit} bytes: "
                "raise memory_bytes_max or send smaller batches"
            )
        while not self._make_room(size_bytes):
            await self._freed.wait()
        self.used += size_bytes

    def give(self, size_bytes: int) -> None:
        """Return bytes that were taken."""
        self.used -= size_bytes
        assert self.used >= 0
        self._freed.fire()

    def touch(self, cache: Evictable) -> None:
        """The cache got something that may be evicted later; the longest untouched cache is evicted first."""
        self._caches[cache] = None
        self._caches.move_to_end(cache)
        self._freed.fire()

    def forget(self, cache: Evictable) -> None:
        """The cache is gone; what it used was given back."""
        self._caches.pop(cache, None)

    def _make_room(self, size_bytes: int) -> bool:
        missing = self.used + size_bytes - self.limit
        while missing > 0 and self._caches:
            cache = next(iter(self._caches))
            freed = cache.evict(missing)
            self.used -= freed
            missing -= freed
            if missing > 0:
                del self._caches[cache]
        return missing <= 0
