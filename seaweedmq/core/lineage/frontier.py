"""The frontier of a reader over a topic's lineage: a checkpoint of what it has read, and its advance batch by batch.

A frontier names segments that were begun, each with the next offset to read. Their ancestors are read to the end, their
descendants are not begun. A segment stays in the frontier, at its end, until all its successors were begun. So every
segment is named, or comes before or after a named one:

    a segment enters once nothing is left to read of any of its predecessors
    a segment leaves once all its successors have entered
    a pruned segment is read to its end, if it ever held anything

So a frontier is as large as the topic's open segments, however long its history, and stays valid across splits, merges
and failovers. Offsets of a segment never change their meaning: conversion, compaction and the serving broker do not
matter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.segment import Segment

Frontier: TypeAlias = Mapping[int, int]
"""Next offset to read, by segment id."""
SERIAL_RECORDS_MAX = 100_000
"""Most records on both sides of a split or a merge that one task reads, so that a key's records stay in order. Beyond
it the batch ends there, and the next batch reads the successors with a task for each segment."""


class BatchLimit(Protocol):
    """The limit of a batch, in any unit."""

    @property
    def budget(self) -> int:
        """The limit of the whole batch."""

    def reach(self, segment: int, start: int, end: int, budget: int) -> tuple[int, int]:
        """Return the offset that ``budget`` reaches in a segment from ``start`` on, at most ``end``, and the cost.

        The offset advances by at least one record at any cost: a record larger than every budget must be read some
        time.
        """


@dataclass(frozen=True, slots=True)
class RecordLimit:
    """A limit of ``budget`` records per batch."""

    budget: int

    def reach(self, segment: int, start: int, end: int, budget: int) -> tuple[int, int]:
        """See :class:`BatchLimit`."""
        del segment
        stop = min(end, start + max(1, budget))
        return stop, stop - start


class LineageGraph:
    """The segments that a topic has now, with links in both directions."""

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
        """Ids of the segments without a known predecessor."""
        self.open = tuple(number for number, segment in self.segments.items() if segment.is_open)

    def successors(self, segment: int) -> set[int]:
        """Return the ids of the segment's successors, whether they are known or pruned."""
        return self._successors.get(segment, set())

    def ancestors(self, segments: Iterable[int]) -> set[int]:
        """Return all known segments that precede any of these."""
        found: set[int] = set()
        waiting = [p for s in segments if s in self.segments for p in self.segments[s].predecessors]
        while waiting:
            number = waiting.pop()
            if number not in found and number in self.segments:
                found.add(number)
                waiting += self.segments[number].predecessors
        return found

    def is_end(self, segment: int, offset: int) -> bool:
        """Whether a segment, or if pruned its successors from its end on, holds nothing at or after an offset."""
        known = self.segments.get(segment)
        if known is not None:
            return known.end_offset is not None and offset >= known.end_offset
        return any(
            offset == self.segments[successor].start_offset
            for successor in self.successors(segment)
            if successor in self.segments
        )


class FrontierWalk:
    """A frontier that advances through one batch. Invariants: see the module docstring."""

    def __init__(
        self, lineage: LineageGraph, frontier: Frontier, ends: Mapping[int, int], serial_max: int | None = None
    ) -> None:
        """Begin a batch at the frontier after the previous one.

        ``ends`` has the offset up to which each open segment can be read; the metadata have the ends of sealed ones.
        ``serial_max`` is ``SERIAL_RECORDS_MAX``; with None a batch ends at no split and no merge.
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
        """Link from a segment towards the representative of those read together, which links to itself."""
        self._records: dict[int, int] = {}
        """Number of records of each group, by its representative."""
        self._counted: set[int] = set()
        """Segments whose records are in ``_records`` in advance."""
        self._enter([*lineage.roots, *(successor for segment in frontier for successor in lineage.successors(segment))])

    def end_of(self, segment: int) -> int:
        """Return the offset up to which a segment can be read now."""
        known = self._lineage.segments.get(segment)
        end = 0 if known is None else known.end_offset
        if end is None:
            end = self._ends.get(segment, 0)
        return max(end, self.offsets[segment])

    def due(self) -> list[int]:
        """Return the segments that can be read, the largest backlog first: one that waits grows, so none starves."""
        backlog = {s: self.end_of(s) - offset for s, offset in self.offsets.items()}
        return sorted((s for s, records in backlog.items() if records > 0), key=lambda s: (-backlog[s], s))

    def move(self, segment: int, offset: int) -> None:
        """Add everything below ``offset`` to the batch; the successors enter if the segment is read to its end."""
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
        """Whether a successor of a pruned segment is not begun yet: its start shows whether records were lost."""
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
        """Let one task read the segment after its predecessors in the batch; False if it waits for the next batch."""
        before = {self._part(p) for p in segment.predecessors if p in self._part_of}
        before = {part for part in before if self._records[part]}
        if not before:
            return True
        total = sum(self._records[part] for part in before) + self.end_of(segment.id) - self.offsets[segment.id]
        is_continued = len(segment.predecessors) == 1 and len(self._lineage.successors(segment.predecessors[0])) == 1
        if not is_continued and self._serial_max is not None and total > self._serial_max:
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
    """Return the frontier after the next batch, see :class:`FrontierWalk`; an end before the frontier is ignored.

    Segments get equal shares of the limit, and the share that one does not need goes to the others. If there is nothing
    to read, the frontier is the same, except for segments that were begun since.
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
    """Return the frontier after everything that can be read now."""
    return advanced(lineage, frontier, ends, serial_max=None)


def beginning(lineage: LineageGraph, earliest: Mapping[int, int], skipped: Iterable[int] = ()) -> dict[int, int]:
    """Return the frontier of a new reader: every segment without a predecessor, except the skipped and their ancestors.

    ``earliest`` has the first available offset of segments that no longer begin at their start offset.
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
    """Return the frontier of a reader that begins at the ``named`` offsets of some segments; see :func:`beginning`.

    It begins at the start of every segment that neither precedes nor follows a named one. Raises InvalidArgument if one
    named segment precedes another one.
    """
    before = lineage.ancestors(named)
    for segment in sorted(before & named.keys()):
        raise InvalidArgument(
            f"segment {segment} precedes another named segment: a reader that begins with the later one has already "
            "read the earlier one, name one of the two"
        )
    finished = {segment for segment, offset in named.items() if lineage.is_end(segment, offset)}
    return beginning(lineage, {**earliest, **named}, {*skipped, *before, *finished})


def _may_begin(lineage: LineageGraph, segment: int, passed: set[int]) -> bool:
    known = lineage.segments[segment]
    return segment not in passed and all(p in passed or p not in lineage.segments for p in known.predecessors)
