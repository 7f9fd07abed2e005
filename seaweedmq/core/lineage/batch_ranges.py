"""The offset ranges between two frontiers, and their division into tasks.

The ranges depend only on the two frontiers and on immutable facts of each segment. The layout of records in files does
not matter. So a batch that is repeated after a conversion, a compaction or a year has the same ranges.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seaweedmq.core.lineage.frontier import Frontier, LineageGraph
from seaweedmq.errors import Unavailable

TASK_RECORDS_MIN = 50_000
"""Least records of a task of its own: a task costs about ten milliseconds at any size, so smaller paths share one."""


class Range(NamedTuple):
    """Offsets ``[start, end)`` of a segment."""

    segment: int
    start: int
    end: int

    @property
    def records(self) -> int:
        """Number of records in the range."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class FrontierDiff:
    """The ranges between two frontiers."""

    paths: tuple[tuple[Range, ...], ...]
    """Paths, each to be read in order: a record precedes those of its key that come later. Ranges are not empty."""
    lost: tuple[int, ...]
    """Segments that were pruned before they were read to their end, as far as the lineage shows."""

    @property
    def records(self) -> int:
        """Number of records in all paths."""
        return sum(part.records for path in self.paths for part in path)


def between(lineage: LineageGraph, start: Frontier, end: Frontier) -> FrontierDiff:
    """Return the ranges between two frontiers, or raise Unavailable if the lineage is older than the frontiers.

    A segment whose ``start`` lies beyond its ``end`` contributes nothing: a repeated first batch may get another
    beginning than the first time, and continues from the same end.
    """
    passed, before_end = lineage.ancestors(start), lineage.ancestors(end)
    is_stale = max(end, default=-1) > max(lineage.segments, default=-1)  # ids rise: the frontier names a newer segment
    wanted: set[int] = set()
    waiting = list(end) + list(start)
    while waiting:
        number = waiting.pop()
        if number not in wanted and number not in passed:
            wanted.add(number)
            if number in lineage.segments:
                waiting += (p for p in lineage.segments[number].predecessors if p in lineage.segments)
    parts = _Parts()
    lost: set[int] = set()
    for number in sorted(wanted):  # ids rise along the lineage
        segment = lineage.segments.get(number)
        predecessors = () if segment is None else segment.predecessors
        begin, stop = start.get(number), end.get(number)
        if begin is None:
            if segment is None:
                if stop:
                    lost.add(number)  # its start is unknown
                continue
            begin = segment.start_offset
            if begin > max((_end_known(lineage, start, p) for p in predecessors), default=begin):
                lost.update(p for p in predecessors if p not in lineage.segments)
        if segment is not None and not is_stale and number in start and number not in end and number not in before_end:
            continue  # a reader that came from there to the end would have left it for its successors
        if stop is None and segment is None:
            if not lineage.is_end(number, begin):
                lost.add(number)
            continue
        if stop is None and segment is not None:
            if segment.end_offset is None:
                raise Unavailable(
                    f"{segment} is open, but was read to its end before: the lineage in the storage is older "
                    "than the checkpoint, retry"
                )
            stop = segment.end_offset
        parts.add(Range(number, begin, max(begin, stop or 0)), predecessors)
    return FrontierDiff(parts.paths(), tuple(sorted(lost)))


def _end_known(lineage: LineageGraph, start: Frontier, segment: int) -> int:
    """Return the offset up to which a segment is known to be read, before this batch or in it."""
    known = lineage.segments.get(segment)
    return start.get(segment, 0) if known is None else known.end_offset or 0


def tasks(paths: Iterable[Sequence[Range]], records_min: int = TASK_RECORDS_MIN) -> list[tuple[Range, ...]]:
    """Combine paths into tasks of at least ``records_min`` records, except the last."""
    made: list[tuple[Range, ...]] = []
    waiting: list[Range] = []
    for path in paths:
        waiting += path
        if sum(part.records for part in waiting) >= records_min:
            made.append(tuple(waiting))
            waiting = []
    if waiting:
        made.append(tuple(waiting))
    return made


def cut(task_list: Sequence[Sequence[Range]], tasks_min: int, records_max: int | None) -> list[tuple[Range, ...]]:
    """Cut tasks further, at any offset, into at least ``tasks_min`` tasks of at most ``records_max`` records.

    Records that one task read in order are no longer in order afterwards: the caller declares that order within a batch
    does not matter.
    """
    total = sum(part.records for task in task_list for part in task)
    if records_max is None and len(task_list) >= tasks_min:
        return [tuple(task) for task in task_list]
    share = max(1, total // max(1, tasks_min)) if len(task_list) < tasks_min else total
    most = share if records_max is None else min(share, records_max)
    made: list[tuple[Range, ...]] = []
    for task in task_list:
        waiting: list[Range] = []
        room = most
        for part in task:
            position = part.start
            while position < part.end:
                stop = min(part.end, position + room)
                waiting.append(Range(part.segment, position, stop))
                room -= stop - position
                position = stop
                if not room:
                    made.append(tuple(waiting))
                    waiting, room = [], most
        if waiting:
            made.append(tuple(waiting))
    return made


class _Parts:
    """Ranges in the order of the lineage, grouped with those that they must not overtake."""

    def __init__(self) -> None:
        self._part_of: dict[int, int] = {}
        self._ranges: dict[int, list[Range]] = {}

    def add(self, found: Range, predecessors: Iterable[int]) -> None:
        before = {self._part(p) for p in predecessors if p in self._part_of}
        before = {part for part in before if self._ranges[part]}  # any range may overtake an empty part
        first = min(before, default=found.segment)
        mine = [r for part in sorted(before) for r in self._ranges.pop(part)]
        for part in before:
            self._part_of[part] = first
        self._part_of[found.segment] = first
        self._ranges[first] = [*mine, found] if found.records else mine

    def paths(self) -> tuple[tuple[Range, ...], ...]:
        return tuple(tuple(sorted(self._ranges[part])) for part in sorted(self._ranges) if self._ranges[part])

    def _part(self, segment: int) -> int:
        while self._part_of[segment] != segment:
            segment = self._part_of[segment]
        return segment
