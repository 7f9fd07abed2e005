"""How far a reader that comes back has read a topic: a frontier over the lineage, and how it moves on. Pure.

A frontier names segments that were begun, each with the offset that is read next. What lies before them in the lineage
is read to its end, what comes after them is not begun. A segment stays in it, at its end, until all its successors were
begun, so that nothing is ever both unnamed and neither before nor after what is named:

    a segment enters once nothing is left to read of any of its predecessors
    a segment leaves once all its successors have entered
    what was pruned is read to its end, if it ever held anything

So the frontier is as large as the topic's open segments, however long its history, and says the same to whoever comes
back after splits, merges and failovers. Offsets of a segment mean the same for ever: neither conversion nor compaction,
nor the broker that serves it, plays a part.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.segment import Segment

Frontier: TypeAlias = Mapping[int, int]
"""Segment -> the offset that is read next."""
SERIAL_RECORDS_MAX = 100_000
"""What lies on both sides of a split or a merge is read by one task, so that a key's records stay in order. Beyond so
many records a batch ends there instead, and the next one reads what follows with a task for each segment."""


class BatchLimit(Protocol):
    """What a batch may take, in any unit."""

    @property
    def budget(self) -> int:
        """Of the whole batch."""
        ...

    def reach(self, segment: int, start: int, end: int, budget: int) -> tuple[int, int]:
        """How far so much leads in a segment, from ``start`` on and at most to ``end``, and what that takes.

        Always a record further, whatever it takes: what is larger than any budget must be read some time.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecordLimit:
    """So many records a batch."""

    budget: int

    def reach(self, segment: int, start: int, end: int, budget: int) -> tuple[int, int]:
        """See :class:`BatchLimit`."""
        del segment
        stop = min(end, start + max(1, budget))
        return stop, stop - start


