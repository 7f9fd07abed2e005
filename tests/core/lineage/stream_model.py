"""A topic whose lineage and files change, and a query that copies it by frontiers, killed and restarted: all in memory.

The records of each key are numbered. Publishers resend to successors what a sealed segment did not store. The sink is
exactly once, as Spark's are: a batch that was attempted before replaces its former output.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from seaweedmq.core.lineage.batch_ranges import Range, between, cut, tasks
from seaweedmq.core.lineage.frontier import Frontier, FrontierWalk, LineageGraph, RecordLimit, advanced, beginning
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from tests.support.segments import make_segment

NAME = make_segment().topic
SLOTS = 8
"""Number of keys."""
BATCHES_LEFT_MAX = 1_500
"""Limit of batches: without changes, the query ends with fewer; with a limit of one record some hundreds."""

Record = tuple[int, int]
"""Key and number."""


class Broken(AssertionError):
    """A copy with a defect."""


@dataclass
class Stored:
    """One segment and the contents of its files."""

    id: int
    slots: KeyRange
    start: int
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    end: int | None = None
    records: list[Record] = field(default_factory=list)
    """Return the records from ``start`` on, the uncommitted ones at the end."""
    committed: int = 0
    tables: list[tuple[int, int]] = field(default_factory=list)
    removed_below: int = 0

    @property
    def written(self) -> int:
        return self.start + len(self.records)

    @property
    def table_end(self) -> int:
        return max((end for _, end in self.tables), default=self.start)

    def as_segment(self) -> Segment:
        segment = make_segment(self.end, self.start)
        return replace(
            segment, id=self.id, slots=self.slots, predecessors=self.predecessors, successors=self.successors
        )


class Source:
    """The topic. Each method is an event."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.segments: dict[int, Stored] = {}
        self.sent: dict[int, int] = defaultdict(int)
        """Records of each key."""
        self.pruned: dict[int, tuple[int, int]] = {}
        """Segment -> its first offset and its end."""
        self.next_segment = 0
        bounds = sorted({0, SLOTS, *rng.sample(range(1, SLOTS), rng.randrange(3))})
        for lo, hi in pairwise(bounds):
            self._open(KeyRange(lo, hi), 0, ())

    def lineage(self) -> LineageGraph:
        return LineageGraph(stored.as_segment() for stored in self.segments.values())

    def open(self) -> list[Stored]:
        return sorted((s for s in self.segments.values() if s.end is None), key=lambda s: s.slots.lo)

    def publish(self) -> None:
        stored = self.rng.choice(self.open())
        for _ in range(self.rng.randrange(1, 12)):
            key = self.rng.randrange(stored.slots.lo, stored.slots.hi)
            stored.records.append((key, self.sent[key]))
            self.sent[key] += 1

    def commit(self, stored: Stored | None = None) -> None:
        stored = stored or self.rng.choice(self.open())
        stored.committed = self.rng.randint(stored.committed, stored.written)

    def convert(self) -> None:
        ends = {s.id: s.committed if s.end is None else s.end for s in self.segments.values()}
        behind = [s for s in self.segments.values() if ends[s.id] > s.table_end]
        if behind:
            stored = self.rng.choice(behind)
            stored.tables.append((stored.table_end, ends[stored.id]))

    def compact(self) -> None:
        for stored in self.segments.values():
            if len(stored.tables) > 1 and self.rng.random() < 0.5:
                stored.tables = [(stored.tables[0][0], stored.table_end)]

    def fail_over(self) -> None:
        self._succeed([self.rng.choice(self.open())], pieces=1)

    def split(self) -> None:
        self._succeed([self.rng.choice(self.open())], pieces=2)

    def merge(self) -> None:
        neighbors = self.open()
        first = self.rng.randrange(len(neighbors))
        self._succeed(neighbors[first : first + self.rng.randint(2, 3)], pieces=self.rng.choice((1, 1, 2)))

    def retain(self, read_up_to: Callable[[int], int]) -> None:
        """Let retention remove tables of records that were read, from the front."""
        stored = self.rng.choice(list(self.segments.values()))
        while stored.tables and stored.tables[0][1] <= read_up_to(stored.id):
            stored.removed_below = stored.tables.pop(0)[1]

    def prune(self) -> None:
        """Prune sealed segments without records whose predecessors are pruned."""
        for number in sorted(self.segments):
            stored = self.segments[number]
            is_empty = stored.end is not None and max(stored.removed_below, stored.start) >= stored.end
            if is_empty and not any(p in self.segments for p in stored.predecessors):
                self.pruned[number] = (stored.start, stored.end or 0)
                del self.segments[number]

    def read(self, wanted: Range) -> list[Record]:
        """Return the records of the offsets, as the files have them now."""
        stored = self.segments.get(wanted.segment)
        if stored is None:
            raise Broken(f"{wanted} is to be read of a segment that is gone")
        if wanted.start < stored.removed_below:
            raise Broken(f"{wanted} is to be read, and what lies below {stored.removed_below} was removed")
        end = stored.written if stored.end is None else stored.end
        if wanted.end > end:
            raise Broken(f"{wanted} is to be read, and the segment ends at {end}")
        return stored.records[wanted.start - stored.start : wanted.end - stored.start]

    def everything_committed(self) -> None:
        for stored in self.segments.values():
            end = stored.written if stored.end is None else stored.end
            stored.committed = end
            if end > stored.table_end:
                stored.tables.append((stored.table_end, end))

    def _open(self, slots: KeyRange, start: int, predecessors: tuple[int, ...]) -> Stored:
        stored = Stored(self.next_segment, slots, start, predecessors, committed=start)
        self.segments[stored.id] = stored
        self.next_segment += 1
        return stored

    def _succeed(self, parents: Sequence[Stored], pieces: int) -> None:
        lo, hi = parents[0].slots.lo, parents[-1].slots.hi
        cuts = sorted(self.rng.sample(range(lo + 1, hi), min(pieces - 1, hi - lo - 1)))
        bounds = [lo, *cuts, hi]
        again: list[Record] = []
        for parent in parents:
            parent.end = self.rng.randint(parent.committed, parent.written)
            again += parent.records[parent.end - parent.start :]
            del parent.records[parent.end - parent.start :]
            parent.committed = parent.end
        for a, b in pairwise(bounds):
            above = [p for p in parents if p.slots.overlaps(KeyRange(a, b))]
            child = self._open(KeyRange(a, b), max(p.end or 0 for p in above), tuple(p.id for p in above))
            child.records = [record for record in again if a <= record[0] < b]
            for parent in above:
                parent.successors = (*parent.successors, child.id)


