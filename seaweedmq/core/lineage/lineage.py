"""The order in which a reader opens the segments of a topic: no successor before all its predecessors.

This order preserves the order of records with the same key: a key's records lie in one segment of each generation.
"""

from collections.abc import Iterable

from seaweedmq.model.segment import Segment


class LineageWalk:
    """The progress of one reader through the lineage.

    A segment is *due* once all its predecessors are finished and it was not begun yet. Segments before the start count
    as finished, and so do pruned ones. Invariant: a segment is in at most one of waiting, begun and finished. The cost
    of the walk is proportional to the segments learned and finished, not to all segments.
    """

    def __init__(self, segments: Iterable[Segment], skipped: Iterable[int] = (), horizon: int = 0) -> None:
        """Begin a walk over all segments that exist at the start and that the reader wants.

        Before the reader's start lie the ``skipped`` ones, and those below the id ``horizon`` that are not in
        ``segments``.
        """
        self._horizon = horizon
        self._waiting: dict[int, Segment] = {}
        self._begun: set[int] = set()
        self._finished: set[int] = set(skipped)
        self._successors: dict[int, set[int]] = {}
        """Waiting successors of each segment that is not finished."""
        self._candidates: set[int] = set()
        """Waiting segments that may be due."""
        given = list(segments)
        self._first = {segment.id for segment in given}
        self.learn(given)

    def learn(self, segments: Iterable[Segment]) -> None:
        """Add segments. Known and unwanted ones are ignored."""
        for segment in segments:
            number = segment.id
            if number in self._waiting or number in self._begun or self._is_passed(number):
                continue
            self._waiting[number] = segment
            self._candidates.add(number)
            for predecessor in segment.predecessors:
                if not self._is_passed(predecessor):
                    self._successors.setdefault(predecessor, set()).add(number)

    def missing(self) -> set[int]:
        """Return predecessors, never learned nor pruned, without which the order of waiting segments is unknown."""
        return self._successors.keys() - self._waiting.keys() - self._begun

    def due(self) -> list[Segment]:
        """Return the segments to open now, by id, and mark them as begun."""
        ready = [
            self._waiting.pop(number)
            for number in sorted(self._candidates)
            if all(map(self._is_passed, self._waiting[number].predecessors))
        ]
        self._candidates.clear()
        self._begun.update(segment.id for segment in ready)
        return ready

    def finish(self, segment: int) -> None:
        """Mark a begun segment as finished: all its records were delivered."""
        self._begun.remove(segment)
        self._pass(segment)

    def pruned(self, segments: Iterable[int]) -> None:
        """Mark segments as pruned: nothing is left of them, and no segment waits for them."""
        for segment in segments:
            self._waiting.pop(segment, None)
            self._candidates.discard(segment)
            if segment not in self._begun:
                self._pass(segment)

    def unknown(self, segments: Iterable[int]) -> set[int]:
        """Return those of ``segments`` that were never learned."""
        return {s for s in segments if not (s in self._waiting or s in self._begun or self._is_passed(s))}

    def finished(self, segments: Iterable[int]) -> set[int]:
        """Return those of ``segments`` that were delivered to their end, or lie before the start."""
        return {segment for segment in segments if self._is_passed(segment)}

    @property
    def begun(self) -> frozenset[int]:
        """Segments being read."""
        return frozenset(self._begun)

    def _is_passed(self, segment: int) -> bool:
        return segment in self._finished or (segment < self._horizon and segment not in self._first)

    def _pass(self, segment: int) -> None:
        self._finished.add(segment)
        self._candidates.update(self._successors.pop(segment, set()) & self._waiting.keys())


def before_open(segments: Iterable[Segment]) -> set[int]:
    """Return the segments that a reader of new records skips: all sealed ones."""
    return {segment.id for segment in segments if not segment.is_open}


def below_offset(segments: Iterable[Segment], offset: int) -> set[int]:
    """Return the segments that a reader from ``offset`` skips: those that end at or below it."""
    return {s.id for s in segments if s.end_offset is not None and s.end_offset <= offset}
