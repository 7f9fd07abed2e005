"""Group commit: one round of fsyncs at a time serves every frame of every segment that was written before it began."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

SYNCS_AT_ONCE = 16
"""Files fsynced in parallel: the file system's journal merges them."""


class Syncable(Protocol):
    """A segment with written frames that are not fsynced yet."""

    async def sync(self) -> None:
        """Fsync what is written; reports its own failures to those who wait for it."""


class SyncRounds:
    """Collects segments that want an fsync and serves them in rounds.

    While a round runs, requests gather for the next one, so the longer the disk takes the more frames share a round.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._urgent: dict[Syncable, None] = {}
        self._lazy: dict[Syncable, None] = {}
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def request(self, segment: Syncable, *, urgent: bool) -> None:
        """Have the segment fsynced in the next round, or if not urgent within the flush interval."""
        if urgent:
            self._urgent[segment] = None
            self._wake.set()
            return
        self._lazy[segment] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._due)

    async def run(self) -> None:
        """Serve rounds until cancelled."""
        limit = asyncio.Semaphore(SYNCS_AT_ONCE)
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._urgent = self._urgent, {}
            if len(batch) == 1:
                for segment in batch:
                    await segment.sync()
            else:
                await asyncio.gather(*(_bounded(limit, segment.sync) for segment in batch))

    def _due(self) -> None:
        self._timer = None
        self._urgent.update(self._lazy)
        self._lazy.clear()
        self._wake.set()


async def _bounded(limit: asyncio.Semaphore, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with limit:
        await call()