class LineageGraph:
    """The segments that a topic has now, to be walked both ways."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = {segment.id: segment for segment in segments}
        successors: dict[int, set[int]] = {}
        for segment in self.segments.values():
            successors.setdefault(segment.id, set()).update(segment.successors)
            for predecessor in segment.predecessors:
                successors.setdefault(predecessor, set()).add(segment.id)
        self._successors = successors
        self.roots = tuple(
            number
            for number, segment in self.segments.items()
            if not any(p in self.segments for p in segment.predecessors)
        )
        """Those that no known segment comes before."""
        self.open = tuple(number for number, segment in self.segments.items() if segment.is_open)

    def successors(self, segment: int) -> set[int]:
        """What comes right after a segment, known or pruned itself."""
        return self._successors.get(segment, set())

    def ancestors(self, segments: Iterable[int]) -> set[int]:
        """All known segments that come before any of these."""
        found: set[int] = set()
        waiting = [p for s in segments if s in self.segments for p in self.segments[s].predecessors]
        while waiting:
            number = waiting.pop()
            if number not in found and number in self.segments:
                found.add(number)
                waiting += self.segments[number].predecessors
        return found

    def is_end(self, segment: int, offset: int) -> bool:
        """Whether nothing of a segment comes at an offset or after it; of one that was pruned, as far as what came
        after it tells: that begins at its end, or later."""
        known = self.segments.get(segment)
        if known is not None:
            return known.end_offset is not None and offset >= known.end_offset
        return any(
            offset == self.segments[successor].start_offset
            for successor in self.successors(segment)
            if successor in self.segments
        )


class FrontierWalk:
    """A frontier that moves on through one batch. Invariants: those at the top of the module."""

    def __init__(
        self, lineage: LineageGraph, frontier: Frontier, ends: Mapping[int, int], serial_max: int | None = None
    ) -> None:
        """
        Args:
            ends: of open segments, up to where they can be read; of sealed ones their metadata tell.
            serial_max: see ``SERIAL_RECORDS_MAX``; None: a batch ends at no split and no merge.
        """
        self._lineage = lineage
        self._ends = ends
        self._serial_max = serial_max
        self._passed = lineage.ancestors(frontier)
        self.offsets = {
            segment: offset
            for segment, offset in frontier.items()
            if segment in lineage.segments or self._is_awaited(segment, frontier)
        }
        self._part_of: dict[int, int] = {}
        """Segment -> another of those that one task reads together; to itself for one of them."""
        self._records: dict[int, int] = {}
        """How many these are, by that one."""
        self._counted: set[int] = set()
        """Segments whose records are in ``_records`` in advance."""
        self._enter([*lineage.roots, *(successor for segment in frontier for successor in lineage.successors(segment))])

    def end_of(self, segment: int) -> int:
        """Up to where it can be read now."""
        known = self._lineage.segments.get(segment)
        end = 0 if known is None else known.end_offset
        if end is None:
            end = self._ends.get(segment, 0)
        return max(end, self.offsets[segment])

    def due(self) -> list[int]:
        """Segments of which something can be read, those with the most first: the others' turn comes as well, since
        what waits for longer becomes more."""
        backlog = {s: self.end_of(s) - offset for s, offset in self.offsets.items()}
        return sorted((s for s, records in backlog.items() if records > 0), key=lambda s: (-backlog[s], s))

    def move(self, segment: int, offset: int) -> None:
        """All below ``offset`` is part of the batch; successors enter if that is all there is of the segment."""
        part = self._part(segment)
        if segment not in self._counted:
            self._records[part] += offset - self.offsets[segment]
        self.offsets[segment] = offset
        if self._lineage.is_end(segment, offset):
            self._enter(self._lineage.successors(segment))

    def _enter(self, candidates: Iterable[int]) -> None:
        waiting = sorted(set(candidates), reverse=True)
        while waiting:
            number = waiting.pop()
            segment = self._lineage.segments.get(number)
            if segment is None or number in self.offsets or number in self._passed:
                continue
            if not all(map(self._is_finished, segment.predecessors)):
                continue
            self.offsets[number] = segment.start_offset
            if not self._join(segment):
                del self.offsets[number]
                continue
            for predecessor in segment.predecessors:
                self._leave(predecessor)
            if self._is_finished(number):
                waiting += self._lineage.successors(number)

    def _is_awaited(self, segment: int, frontier: Frontier) -> bool:
        """Whether something that comes after a pruned segment is yet to be begun: where it begins tells then whether
        anything was lost."""
        successors = self._lineage.successors(segment)
        return any(
            successor in self._lineage.segments and successor not in self._passed and successor not in frontier
            for successor in successors
        )

    def _leave(self, segment: int) -> None:
        if segment in self.offsets and all(
            successor in self.offsets or successor in self._passed for successor in self._lineage.successors(segment)
        ):
            del self.offsets[segment]
            self._passed.add(segment)

    def _is_finished(self, segment: int) -> bool:
        if segment not in self._lineage.segments or segment in self._passed:
            return True
        return segment in self.offsets and self._lineage.is_end(segment, self.offsets[segment])

    def _join(self, segment: Segment) -> bool:
        """Have one task read the segment after what the batch has of those before it; False: it waits for the next
        batch."""
        before = {self._part(p) for p in segment.predecessors if p in self._part_of}
        before = {part for part in before if self._records[part]}
        if not before:
            return True
        total = sum(self._records[part] for part in before) + self.end_of(segment.id) - self.offsets[segment.id]
        goes_on = len(segment.predecessors) == 1 and len(self._lineage.successors(segment.predecessors[0])) == 1
        if not goes_on and self._serial_max is not None and total > self._serial_max:
            return False
        first = min(before)
        for part in before:
            self._part_of[part] = first
        self._part_of[segment.id] = first
        self._records[first] = total
        self._counted.add(segment.id)
        return True

    def _part(self, segment: int) -> int:
        if segment not in self._part_of:
            self._part_of[segment] = segment
            self._records[segment] = 0
        while self._part_of[segment] != segment:
            segment = self._part_of[segment]
        return segment


def advanced(
    lineage: LineageGraph,
    frontier: Frontier,
    ends: Mapping[int, int],
    limit: BatchLimit | None = None,
    serial_max: int | None = SERIAL_RECORDS_MAX,
) -> dict[int, int]:
    """The frontier after the next batch. Segments get equal shares of the limit, and what one does not need goes to the
    others. The same frontier if there is nothing to read, but for segments that were begun since.

    Args:
        ends: see :class:`FrontierWalk`. An end that lies before the frontier counts for nothing.
    """
    walk = FrontierWalk(lineage, frontier, ends, serial_max)
    if limit is None:
        while due := walk.due():
            for segment in due:
                walk.move(segment, walk.end_of(segment))
        return walk.offsets
    left = limit.budget
    while left > 0 and (due := walk.due()):
        share = max(1, left // len(due))
        for segment in due:
            if left <= 0:
                break
            offset, cost = limit.reach(segment, walk.offsets[segment], walk.end_of(segment), min(share, left))
            walk.move(segment, offset)
            left -= max(1, cost)
    return walk.offsets


def everything(lineage: LineageGraph, frontier: Frontier, ends: Mapping[int, int]) -> dict[int, int]:
    """The frontier of who has read all that can be read now."""
    return advanced(lineage, frontier, ends, serial_max=None)


def beginning(lineage: LineageGraph, earliest: Mapping[int, int], skipped: Iterable[int] = ()) -> dict[int, int]:
    """The frontier of who begins: with every segment that nothing else comes before, but for those skipped.

    Args:
        earliest: where a segment begins now, if that is not its start.
        skipped: segments of which nothing is wanted, nor of those that come before them.
    """
    passed = set(skipped)
    passed |= lineage.ancestors(passed)
    frontier: dict[int, int] = {}
    for number, segment in lineage.segments.items():
        if number in passed:
            successors = {successor for successor in lineage.successors(number) if successor in lineage.segments}
            if not successors or any(
                successor not in passed and not _may_begin(lineage, successor, passed) for successor in successors
            ):
                assert segment.end_offset is not None, f"{segment} is skipped and open"
                frontier[number] = segment.end_offset
        elif _may_begin(lineage, number, passed):
            frontier[number] = max(segment.start_offset, earliest.get(number, 0))
    return frontier


def beginning_at(
    lineage: LineageGraph, earliest: Mapping[int, int], named: Mapping[int, int], skipped: Iterable[int] = ()
) -> dict[int, int]:
    """The frontier of who begins at an offset of some segments, and at the beginning of what neither comes before nor
    after these.

    Raises:
        InvalidArgument: of two that are named, one comes before the other.
    """
    before = lineage.ancestors(named)
    for segment in sorted(before & named.keys()):
        raise InvalidArgument(
            f"segment {segment} comes before another one that is named: who begins with the later one has read the "
            "earlier one, so name one of the two"
        )
    finished = {segment for segment, offset in named.items() if lineage.is_end(segment, offset)}
    return beginning(lineage, {**earliest, **named}, {*skipped, *before, *finished})


def _may_begin(lineage: LineageGraph, segment: int, passed: set[int]) -> bool:
    known = lineage.segments[segment]
    return segment not in passed and all(p in passed or p not in lineage.segments for p in known.predecessors)
