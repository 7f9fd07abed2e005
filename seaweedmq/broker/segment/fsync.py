"""Group commit: rounds of fsyncs, each of which covers all frames of all segments written before it began."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

SYNCS_AT_ONCE = 16
"""Number of segments fsynced in parallel. The file system's journal merges their fsyncs."""


class Syncable(Protocol):
    """A segment with written frames that are not flushed yet."""

    async def sync(self) -> None:
        """Fsync all written frames. The segment itself reports a failure to its publishers."""


class SyncRequests(Protocol):
    """The receiver of fsync requests."""

    def request(self, segment: Syncable, *, urgent: bool) -> None:
        """Request an fsync of the segment: see ``SyncRounds.request``."""


class NoSyncs:
    """The receiver where bundles are flushed by themselves."""

    def request(self, segment: Syncable, *, urgent: bool) -> None:
        """Do nothing."""


class SyncRounds:
    """A collector of fsync requests, which it serves in rounds.

    Requests that arrive during a round wait for the next one. The slower the disk, the more frames share a round.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._urgent: dict[Syncable, None] = {}
        self._lazy: dict[Syncable, None] = {}
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def request(self, segment: Syncable, *, urgent: bool) -> None:
        """Request an fsync of the segment: in the next round if urgent, else within the flush interval."""
        if urgent:
            self._urgent[segment] = None
            self._wake.set()
            return
        self._lazy[segment] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._due)

    async def run(self) -> None:
        """Serve rounds, one at a time, until cancelled."""
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
