"""Assignment of a staged batch's rows to segments, while segments are sealed and replaced. Pure.

A batch is an ordered list of rows that any process may publish again, any number of times. Everything follows from the
list, and from the number of rows that each segment sealed meanwhile has kept. A *root* is a segment that was open when
the batch was staged; it gets the rows of its slots, in their order. A successor gets the rows of its slots that its
predecessors did not keep, those of the predecessor with the lowest id first. A segment therefore begins only once no
ancestor can pass it more rows. Its list is then the same each time, numbered from 0.

States of a segment:

    (not entered) -> entered -> begun -> finished

A root is entered from the start, a successor when a predecessor was sealed before it had kept all of its rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seaweedmq.model.ring import KeyRange
from seaweedmq.model.staged import FinishedSegment, StagedSegment


@dataclass(frozen=True, slots=True)
class Feed:
    """The source of a segment's rows."""

    slots: KeyRange
    origins: tuple[tuple[int, int], ...]
    """Predecessors, and the number of rows that each has kept; empty for a root, which reads from the batch."""


class Replay:
    """The progress of one batch.

    Its size is bounded by the segments of the lineage from the roots on.
    """

    def __init__(self, roots: Iterable[StagedSegment]) -> None:
        self._places = {place.segment: place for place in roots}
        self._entered: set[int] = set(self._places)
        self._roots = frozenset(self._entered)
        self._begun: set[int] = set()
        self._finished: dict[int, FinishedSegment] = {}
        """Outcome of each sealed segment, in the order of the events."""

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether every row is committed in a segment."""
        return self._entered == self._finished.keys()

    @property
    def finished(self) -> Mapping[int, FinishedSegment]:
        """The outcomes of finished segments, in the order of the events, for :meth:`restore`."""
        return self._finished

    @property
    def places(self) -> tuple[StagedSegment, ...]:
        """The known segments by id, also those without rows that determine when others may begin."""
        return tuple(self._places[segment] for segment in sorted(self._places))

    def place(self, segment: int) -> StagedSegment:
        """Return a known segment."""
        return self._places[segment]

    def unknown(self) -> set[int]:
        """Return the segments that must be known before it is decided which segments may begin."""
        missing: set[int] = set()
        for segment in self._entered - self._begun:
            self._is_open_to_more(segment, missing)
        return missing

    def ready(self) -> list[int]:
        """Return the segments that may begin, by id."""
        return sorted(s for s in self._entered - self._begun if not self._is_open_to_more(s, set()))

    def feed(self, segment: int) -> Feed:
        """Return the source of the rows of a segment that is ready or has begun."""
        place = self._places[segment]
        if segment in self._roots:
            return Feed(place.slots, ())
        origins = ((p, self._finished[p]) for p in sorted(place.predecessors) if p in self._finished)
        return Feed(place.slots, tuple((p, end.kept) for p, end in origins if segment in end.successors))

    # --- events -------------------------------------------------------------------------------------------------------

    def know(self, places: Iterable[StagedSegment]) -> None:
        """Add segments of the lineage, which never change."""
        for place in places:
            assert self._places.setdefault(place.segment, place) == place, f"{place} differs from the known one"

    def begin(self, segment: int) -> Feed:
        """Begin to publish the rows of a ready segment."""
        assert segment in self.ready(), f"segment {segment} may not begin yet"
        self._begun.add(segment)
        return self.feed(segment)

    def finish(self, segment: int, kept: int, successors: Iterable[int] = ()) -> None:
        """Record the number of rows that a begun segment has kept; the others go to the successors."""
        assert segment in self._begun, f"segment {segment} has not begun"
        assert segment not in self._finished, f"segment {segment} is finished"
        end = self._finished[segment] = FinishedSegment(kept, tuple(successors))
        self._entered.update(end.successors)
        assert not self._begun.intersection(end.successors), f"a successor of segment {segment} began before it"

    def restore(self, finished: Mapping[int, FinishedSegment]) -> None:
        """Resume from an earlier :attr:`finished`, whose :attr:`places` are known."""
        for segment, end in finished.items():
            self.begin(segment)
            self.finish(segment, end.kept, end.successors)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _is_open_to_more(self, segment: int, missing: set[int]) -> bool:
        """Whether a predecessor may still pass it rows. Unknown predecessors are added to ``missing``."""
        place = self._places.get(segment)
        if place is None:
            missing.add(segment)
            return True
        if segment in self._roots:
            return False
        # Visit each segment once: alternating splits and merges double the number of paths with every pair.
        seen, waiting, is_open = set(place.predecessors), list(place.predecessors), False
        while waiting:
            before = waiting.pop()
            if before in self._entered:
                is_open |= before not in self._finished
                continue  # its ancestors are finished, or block it as well
            earlier = self._places.get(before)
            if earlier is None:
                missing.add(before)
                is_open = True
                continue
            new = set(earlier.predecessors) - seen
            seen |= new
            waiting += new
        return is_open
