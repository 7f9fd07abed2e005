"""Acknowledgement states of the records that a member has of a segment, and the resulting position.

The books are kept per frame, not per record: a span holds one byte for each of its rows. So any thread acknowledges a
record by the assignment of one byte. The consequences are computed on request.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

IN_FLIGHT, ACKED, NEW, WAITING, DEAD_LETTER = range(5)
"""States of a row.

- IN_FLIGHT: delivered to the user, or about to be.
- ACKED: acknowledged.
- NEW: never delivered.
- WAITING: to be redelivered here or by the segment's next owner.
- DEAD_LETTER: a dead letter, on its way to the dead-letter topic.

See ``core.member.record_dispatch`` for the transitions.
"""

R = TypeVar("R")
Offsets: TypeAlias = range | npt.NDArray[np.int64]
"""A set of offsets; a range has no steps."""


def offsets_of(offsets: npt.NDArray[np.int64]) -> Offsets:
    """Return the offsets as a range if they form one, which is usual and cheaper."""
    if len(offsets) and offsets[-1] - offsets[0] == len(offsets) - 1 and (offsets[1:] > offsets[:-1]).all():
        return range(int(offsets[0]), int(offsets[-1]) + 1)
    return offsets


class RowSpan(Generic[R]):
    """Rows that arrived together. Invariants: ``len(states) == end - first``; exactly those from ``new_at`` are NEW."""

    __slots__ = ("end", "first", "new_at", "rows", "size_bytes", "states")

    def __init__(self, first: int, count: int, size_bytes: int) -> None:
        self.first = first
        self.end = first + count
        self.states = bytearray((NEW,)) * count
        self.new_at = 0
        self.rows: R | None = None
        """Content of the rows; None once all are acknowledged."""
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return len(self.states)

    def deliver(self, count: int) -> None:
        """Mark the next ``count`` new rows as delivered to the user."""
        self.states[self.new_at : self.new_at + count] = bytes(count)
        self.new_at += count

    def state(self, offset: int) -> int:
        """Return the state of the row at an offset."""
        return self.states[offset - self.first]

    def put(self, offset: int, state: int) -> None:
        """Set the state of a row that was delivered before."""
        self.states[offset - self.first] = state

    def ack_in_flight(self, first: int, count: int) -> None:
        """Acknowledge those of ``[first, first + count)`` that are in flight."""
        at = first - self.first
        states = np.frombuffer(self.states, dtype=np.uint8)[at : at + count]
        states[states == IN_FLIGHT] = ACKED

    def position(self) -> int:
        """Return the lowest unacknowledged offset; ``end`` if all are acknowledged."""
        found = [at for state in (IN_FLIGHT, NEW, WAITING, DEAD_LETTER) if (at := self.states.find(state)) >= 0]
        return self.first + min(found) if found else self.end

    def unacked(self) -> int:
        """Return the number of delivered rows that are not acknowledged."""
        return self.new_at - self.states.count(ACKED, 0, self.new_at)

    def is_acked(self) -> bool:
        """Whether every row is acknowledged."""
        states = self.states
        return not (IN_FLIGHT in states or NEW in states or WAITING in states or DEAD_LETTER in states)

    def has_in_flight(self) -> bool:
        """Whether a row is in flight or a dead letter, so that the segment cannot be released yet."""
        return IN_FLIGHT in self.states or DEAD_LETTER in self.states


class Ledger(Generic[R]):
    """The unfinished spans of a segment, and the failed deliveries of single records."""

    def __init__(self, deliveries: Mapping[int, int]) -> None:
        self._spans: deque[RowSpan[R]] = deque()
        self.fetched_to: int | None = None
        """Offset of the first row that has not arrived; None while it is unknown."""
        self.rejected: dict[int, int] = dict(deliveries)
        """Number of deliveries without an acknowledgement, by offset."""

    @property
    def spans(self) -> Iterable[RowSpan[R]]:
        """Spans that were not seen to be acknowledged, in order."""
        return self._spans

    @property
    def has_spans(self) -> bool:
        """Whether there are rows that were not seen to be acknowledged."""
        return bool(self._spans)

    def arrive(self, first: int, count: int, size_bytes: int) -> RowSpan[R]:
        """Add rows that arrived, after all others."""
        while self._spans and self._spans[0].is_acked():  # free fast readers' memory without waiting for a commit
            self._spans.popleft().rows = None
        span = RowSpan[R](first, count, size_bytes)
        self._spans.append(span)
        self.fetched_to = span.end
        return span

    def position(self) -> int | None:
        """Return the position to commit, which never falls; None while the first offset is unknown."""
        self._retire()
        return self._spans[0].position() if self._spans else self.fetched_to

    def _retire(self) -> None:
        """Free acknowledged spans: a slow record holds back the position, not the memory of others."""
        left: deque[RowSpan[R]] = deque()
        for span in self._spans:
            if span.is_acked():
                span.rows = None
            else:
                left.append(span)
        self._spans = left

    def ack(self, offsets: Offsets) -> None:
        """Acknowledge rows by offset. Rows that were never delivered are left alone."""
        for span, chosen in self._chosen(offsets):
            if isinstance(chosen, range):
                span.states[chosen.start : chosen.stop] = bytes((ACKED,)) * len(chosen)
            else:
                np.frombuffer(span.states, dtype=np.uint8)[chosen] = ACKED

    def in_flight_among(self, offsets: Offsets) -> Iterator[tuple[RowSpan[R], list[int]]]:
        """Yield the spans, in order, with those of ``offsets`` that are in flight, ascending."""
        for span, chosen in self._chosen(offsets):
            at = np.asarray(chosen)
            out = at[np.frombuffer(span.states, dtype=np.uint8)[at] == IN_FLIGHT]
            if len(out):
                yield span, (np.unique(out) + span.first).tolist()

    def _chosen(self, offsets: Offsets) -> Iterator[tuple[RowSpan[R], Offsets]]:
        """Yield the spans with the indices of their delivered rows among ``offsets``."""
        for span in self._spans:
            end = span.first + span.new_at
            if isinstance(offsets, range):
                at: Offsets = range(max(offsets.start, span.first) - span.first, min(offsets.stop, end) - span.first)
            else:
                at = offsets[(offsets >= span.first) & (offsets < end)] - span.first
            if len(at):
                yield span, at

    def reject(self, offset: int) -> int:
        """Count a delivery without an acknowledgement; return the number so far."""
        self.rejected[offset] = self.rejected.get(offset, 0) + 1
        return self.rejected[offset]

    def deliveries(self, count_max: int) -> dict[int, int]:
        """Return the failed deliveries to commit with the position, at most ``count_max`` with the lowest offsets."""
        position = self.position()
        if position is not None:
            self.rejected = {offset: n for offset, n in self.rejected.items() if offset >= position}
        return {offset: self.rejected[offset] for offset in sorted(self.rejected)[:count_max]}

    def unacked(self) -> int:
        """Return the number of delivered records that are not acknowledged."""
        return sum(span.unacked() for span in self._spans)

    def size_bytes(self) -> int:
        """Return the bytes of the rows that are held until they are acknowledged."""
        return sum(span.size_bytes for span in self._spans)

    def has_in_flight(self) -> bool:
        """Whether a record of this segment is in flight or a dead letter."""
        return any(span.has_in_flight() for span in self._spans)
