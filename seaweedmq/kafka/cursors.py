"""Readers of files between two fetches: whoever asks for the offset at which one stands goes on with it.

A cursor belongs to nobody: it is found by the offset that comes next, so nothing in it can be stale, groups that read
the same share what was read ahead, and a repeated request opens a fresh one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from seaweedmq.broker.local import Tail

IDLE_S = 30.0


class CursorKey(NamedTuple):
    """Where a cursor stands."""

    topic_uid: int
    segment: int
    next_offset: int


class Cursors:
    """Those that nobody uses at the moment. Their memory may be taken away while they are here."""

    def __init__(
        self, spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]], *, cursors_max: int
    ) -> None:
        self._spawn = spawn
        self._cursors_max = cursors_max
        self._idle: OrderedDict[CursorKey, tuple[Tail, float]] = OrderedDict()
        """The longest idle first."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, key: CursorKey) -> Tail | None:
        """The cursor that stands there, to be put back or closed by who took it."""
        found = self._idle.pop(key, None)
        if found is None:
            return None
        found[0].keep()
        return found[0]

    def put(self, tail: Tail) -> None:
        """Keep a tail for whoever reads on from where it stands."""
        if not tail.reads_files or self._is_closed:
            self._close(tail)
            return
        found = tail.found
        key = CursorKey(found.topic.uid, found.segment.id, tail.position)
        replaced = self._idle.pop(key, None)
        if replaced is not None:
            self._close(replaced[0])
        tail.offer()
        self._idle[key] = tail, asyncio.get_running_loop().time()
        while len(self._idle) > self._cursors_max:
            self._close(self._idle.popitem(last=False)[1][0])
        self._watch()

    async def close(self) -> None:
        """Close all, now and later."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tails = [tail for tail, _ in self._idle.values()]
        self._idle.clear()
        for tail in tails:
            await tail.close()

    def _watch(self) -> None:
        if self._timer is None and self._idle:
            _, since = next(iter(self._idle.values()))
            self._timer = asyncio.get_running_loop().call_at(since + IDLE_S, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._idle:
            key, (tail, since) = next(iter(self._idle.items()))
            if now - since < IDLE_S:
                break
            del self._idle[key]
            self._close(tail)
        self._watch()

    def _close(self, tail: Tail) -> None:
        if tail.reads_files:
            self._spawn(tail.close(), "end of a cursor")
