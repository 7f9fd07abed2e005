"""In which order a reader goes through the segments of a topic: no successor before all its predecessors.

That order is what keeps the records of one key in order: a key's records lie in one segment of each generation.
"""

from collections.abc import Iterable

from seaweedmq.model.segment import Segment


class LineageWalk:
    """One reader's way through the lineage.

    A segment is *due* once all its predecessors were finished, and it was not begun yet. Segments in front of the start
    count as finished, and so do those that were pruned. Invariant: a segment is in at most one of waiting, begun and
    finished; what the walk costs is in proportion to what is learned and finished, not to what there is.
    """

    def __init__(self, segments: Iterable[Segment], skipped: Iterable[int] = (), horizon: int = 0) -> None:
        """
        Args:
            segments: everything the reader wants of what there is at the start.
            skipped: of these, what it does not want after all, because it lies in front of its start.
            horizon: ids below it that are not in ``segments`` lie in front of the start, too.
        """
        self._horizon = horizon
        self._waiting: dict[int, Segment] = {}
        self._begun: set[int] = set()
        self._finished: set[int] = set(skipped)
        self._heirs: dict[int, set[int]] = {}
        """Of segments that are not finished, those that wait for them."""
        self._candidates: set[int] = set()
        """Waiting ones that may be due."""
        given = list(segments)
        self._first = {segment.id for segment in given}
        self.learn(given)

    def learn(self, segments: Iterable[Segment]) -> None:
        """Take in segments. Those that are known, or not wanted, change nothing."""
        for segment in segments:
            number = segment.id
            if number in self._waiting or number in self._begun or self._is_passed(number):
                continue
            self._waiting[number] = segment
            self._candidates.add(number)
            for predecessor in segment.predecessors:
                if not self._is_passed(predecessor):
                    self._heirs.setdefault(predecessor, set()).add(number)

    def missing(self) -> set[int]:
        """Predecessors of what waits that were never learned, nor found to be pruned: without them nobody knows what
        comes first."""
        return self._heirs.keys() - self._waiting.keys() - self._begun

    def due(self) -> list[Segment]:
        """Segments to open now, by id; they count as begun from here on."""
        ready = [
            self._waiting.pop(number)
            for number in sorted(self._candidates)
            if all(map(self._is_passed, self._waiting[number].predecessors))
        ]
        self._candidates.clear()
        self._begun.update(segment.id for segment in ready)
        return ready

    def finish(self, segment: int) -> None:
        """Everything of a begun segment was delivered."""
        self._begun.remove(segment)
        self._pass(segment)

    def pruned(self, segments: Iterable[int]) -> None:
        """Nobody knows these any more, and nothing is left of them. They hold nobody up."""
        for segment in segments:
            self._waiting.pop(segment, None)
            self._candidates.discard(segment)
            if segment not in self._begun:
                self._pass(segment)

    def unknown(self, segments: Iterable[int]) -> set[int]:
        """Those that were never learned."""
        return {s for s in segments if not (s in self._waiting or s in self._begun or self._is_passed(s))}

    def finished(self, segments: Iterable[int]) -> set[int]:
        """Return those that were delivered to their end, or lie in front of the start."""
        return {segment for segment in segments if self._is_passed(segment)}

    @property
    def begun(self) -> frozenset[int]:
        """Segments being read."""
        return frozenset(self._begun)

    def _is_passed(self, segment: int) -> bool:
        return segment in self._finished or (segment < self._horizon and segment not in self._first)

    def _pass(self, segment: int) -> None:
        self._finished.add(segment)
        self._candidates.update(self._heirs.pop(segment, set()) & self._waiting.keys())


def before_open(segments: Iterable[Segment]) -> set[int]:
    """What a reader skips that starts at the latest: everything sealed."""
    return {segment.id for segment in segments if not segment.is_open}


def below_offset(segments: Iterable[Segment], offset: int) -> set[int]:
    """What a reader skips that starts at an offset: segments that end there or before it."""
    return {s.id for s in segments if s.end_offset is not None and s.end_offset <= offset}
