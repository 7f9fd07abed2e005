"""In which order a reader goes through the segments of a topic: no successor before all its predecessors.

That order is what keeps the records of one key in order: a key's records lie in one segment of each generation.
"""

from collections.abc import Iterable

from seaweedmq.model.segment import Segment


class LineageWalk:
    """One reader's way through the lineage.

    A segment is *due* once every predecessor that is still known was finished, and it was not begun yet. Segments in
    front of the start count as finished. Invariant: a segment is in at most one of begun and finished.
    """

    def __init__(self, segments: Iterable[Segment], skipped: Iterable[int] = ()) -> None:
        """``skipped``: segments the reader does not want, because they lie in front of its start."""
        self._known: dict[int, Segment] = {}
        self._begun: set[int] = set()
        self._finished: set[int] = set(skipped)
        self.learn(segments)

    def learn(self, segments: Iterable[Segment]) -> None:
        """Take in newer metadata. Segments that are gone from it (retention) hold nobody up."""
        self._known = {segment.id: segment for segment in segments}

    def due(self) -> list[Segment]:
        """Segments to open now, by id; they count as begun from here on."""
        ready = [
            segment
            for number, segment in sorted(self._known.items())
            if number not in self._begun
            and number not in self._finished
            and all(p in self._finished or p not in self._known for p in segment.predecessors)
        ]
        self._begun.update(segment.id for segment in ready)
        return ready

    def finish(self, segment: int) -> None:
        """Everything of a begun segment was delivered."""
        self._begun.remove(segment)
        self._finished.add(segment)

    def is_finished(self, segment: int) -> bool:
        return segment in self._finished

    def knows(self, segments: Iterable[int]) -> bool:
        """Whether every one is in the metadata taken in last, or finished."""
        return all(s in self._known or s in self._finished for s in segments)

    @property
    def begun(self) -> frozenset[int]:
        """Segments being read."""
        return frozenset(self._begun)


def before_open(segments: Iterable[Segment]) -> set[int]:
    """What a reader skips that starts at the latest: everything sealed."""
    return {segment.id for segment in segments if not segment.is_open}


def below_offset(segments: Iterable[Segment], offset: int) -> set[int]:
    """What a reader skips that starts at an offset: segments that end there or before it."""
    return {s.id for s in segments if s.end_offset is not None and s.end_offset <= offset}
