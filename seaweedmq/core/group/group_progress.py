"""Progress of a group in a topic: finished segments, due segments, and the start of each segment.

A segment is *finished* once it is sealed and the group has committed its end. It is *due* once all its predecessors are
finished or removed by retention, and it is not finished itself.
"""

from collections.abc import Mapping

from seaweedmq.model.group_record import CommittedOffset
from seaweedmq.model.messages.subscribe import EARLIEST, Start, StartKind
from seaweedmq.model.segment import Segment

_NOTHING: Mapping[int, Segment] = {}


class GroupProgress:
    """Committed offsets compared with the segments of the topic."""

    def __init__(self, start: Start, horizon: int, committed: Mapping[int, CommittedOffset]) -> None:
        self.start = start
        """Start of segments below ``horizon`` without a commit."""
        self.horizon = horizon
        self.committed = dict(committed)
        self.segments = _NOTHING
        """Segments by id, as in the metadata."""
        self._ends: dict[int, int] = {}

    def learn(self, segments: Mapping[int, Segment], next_segment: int) -> frozenset[int]:
        """Apply newer metadata; return the committed segments that no longer exist, whose commits are removed here."""
        self.segments = segments
        self._ends = {s: end for s, end in self._ends.items() if s in segments and segments[s].is_open}
        gone = frozenset(s for s in self.committed if s not in segments and s < next_segment)
        for segment in gone:
            del self.committed[segment]
        return gone

    def learn_ends(self, ends: Mapping[int, int]) -> None:
        """Apply high watermarks; they never fall."""
        for segment, end in ends.items():
            self._ends[segment] = max(end, self._ends.get(segment, 0))

    def end(self, segment: int) -> int:
        """Return the first offset that no commit may exceed: the end if sealed, else a known committed end.

        The latter may be too low.
        """
        known = self.segments.get(segment)
        if known is not None and known.end_offset is not None:
            return known.end_offset
        return max(self._ends.get(segment, 0), self.position(segment))

    def begin(self, segment: int) -> Start:
        """Return the start of an owner."""
        committed = self.committed.get(segment)
        if committed is not None:
            return Start(StartKind.OFFSET, committed.offset)
        return self.start if segment < self.horizon else EARLIEST

    def position(self, segment: int) -> int:
        """Return the lowest offset that may still need delivery."""
        committed = self.committed.get(segment)
        if committed is not None:
            return committed.offset
        known = self.segments.get(segment)
        return known.start_offset if known else 0

    def behind(self, segment: int) -> bool:
        """Whether there surely was something to deliver."""
        return self.end(segment) > self.position(segment)

    def finished(self, segment: int) -> bool:
        """Whether the group will never read the segment again; also true of a segment that no longer exists."""
        known = self.segments.get(segment)
        if known is None:
            return True
        end = known.end_offset
        if end is None:
            return False
        if self.position(segment) >= end:
            return True
        skipped = self.start.kind is StartKind.OFFSET and segment < self.horizon and segment not in self.committed
        return skipped and end <= self.start.value

    def due(self) -> list[int]:
        """Return the segments that should have an owner, by id."""
        found: list[int] = []
        # Finished with all ancestors. A segment without records is finished as soon as it is sealed; its successors
        # would otherwise overtake its predecessors.
        passed: set[int] = set()
        for number, segment in sorted(self.segments.items()):  # ids rise along the lineage
            if any(p in self.segments and p not in passed for p in segment.predecessors):
                continue
            if self.finished(number):
                passed.add(number)
            else:
                found.append(number)
        return found