Plan = Callable[["Query", Frontier, Frontier], list[tuple[Range, ...]]]


def plan_by_offsets(query: "Query", start: Frontier, end: Frontier) -> list[tuple[Range, ...]]:
    """Plan as the stream does."""
    found = between(query.source.lineage(), start, end)
    query.alarms += len(found.lost)
    for number in found.lost:  # the lineage does not show whether pruned segments were read
        first, last = query.source.pruned[number]
        if start.get(number, first) < end.get(number, last):
            raise Broken(f"segment {number} was pruned before it was read")
    return cut(tasks(found.paths, query.task_records_min), 0, None)


def committed_ends(source: Source) -> Mapping[int, int]:
    """Return the ends that brokers report."""
    return {stored.id: stored.committed for stored in source.open()}


def table_ends(source: Source) -> Mapping[int, int]:
    """Return the ends that files show."""
    return {stored.id: stored.table_end for stored in source.open()}


def uncommitted_ends(source: Source) -> Mapping[int, int]:
    """A defect: up to the end of log files."""
    return {stored.id: stored.written for stored in source.open()}


def enter_early(patch: pytest.MonkeyPatch) -> None:
    """A defect: successors enter a frontier before their predecessors are read to their end."""
    is_finished, leave = FrontierWalk._is_finished, FrontierWalk._leave  # noqa: SLF001 - the defect replaces these

    def is_begun(self: FrontierWalk, segment: int) -> bool:
        return segment in self.offsets or is_finished(self, segment)

    def leave_if_finished(self: FrontierWalk, segment: int) -> None:
        if is_finished(self, segment):
            leave(self, segment)

    patch.setattr(FrontierWalk, "_is_finished", is_begun)
    patch.setattr(FrontierWalk, "_leave", leave_if_finished)


