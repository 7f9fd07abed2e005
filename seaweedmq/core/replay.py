"""Which rows of a staged batch go to which segment, while segments are sealed and succeeded. Pure.

A batch is an ordered list of rows that may be published again and again, by whoever finishes it: everything follows
from the list, and from how many rows each segment that was sealed meanwhile has kept. A *root*, a segment that was open
when the batch was put down, gets the rows of its slots, in their order. A successor gets what its predecessors did not
keep, as far as it is of its slots: that of the predecessor with the lowest id first. So a segment begins only once
nobody before it can hand it anything any more, and what it gets is the same list each time, numbered from 0.

Segments, by what has happened to them:

    (not entered) -> entered -> begun -> finished

A root is entered from the start, a successor when a predecessor of it was sealed before it had kept all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seaweedmq.model.ring import KeyRange
from seaweedmq.model.staged import FinishedSegment, StagedSegment


@dataclass(frozen=True, slots=True)
class Feed:
    """Where the rows of a segment come from."""

    slots: KeyRange
    origins: tuple[tuple[int, int], ...]
    """Predecessors, and how many of their rows each has kept; empty for a root, which takes from the batch."""


class Replay:
    """How far one batch is. Bounded by the segments that the lineage has from the roots on."""

    def __init__(self, roots: Iterable[StagedSegment]) -> None:
        self._places = {place.segment: place for place in roots}
        self._entered: set[int] = set(self._places)
        self._roots = frozenset(self._entered)
        self._begun: set[int] = set()
        self._finished: dict[int, FinishedSegment] = {}
        """In the order of what happened."""

    # --- what it is asked ----------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether every row is committed somewhere."""
        return self._entered == self._finished.keys()

    @property
    def finished(self) -> Mapping[int, FinishedSegment]:
        """With what came of them, in that order: :meth:`restore` takes it."""
        return self._finished

    @property
    def places(self) -> tuple[StagedSegment, ...]:
        """All that are known, by id: also of segments that get no rows, but by which it is told who may begin."""
        return tuple(self._places[segment] for segment in sorted(self._places))

    def place(self, segment: int) -> StagedSegment:
        """Of a segment that is known."""
        return self._places[segment]

    def unknown(self) -> set[int]:
        """Segments whose place must be told before it is known who may begin."""
        missing: set[int] = set()
        for segment in self._entered - self._begun:
            self._is_open_to_more(segment, missing)
        return missing

    def ready(self) -> list[int]:
        """Segments that may begin, by id."""
        return sorted(s for s in self._entered - self._begun if not self._is_open_to_more(s, set()))

    def feed(self, segment: int) -> Feed:
        """Requires that the segment is ready, or has begun."""
        place = self._places[segment]
        if segment in self._roots:
            return Feed(place.slots, ())
        origins = ((p, self._finished[p]) for p in sorted(place.predecessors) if p in self._finished)
        return Feed(place.slots, tuple((p, end.kept) for p, end in origins if segment in end.successors))

    # --- what happens --------------------------------------------------------------------------------------------

    def know(self, places: Iterable[StagedSegment]) -> None:
        """These segments are in the lineage. A place never changes."""
        for place in places:
            assert self._places.setdefault(place.segment, place) == place, f"{place} was another one before"

    def begin(self, segment: int) -> Feed:
        """Its rows go out from now on."""
        assert segment in self.ready(), f"segment {segment} may not begin yet"
        self._begun.add(segment)
        return self.feed(segment)

    def finish(self, segment: int, kept: int, successors: Iterable[int] = ()) -> None:
        """A segment that has begun keeps so many of its rows; the others, if there are any, go to the successors."""
        assert segment in self._begun, f"segment {segment} has not begun"
        assert segment not in self._finished, f"segment {segment} is finished"
        end = self._finished[segment] = FinishedSegment(kept, tuple(successors))
        self._entered.update(end.successors)
        assert not self._begun.intersection(end.successors), f"a successor of segment {segment} began before it"

    def restore(self, finished: Mapping[int, FinishedSegment]) -> None:
        """Go on where somebody else was: what an earlier :attr:`finished` said, whose :attr:`places` are known."""
        for segment, end in finished.items():
            self.begin(segment)
            self.finish(segment, end.kept, end.successors)

    # --- inside --------------------------------------------------------------------------------------------------

    def _is_open_to_more(self, segment: int, missing: set[int]) -> bool:
        """Whether a predecessor may still hand it rows. Those whose place is not known are added to ``missing``."""
        place = self._places.get(segment)
        if place is None:
            missing.add(segment)
            return True
        if segment in self._roots:
            return False
        # over splits and merges in turn the ways double with every pair: each segment is looked at once
        seen, waiting, is_open = set(place.predecessors), list(place.predecessors), False
        while waiting:
            before = waiting.pop()
            if before in self._entered:
                is_open |= before not in self._finished
                continue  # what comes before it has ended, or holds it up as well
            earlier = self._places.get(before)
            if earlier is None:
                missing.add(before)
                is_open = True
                continue
            new = set(earlier.predecessors) - seen
            seen |= new
            waiting += new
        return is_open
