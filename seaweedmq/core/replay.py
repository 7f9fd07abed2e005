"""The division of a staged batch's rows among segments, while segments are sealed and succeeded.

A batch is an ordered list of rows that any process may publish again. Everything follows from the list and from the
number of rows that each segment sealed in the meantime has kept. A *root* is a segment that was open when the batch was
staged: it gets the rows of its slots, in their order. A successor gets the rows of its slots that its predecessors did
not keep, those of the predecessor with the lowest id first. So a segment begins only once no predecessor can pass it
more rows. It gets the same list each time, numbered from 0.

States of a segment:

    (not entered) -> entered -> begun -> finished

A root is entered from the start. A successor is entered when one of its predecessors was sealed before it had kept all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seaweedmq.model.ring import KeyRange
from seaweedmq.model.staged import FinishedSegment, StagedSegment


@dataclass(frozen=True, slots=True)
class RowSources:
    """The sources of a segment's rows."""

    slots: KeyRange
    origins: tuple[tuple[int, int], ...]
    """Predecessors, with the number of their rows that each has kept; empty for a root, which takes from the batch."""


class Replay:
    """The progress of one batch. Its size is bounded by the segments of the lineage from the roots on."""

    def __init__(self, roots: Iterable[StagedSegment]) -> None:
        self._segments = {staged.segment: staged for staged in roots}
        self._entered: set[int] = set(self._segments)
        self._roots = frozenset(self._entered)
        self._begun: set[int] = set()
        self._finished: dict[int, FinishedSegment] = {}
        """Finished segments by id, in the order of their ends."""

    @property
    def is_done(self) -> bool:
        """Whether every row is committed in some segment."""
        return self._entered == self._finished.keys()

    @property
    def finished(self) -> Mapping[int, FinishedSegment]:
        """Finished segments with their results, in order of their ends: the argument of :meth:`restore`."""
        return self._finished

    @property
    def segments(self) -> tuple[StagedSegment, ...]:
        """All known segments, by id, including those without rows that determine which segments may begin."""
        return tuple(self._segments[segment] for segment in sorted(self._segments))

    def staged(self, segment: int) -> StagedSegment:
        """Return a known segment."""
        return self._segments[segment]

    def unknown(self) -> set[int]:
        """Return the segments that must be known before it is clear which ones may begin."""
        missing: set[int] = set()
        for segment in self._entered - self._begun:
            self._is_open_to_more(segment, missing)
        return missing

    def ready(self) -> list[int]:
        """Return the segments that may begin, by id."""
        return sorted(s for s in self._entered - self._begun if not self._is_open_to_more(s, set()))

    def sources(self, segment: int) -> RowSources:
        """Return the sources of a segment's rows. Requires that the segment is ready, or has begun."""
        staged = self._segments[segment]
        if segment in self._roots:
            return RowSources(staged.slots, ())
        origins = ((p, self._finished[p]) for p in sorted(staged.predecessors) if p in self._finished)
        return RowSources(staged.slots, tuple((p, end.kept) for p, end in origins if segment in end.successors))

    def learn(self, segments: Iterable[StagedSegment]) -> None:
        """Add segments of the lineage. A known segment never changes."""
        for staged in segments:
            assert self._segments.setdefault(staged.segment, staged) == staged, (
                f"{staged} differs from the known segment"
            )

    def begin(self, segment: int) -> RowSources:
        """Begin to publish a segment's rows, and return their sources."""
        assert segment in self.ready(), f"segment {segment} may not begin yet"
        self._begun.add(segment)
        return self.sources(segment)

    def finish(self, segment: int, kept: int, successors: Iterable[int] = ()) -> None:
        """Finish a begun segment, which keeps its first ``kept`` rows; the others go to the successors, if any."""
        assert segment in self._begun, f"segment {segment} has not begun"
        assert segment not in self._finished, f"segment {segment} is finished"
        end = self._finished[segment] = FinishedSegment(kept, tuple(successors))
        self._entered.update(end.successors)
        assert not self._begun.intersection(end.successors), f"a successor of segment {segment} began before it"

    def restore(self, finished: Mapping[int, FinishedSegment]) -> None:
        """Restore the state of an earlier :attr:`finished`, whose :attr:`segments` are known."""
        for segment, end in finished.items():
            self.begin(segment)
            self.finish(segment, end.kept, end.successors)

    def _is_open_to_more(self, segment: int, missing: set[int]) -> bool:
        """Whether a predecessor may still pass rows to the segment. Unknown segments are added to ``missing``."""
        staged = self._segments.get(segment)
        if staged is None:
            missing.add(segment)
            return True
        if segment in self._roots:
            return False
        # Visit each segment once: over alternating splits and merges the number of paths doubles with every pair.
        seen, waiting, is_open = set(staged.predecessors), list(staged.predecessors), False
        while waiting:
            before = waiting.pop()
            if before in self._entered:
                is_open |= before not in self._finished
                continue  # its predecessors have ended, or delay it as well
            earlier = self._segments.get(before)
            if earlier is None:
                missing.add(before)
                is_open = True
                continue
            new = set(earlier.predecessors) - seen
            seen |= new
            waiting += new
        return is_open
