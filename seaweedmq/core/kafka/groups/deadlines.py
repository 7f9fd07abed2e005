"""Deadlines of many timers, most of which are postponed repeatedly before they expire."""

from heapq import heapify, heappop, heappush

from seaweedmq.core.kafka.groups.classic_events import Timer

Key = tuple[str, Timer, str]
"""Group, timer, and member of the timer."""

VOID_MAX = 1_000
"""Void entries of the heap, besides one for each valid entry."""


class Deadlines:
    """A set of deadlines, one per key.

    A heartbeat postpones a session, which costs one lookup. The heap is updated when the earlier time arrives. It thus
    holds at most one entry for each time that a deadline was set again or brought forward. It is swept when most
    entries are void.
    """

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._queued: dict[Key, float] = {}
        """Earliest heap entry of each key; entries of another time are void."""
        self._heap: list[tuple[float, int, Key]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, at: float | None) -> None:
        """Set, move or (None) cancel a deadline."""
        if at is None:
            self._due.pop(key, None)
            return
        self._due[key] = at
        if at < self._queued.get(key, float("inf")):
            self._queue(key, at)

    @property
    def first_at(self) -> float | None:
        """The earliest deadline; None: there is none."""
        while self._heap:
            at, _, key = self._heap[0]
            due = self._due.get(key)
            if due == at:
                return at
            heappop(self._heap)
            if self._queued.get(key) == at:
                del self._queued[key]
                if due is not None:
                    self._queue(key, due)
        return None

    def pop_due(self, now: float) -> list[Key]:
        """Remove the expired deadlines and return their keys in order."""
        keys = []
        while (at := self.first_at) is not None and at <= now:
            _, _, key = heappop(self._heap)
            del self._due[key]
            self._queued.pop(key, None)
            keys.append(key)
        return keys

    def _queue(self, key: Key, at: float) -> None:
        self._queued[key] = at
        self._number += 1
        heappush(self._heap, (at, self._number, key))
        if len(self._heap) > 2 * len(self._due) + VOID_MAX:
            self._heap = [(due, number, key) for number, (key, due) in enumerate(self._due.items())]
            heapify(self._heap)
            self._queued, self._number = dict(self._due), len(self._due)
