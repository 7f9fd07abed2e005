"""Which records of a segment wait: to be delivered again, or behind another record of their key.

A key with a record that waits is *held*: what comes later in the segment waits behind it, and only that, so that a
key's records are delivered in order. Records without a key have no order and hold nobody up.
"""

from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

NEVER = float("inf")


@dataclass(slots=True)
class _Line:
    """The records of one key that wait. Invariant: ascending; ``due`` names only offsets in it."""

    offsets: list[int] = field(default_factory=list)
    due: dict[int, float] = field(default_factory=dict)
    """When a refused record may go out again. What merely waits behind another may go at once."""
    is_out: bool = False
    """A record of the key is with a handler. Only if keys go one at a time."""

    def head_due(self) -> float:
        return self.due.get(self.offsets[0], 0.0)


class KeyOrder:
    """The records of one segment that wait, by key.

    Args:
        one_at_a_time: a key's next record waits until the last one is settled. Else it only waits while one is refused.
    """

    def __init__(self, one_at_a_time: bool) -> None:
        self.one_at_a_time = one_at_a_time
        self._lines: dict[bytes, _Line] = {}
        self._heads: list[tuple[float, int, bytes | None]] = []
        """Heap of (due, offset, key) of every line's head that is not held back by a record that is out, and of refused
        records without a key. May have stale entries: those whose record is not its line's head any more."""
        self._keyless: dict[int, float] = {}
        """Offset -> due of refused records without a key."""

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is held back."""
        return not self._lines and not self._keyless

    def offer(self, key: bytes | None, offset: int) -> bool:
        """Whether a record may be handed out now. If not, it waits from here on."""
        if key is None:
            return True
        line = self._lines.get(key)
        if line is None:
            if self.one_at_a_time:
                self._lines[key] = _Line(is_out=True)
            return True
        if not line.is_out and offset < line.offsets[0]:  # what waits comes behind it
            line.is_out = self.one_at_a_time
            return True
        insort(line.offsets, offset)
        if line.offsets[0] == offset:
            self._push(key, line)
        return False

    def refuse(self, key: bytes | None, offset: int, due_s: float) -> None:
        """A record that was handed out comes back, to be delivered again at ``due_s``; ``NEVER``: until dropped."""
        if key is None:
            self._keyless[offset] = due_s
            heappush(self._heads, (due_s, offset, None))
            return
        line = self._lines.setdefault(key, _Line())
        line.is_out = False
        insort(line.offsets, offset)
        line.due[offset] = due_s
        self._push(key, line)

    def settle(self, key: bytes | None) -> None:
        """The key's record that was out is dealt with. Requires ``one_at_a_time``."""
        line = None if key is None else self._lines.get(key)
        if key is not None and line is not None:
            line.is_out = False
            self._next(key, line)

    def drop(self, key: bytes | None, offset: int) -> None:
        """A record that waits is dealt with in another way."""
        if key is None:
            self._keyless.pop(offset, None)
            return
        line = self._lines[key]
        line.offsets.remove(offset)
        line.due.pop(offset, None)
        self._next(key, line)

    def take_due(self, now_s: float) -> list[int]:
        """Records that may go out now, ascending; they wait no more."""
        taken: list[int] = []
        while self._heads and self._heads[0][0] <= now_s:
            due, offset, key = heappop(self._heads)
            if key is None:
                if self._keyless.get(offset) == due:
                    del self._keyless[offset]
                    taken.append(offset)
                continue
            line = self._lines.get(key)
            if line is None or line.is_out or not line.offsets or line.offsets[0] != offset or line.head_due() > now_s:
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
                line.is_out = True
                return

    def due_s(self) -> float:
        """When something may go out at the earliest; too early if the entry is stale."""
        return self._heads[0][0] if self._heads else NEVER

    def _next(self, key: bytes, line: _Line) -> None:
        if line.offsets:
            self._push(key, line)
        elif not line.is_out:
            del self._lines[key]

    def _push(self, key: bytes, line: _Line) -> None:
        if not line.is_out and line.head_due() < NEVER:
            heappush(self._heads, (line.head_due(), line.offsets[0], key))
