"""What became of each record that a member has of a segment, and how far the segment may therefore be committed.

Books are kept by frame, not by record: a span holds one byte for each of its rows, and acknowledging a record is the
assignment of one byte, from any thread. What follows from the bytes is looked up when somebody asks.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

OUT, ACKED, NEW, WAITING, GIVEN_UP = range(5)
"""A row is out: with the user, or about to be; acknowledged; new: never handed out; waiting: it came back, to go out
again here or at the segment's next owner; given up: on its way to the dead-letter topic. See ``core.member.dispatch``
for what leads from one to another."""

R = TypeVar("R")
Offsets: TypeAlias = range | npt.NDArray[np.int64]
"""Some offsets; a range has no steps."""


def offsets_of(offsets: npt.NDArray[np.int64]) -> Offsets:
    """As a range if they are one, which is most of the time, and cheaper."""
    if len(offsets) and offsets[-1] - offsets[0] == len(offsets) - 1 and (offsets[1:] > offsets[:-1]).all():
        return range(int(offsets[0]), int(offsets[-1]) + 1)
    return offsets


class RowSpan(Generic[R]):
    """Neighbouring rows that arrived together.

    Invariants: ``len(states) == end - first``; exactly the rows from ``new_at`` on are NEW.
    """

    __slots__ = ("end", "first", "new_at", "rows", "size_bytes", "states")

    def __init__(self, first: int, count: int, size_bytes: int) -> None:
        self.first = first
        self.end = first + count
        self.states = bytearray((NEW,)) * count
        self.new_at = 0
        self.rows: R | None = None
        """What they hold; None once all are acknowledged."""
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return len(self.states)

    def hand_out(self, count: int) -> None:
        """The next so many new rows go to the user."""
        self.states[self.new_at : self.new_at + count] = bytes(count)
        self.new_at += count

    def state(self, offset: int) -> int:
        return self.states[offset - self.first]

    def put(self, offset: int, state: int) -> None:
        """A row that was handed out before gets another state."""
        self.states[offset - self.first] = state

    def ack_out(self, first: int, count: int) -> None:
        """Acknowledge those of ``[first, first + count)`` that are out."""
        at = first - self.first
        states = np.frombuffer(self.states, dtype=np.uint8)[at : at + count]
        states[states == OUT] = ACKED

    def position(self) -> int:
        """The lowest offset that is not acknowledged; ``end`` if all are."""
        found = [at for state in (OUT, NEW, WAITING, GIVEN_UP) if (at := self.states.find(state)) >= 0]
        return self.first + min(found) if found else self.end

    def unacked(self) -> int:
        """Rows that were handed out and are not acknowledged."""
        return self.new_at - self.states.count(ACKED, 0, self.new_at)

    def is_acked(self) -> bool:
        states = self.states
        return not (OUT in states or NEW in states or WAITING in states or GIVEN_UP in states)

    def is_out(self) -> bool:
        """Whether somebody has to be waited for before the segment can be let go of."""
        return OUT in self.states or GIVEN_UP in self.states


class Ledger(Generic[R]):
    """All spans of a segment that are not dealt with, and how often single records were refused."""

    def __init__(self, deliveries: Mapping[int, int]) -> None:
        self._spans: deque[RowSpan[R]] = deque()
        self.fetched_to: int | None = None
        """Where the rows begin that have not arrived; None while nobody knows."""
        self.refused: dict[int, int] = dict(deliveries)
        """Offset -> how often it was delivered and not acknowledged."""

    @property
    def spans(self) -> Iterable[RowSpan[R]]:
        """Those that are not dealt with, as far as was looked, in order."""
        return self._spans

    @property
    def has_spans(self) -> bool:
        """Whether anything that arrived was not seen to be acknowledged."""
        return bool(self._spans)

    def arrive(self, first: int, count: int, size_bytes: int) -> RowSpan[R]:
        """Rows arrived; they lie behind all others."""
        while self._spans and self._spans[0].is_acked():  # what is read fast must not wait for a commit to be freed
            self._spans.popleft().rows = None
        span = RowSpan[R](first, count, size_bytes)
        self._spans.append(span)
        self.fetched_to = span.end
        return span

    def position(self) -> int | None:
        """What to commit: everything below is dealt with. Never falls. None: nobody knows where reading begins."""
        self._retire()
        return self._spans[0].position() if self._spans else self.fetched_to

    def _retire(self) -> None:
        """Forget what is acknowledged: a record that takes long holds back the position, not the memory of others."""
        left: deque[RowSpan[R]] = deque()
        for span in self._spans:
            if span.is_acked():
                span.rows = None
            else:
                left.append(span)
        self._spans = left

    def ack(self, offsets: Offsets) -> None:
        """Acknowledge rows by offset. What was never handed out is left alone."""
        for span, chosen in self._chosen(offsets):
            if isinstance(chosen, range):
                span.states[chosen.start : chosen.stop] = bytes((ACKED,)) * len(chosen)
            else:
                np.frombuffer(span.states, dtype=np.uint8)[chosen] = ACKED

    def out_among(self, offsets: Offsets) -> Iterator[tuple[RowSpan[R], list[int]]]:
        """Which of these are out: spans in order, each with offsets, ascending."""
        for span, chosen in self._chosen(offsets):
            at = np.asarray(chosen)
            out = at[np.frombuffer(span.states, dtype=np.uint8)[at] == OUT]
            if len(out):
                yield span, (np.unique(out) + span.first).tolist()

    def _chosen(self, offsets: Offsets) -> Iterator[tuple[RowSpan[R], Offsets]]:
        """Spans with the positions in them that were handed out and are among these."""
        for span in self._spans:
            end = span.first + span.new_at
            if isinstance(offsets, range):
                at: Offsets = range(max(offsets.start, span.first) - span.first, min(offsets.stop, end) - span.first)
            else:
                at = offsets[(offsets >= span.first) & (offsets < end)] - span.first
            if len(at):
                yield span, at

    def refuse(self, offset: int) -> int:
        """A record was delivered and not acknowledged; returns how often so far."""
        self.refused[offset] = self.refused.get(offset, 0) + 1
        return self.refused[offset]

    def deliveries(self, count_max: int) -> dict[int, int]:
        """What to commit beside the position: the refusals at or above it, the lowest offsets if there are too many."""
        position = self.position()
        if position is not None:
            self.refused = {offset: n for offset, n in self.refused.items() if offset >= position}
        return {offset: self.refused[offset] for offset in sorted(self.refused)[:count_max]}

    def unacked(self) -> int:
        """Records that were handed out and are not acknowledged."""
        return sum(span.unacked() for span in self._spans)

    def size_bytes(self) -> int:
        """Of the rows that are held until they are acknowledged."""
        return sum(span.size_bytes for span in self._spans)

    def is_out(self) -> bool:
        """Whether a record of this segment is out, or on its way to the dead-letter topic."""
        return any(span.is_out() for span in self._spans)
