"""Cursors: readers of files that are kept between two fetches and reused at the offset where they stand.

A cursor has no owner: it is found by its next offset. So its contents cannot be stale, groups that read the same
records share what was read ahead, and a repeated request opens a new cursor.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from seaweedmq.broker.local import Tail
from seaweedmq.codec.frame import Frame

IDLE_S = 30.0


class CursorKey(NamedTuple):
    """The position of a cursor."""

    topic_uid: int
    segment: int
    next_offset: int


class Cursor:
    """A tail, and the frames that were taken from it but are not delivered yet."""

    __slots__ = ("next_offset", "rest", "tail")

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.next_offset = tail.position
        """Offset of the next record to deliver, which may lie inside the first frame of ``rest``."""
        self.rest: deque[Frame] = deque()

    @property
    def rest_bytes(self) -> int:
        """The bytes of ``rest``."""
        return sum(frame.header.frame_bytes for frame in self.rest)

    @property
    def is_of_use(self) -> bool:
        """Whether reuse is faster than a new cursor."""
        return bool(self.rest) or self.tail.reads_files


class Cursors:
    """The idle cursors. Other readers may take the memory of their tails."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        *,
        cursors_max: int,
        rest_bytes_max: int,
    ) -> None:
        """Create an empty set that closes the longest idle cursors above its limits, each by a task of ``spawn``.

        ``rest_bytes_max`` limits the ``rest_bytes`` of all idle cursors together.
        """
        self._spawn = spawn
        self._cursors_max = cursors_max
        self._rest_bytes_max = rest_bytes_max
        self._rest_bytes = 0
        self._idle: OrderedDict[CursorKey, tuple[Cursor, float]] = OrderedDict()
        """Idle cursors with the time since when, the longest idle first."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, key: CursorKey) -> Cursor | None:
        """Remove and return the cursor at a position, if any; the caller puts it back or closes it."""
        cursor = self._remove(key)
        if cursor is not None:
            cursor.tail.keep()
        return cursor

    def put(self, cursor: Cursor) -> None:
        """Keep a cursor for the next fetch at its offset; close it if reuse is not faster."""
        if not cursor.is_of_use or self._is_closed:
            self._close(cursor)
            return
        found = cursor.tail.found
        key = CursorKey(found.topic.uid, found.segment.id, cursor.next_offset)
        replaced = self._remove(key)
        if replaced is not None:
            self._close(replaced)
        cursor.tail.offer()
        self._idle[key] = cursor, asyncio.get_running_loop().time()
        self._rest_bytes += cursor.rest_bytes
        while len(self._idle) > self._cursors_max or self._rest_bytes > self._rest_bytes_max:
            self._close_oldest()
        self._watch()

    async def close(self) -> None:
        """Close all cursors, and every one that is put back later."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tails = [cursor.tail for cursor, _ in self._idle.values()]
        self._idle.clear()
        for tail in tails:
            await tail.close()

    def _remove(self, key: CursorKey) -> Cursor | None:
        found = self._idle.pop(key, None)
        if found is None:
            return None
        self._rest_bytes -= found[0].rest_bytes
        return found[0]

    def _watch(self) -> None:
        if self._timer is None and self._idle:
            _, since = next(iter(self._idle.values()))
            self._timer = asyncio.get_running_loop().call_at(since + IDLE_S, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        # The same sum as the timer's deadline: a difference may be rounded differently.
        while self._idle and now >= next(iter(self._idle.values()))[1] + IDLE_S:
            self._close_oldest()
        self._watch()

    def _close_oldest(self) -> None:
        cursor = self._remove(next(iter(self._idle)))
        assert cursor is not None
        self._close(cursor)

    def _close(self, cursor: Cursor) -> None:
        if cursor.tail.reads_files:
            self._spawn(cursor.tail.close(), "end of a cursor")