@dataclass
class Query:
    """Spark's part: offset log, commit log, concurrent tasks, and a sink that identifies a batch by its number."""

    source: Source
    plan: Plan = plan_by_offsets
    ends: Callable[[Source], Mapping[int, int]] = table_ends
    serial_max: int | None = 0
    task_records_min: int = 1
    limit: int | None = None
    offsets: list[str] = field(default_factory=list)
    """Ends of the planned batches, in order, as text; the first is the start of the query."""
    committed: int = 0
    """Number of batches in the sink."""
    copy: list[Record] = field(default_factory=list)
    alarms: int = 0
    attempts: dict[int, tuple[object, object]] = field(default_factory=dict)
    """Number of a batch -> partitions and records of its first attempt."""

    def trigger(self, rng: random.Random, *, dies: bool = False) -> bool:
        """Run one micro-batch, or the one that was planned before; return whether there was anything to do.

        ``dies``: the driver is killed after its offset was written, perhaps in the middle of its tasks.
        """
        if not self.offsets:
            self.offsets.append(written(beginning(self.source.lineage(), {})))
        if self.committed == len(self.offsets) - 1:
            start = frontier(self.offsets[-1])
            limit = None if self.limit is None else RecordLimit(self.limit)
            end = advanced(self.source.lineage(), start, self.ends(self.source), limit, self.serial_max)
            if written(end) == self.offsets[-1]:
                return False
            self.offsets.append(written(end))
        if dies and rng.random() < 0.5:
            return True
        partitions = self.plan(self, *map(frontier, self.offsets[-2:]))
        given = [[record for part in task for record in self.source.read(part)] for task in partitions]
        first = self.attempts.setdefault(self.committed, (partitions, given))
        if first != (partitions, given):
            raise Broken(f"batch {self.committed} is {partitions} when it is repeated, and was {first[0]}")
        if dies:
            return True
        self.copy += together(rng, given)
        self.committed += 1
        return True

    def read_up_to(self, segment: int) -> int:
        """Frontier below which this query reads nothing again."""
        return read_up_to(self.source, frontier(self.offsets[self.committed]) if self.committed else {}, segment)

    def check(self) -> None:
        check_copy(self.copy, self.source.sent)


def read_up_to(source: Source, done: Frontier, segment: int) -> int:
    """Return the offset below which a query that finished a frontier reads nothing again."""
    if segment in done:
        return done[segment]
    return 2**63 if segment in source.lineage().ancestors(done) else 0


def check_copy(copy: Iterable[Record], sent: Mapping[int, int]) -> None:
    """Assert that the copy holds every record once, and those of each key in order. Raises Broken."""
    following: dict[int, int] = defaultdict(int)
    for key, number in copy:
        if number != following[key]:
            raise Broken(f"record {number} of key {key} comes where {following[key]} is due")
        following[key] += 1
    if dict(following) != {key: count for key, count in sent.items() if count}:
        raise Broken(f"the copy has {dict(following)} of {dict(sent)}")


def written(place: Frontier) -> str:
    return json.dumps({str(segment): place[segment] for segment in sorted(place)})


def frontier(text: str) -> dict[int, int]:
    return {int(segment): offset for segment, offset in json.loads(text).items()}


def together(rng: random.Random, given: Sequence[Sequence[Record]]) -> list[Record]:
    waiting = [list(reversed(records)) for records in given if records]
    made = []
    while waiting:
        task = rng.choice(waiting)
        made.append(task.pop())
        if not task:
            waiting.remove(task)
    return made


HAPPENINGS: tuple[str, ...] = (
    *("publish",) * 8,
    *("commit",) * 5,
    *("convert",) * 4,
    *("compact",) * 3,
    *("fail_over", "split", "merge", "retain"),
)


def run(seed: int, steps: int = 160, **broken: object) -> Query:
    """Play one history, and check the copy at its end. Raises Broken."""
    rng = random.Random(seed)
    source = Source(rng)
    options: dict[str, object] = {
        "ends": rng.choice((committed_ends, table_ends)),
        "serial_max": rng.choice((None, 0, 5, 40)),
        "task_records_min": rng.choice((1, 10, 1_000)),
        "limit": rng.choice((None, 1, 7, 50)),
    }
    query = Query(source, **{**options, **broken})  # type: ignore[arg-type]
    down = 0
    for _ in range(steps):
        happening = rng.choice((*HAPPENINGS, *("trigger",) * 4, *("dies",) * 3, "prune"))
        down = max(0, down - 1)
        if happening in ("trigger", "dies"):
            if not down:
                query.trigger(rng, dies=happening == "dies")
                down = rng.randrange(20) if happening == "dies" else 0
        elif happening == "retain":
            source.retain(query.read_up_to)
        else:
            getattr(source, happening)()
    source.everything_committed()
    for _ in range(BATCHES_LEFT_MAX):
        if not query.trigger(rng):
            break
    else:
        raise Broken("the query does not come to an end")
    query.check()
    return query
