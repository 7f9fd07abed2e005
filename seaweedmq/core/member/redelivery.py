"""The order of waiting records of a segment: for redelivery, or after another record of their key.

A key with a waiting record is *held*: only later records of that key wait for it, so that a key's records are delivered
in order. Records without a key have no order and delay no others.
"""

from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

NEVER = float("inf")


@dataclass(slots=True)
class _Line:
    """The waiting records of one key. Invariant: ascending; ``due`` names only offsets in it."""

    offsets: list[int] = field(default_factory=list)
    due: dict[int, float] = field(default_factory=dict)
    """Time at which each rejected record may be delivered again. Records that only wait for another are due at once."""
    has_in_flight: bool = False
    """Whether a record of the key is with a handler. Only if keys go one at a time."""

    def head_due(self) -> float:
        return self.due.get(self.offsets[0], 0.0)


class KeyOrder:
    """The waiting records of one segment, by key.

    With ``one_at_a_time``, a key's next record waits until the last one is settled, else only for rejected ones.
    """

    def __init__(self, one_at_a_time: bool) -> None:
        self.one_at_a_time = one_at_a_time
        self._lines: dict[bytes, _Line] = {}
        self._heads: list[tuple[float, int, bytes | None]] = []
        """Heap of (due, offset, key): the head of every line without a record in flight, and rejected records without a
        key. It may have stale entries, whose record no longer heads its line."""
        self._keyless: dict[int, float] = {}
        """Due time of rejected records without a key, by offset."""

    @property
    def is_idle(self) -> bool:
        """Whether no record waits and no key is held."""
        return not self._lines and not self._keyless

    def offer(self, key: bytes | None, offset: int) -> bool:
        """Whether a record may be delivered now. If not, it waits from now on."""
        if key is None:
            return True
        line = self._lines.get(key)
        if line is None:
            if self.one_at_a_time:
                self._lines[key] = _Line(has_in_flight=True)
            return True
        if not line.has_in_flight and offset < line.offsets[0]:  # the waiting ones follow it
            line.has_in_flight = self.one_at_a_time
            return True
        insort(line.offsets, offset)
        if line.offsets[0] == offset:
            self._push(key, line)
        return False

    def reject(self, key: bytes | None, offset: int, due_s: float) -> None:
        """Queue a delivered record for redelivery at ``due_s``; ``NEVER`` if it waits until dropped."""
        if key is None:
            self._keyless[offset] = due_s
            heappush(self._heads, (due_s, offset, None))
            return
        line = self._lines.setdefault(key, _Line())
        line.has_in_flight = False
        insort(line.offsets, offset)
        line.due[offset] = due_s
        self._push(key, line)

    def settle(self, key: bytes | None) -> None:
        """Record that the key's record in flight is settled. Requires ``one_at_a_time``."""
        line = None if key is None else self._lines.get(key)
        if key is not None and line is not None:
            line.has_in_flight = False
            self._next(key, line)

    def drop(self, key: bytes | None, offset: int) -> None:
        """Remove a waiting record that was settled in another way."""
        if key is None:
            self._keyless.pop(offset, None)
            return
        line = self._lines[key]
        line.offsets.remove(offset)
        line.due.pop(offset, None)
        self._next(key, line)

    def take_due(self, now_s: float) -> list[int]:
        """Remove and return the records that are due, ascending."""
        taken: list[int] = []
        while self._heads and self._heads[0][0] <= now_s:
            due, offset, key = heappop(self._heads)
            if key is None:
                if self._keyless.get(offset) == due:
                    del self._keyless[offset]
                    taken.append(offset)
                continue
            line = self._lines.get(key)
            if (
                line is None
                or line.has_in_flight
                or not line.offsets
                or line.offsets[0] != offset
                or line.head_due() > now_s
            ):
                continue
            self._take(line, now_s, taken)
            self._next(key, line)
        return sorted(taken)

    def _take(self, line: _Line, now_s: float, taken: list[int]) -> None:
        while line.offsets and line.head_due() <= now_s:
            offset = line.offsets.pop(0)
            line.due.pop(offset, None)
            taken.append(offset)
            if self.one_at_a_time:
                line.has_in_flight = True
                return

    def due_s(self) -> float:
        """Return the earliest time at which a record may be due; too early if the entry is stale."""
        return self._heads[0][0] if self._heads else NEVER

    def _next(self, key: bytes, line: _Line) -> None:
        if line.offsets:
            self._push(key, line)
        elif not line.has_in_flight:
            del self._lines[key]

    def _push(self, key: bytes, line: _Line) -> None:
        if not line.has_in_flight and line.head_due() < NEVER:
            heappush(self._heads, (line.head_due(), line.offsets[0], key))
