"""Which tables of a topic count, and what a change of them means. Pure.

Tables of a segment that overlap hold identical records: a compacted one beside those it replaces, or what converters
made that did not see each other. A list of whole files, as Delta and Iceberg keep it, is exact only if no two of them
overlap.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

TABLE_GRACE_S = 3_600.0
"""How long tables keep their other name, and so how far back versions can be read: ``BrokerConfig.table_grace_s``."""
CHECKPOINT_COMMITS = 50
"""A reader of the log opens at most so many files beside a checkpoint ..."""
CHECKPOINT_BYTES = 4 * 1024 * 1024
"""... or reads about so much of them."""


class TableSpan(NamedTuple):
    """A table, known by what it holds: offsets ``[base, end)`` of a segment."""

    segment: int
    base: int
    end: int


@dataclass(frozen=True, slots=True)
class LiveTables:
    """What of some tables counts."""

    spans: frozenset[TableSpan]
    """No two of them overlap."""
    missing: tuple[TableSpan, ...]
    """What only tables hold that do not count, since each overlaps others in part."""


def select_live(spans: Iterable[TableSpan]) -> LiveTables:
    """Of each segment the tables that hold the most records without holding one twice; of equals the fewest."""
    chosen: list[TableSpan] = []
    missing: list[TableSpan] = []
    for group in _overlapping(sorted(spans)):
        if len(group) == 1:
            chosen += group
            continue
        best = _best(group)
        chosen += best
        position = group[0].base
        for span in (*best, TableSpan(group[0].segment, max(s.end for s in group), 0)):
            if span.base > position:
                missing.append(TableSpan(span.segment, position, span.base))
            position = max(position, span.end)
    return LiveTables(frozenset(chosen), tuple(missing))


def around(changed: Iterable[TableSpan], spans: Iterable[TableSpan]) -> list[TableSpan]:
    """Those of the spans that ``select_live`` may decide otherwise about, once the changed ones came or went: they hang
    together with them by overlaps. May be more, of their segments, never less."""
    hulls: dict[int, tuple[int, int]] = {}
    for span in changed:
        low, high = hulls.get(span.segment, (span.base, span.end))
        hulls[span.segment] = min(low, span.base), max(high, span.end)
    by_segment: dict[int, list[TableSpan]] = {segment: [] for segment in hulls}
    for span in spans:
        if span[0] in by_segment:
            by_segment[span[0]].append(span)
    found: list[TableSpan] = []
    for segment, (low, high) in hulls.items():
        while True:
            near = [s for s in by_segment[segment] if s[1] < high and low < s[2]]
            wider = min((s.base for s in near), default=low), max((s.end for s in near), default=high)
            if low <= wider[0] and wider[1] <= high:
                break
            low, high = min(low, wider[0]), max(high, wider[1])
        found += near
    return found


def _overlapping(ordered: Sequence[TableSpan]) -> Iterator[list[TableSpan]]:
    """Tables that hang together by overlaps; most are alone."""
    group: list[TableSpan] = []
    end = 0
    for span in ordered:
        if group and (span.segment != group[0].segment or span.base >= end):
            yield group
            group, end = [], 0
        group.append(span)
        end = max(end, span.end)
    if group:
        yield group


def _best(group: Iterable[TableSpan]) -> list[TableSpan]:
    """Weighted interval scheduling, as in Kleinberg and Tardos, "Algorithm Design", 6.1."""
    ordered = sorted(group, key=lambda s: (s.end, s.base))
    ends = [s.end for s in ordered]
    worth: list[tuple[int, int]] = [(0, 0)]
    """Of the first so many: most records, and by how few tables, negative."""
    before: list[int] = []
    """How many of them end before each one begins."""
    for n, span in enumerate(ordered):
        before.append(bisect_right(ends, span.base, 0, n))
        records, files = worth[before[n]]
        worth.append(max(worth[n], (records + span.end - span.base, files - 1)))
    chosen: list[TableSpan] = []
    n = len(ordered)
    while n:
        if worth[n] == worth[n - 1]:
            n -= 1
        else:
            chosen.append(ordered[n - 1])
            n = before[n - 1]
    return chosen[::-1]


class Operation(StrEnum):
    """What a version of the log did, in the words that Delta's own writers use where they have one."""

    CREATE = "CREATE TABLE"
    WRITE = "WRITE"
    """Records came."""
    DELETE = "DELETE"
    """Records went, by retention or by hand."""
    OPTIMIZE = "OPTIMIZE"
    """The same records in other tables."""
    COLUMNS = "ADD COLUMNS"
    """The topic got its schema."""


class TableChange(NamedTuple):
    """From one set of tables to another."""

    added: tuple[TableSpan, ...]
    removed: tuple[TableSpan, ...]
    come: frozenset[TableSpan]
    """Those of the added that bring records; the others hold what the removed held."""
    gone: frozenset[TableSpan]
    """Those of the removed whose records go."""

    @property
    def operation(self) -> Operation:
        if self.come:
            return Operation.WRITE
        if self.gone:
            return Operation.DELETE
        return Operation.OPTIMIZE if self.added or self.removed else Operation.COLUMNS


def change(before: Collection[TableSpan], after: Collection[TableSpan]) -> TableChange:
    """What leads from the tables that counted to those that count: neither has two that overlap, so what an added one
    shares records with is removed."""
    old, new = set(before), set(after)
    added, removed = tuple(sorted(new - old)), tuple(sorted(old - new))
    return TableChange(
        added=added,
        removed=removed,
        come=frozenset(_not_within(added, removed)),
        gone=frozenset(_not_within(removed, added)),
    )


def _not_within(spans: Sequence[TableSpan], others: Sequence[TableSpan]) -> Iterator[TableSpan]:
    """The spans some of whose records none of the others has; both in order, and each without overlaps."""
    at = 0
    for span in spans:
        while at < len(others) and (others[at].segment, others[at].end) <= (span.segment, span.base):
            at += 1
        position, n = span.base, at
        while n < len(others) and others[n].segment == span.segment and others[n].base <= position < span.end:
            position = others[n].end
            n += 1
        if position < span.end:
            yield span


def is_checkpoint_due(commits: int, size_bytes: int, age_s: float, grace_s: float) -> bool:
    """Given how many commits there are since the last checkpoint, and their size.

    Args:
        age_s: of the last checkpoint, or of the log if there is none.
        grace_s: how long versions are kept. Only what lies before a checkpoint of that age goes: without one, the log
            of a topic that is seldom written would keep ``CHECKPOINT_COMMITS`` versions that nobody is served.
    """
    if commits <= 0:
        return False
    return commits >= CHECKPOINT_COMMITS or size_bytes >= CHECKPOINT_BYTES or age_s >= grace_s


def oldest_needed(commits_us: Sequence[tuple[int, int]], checkpoints: Iterable[int], horizon_us: int) -> int:
    """The version below which no file of the log is needed: the last checkpoint from which every version can be read
    that was the newest one at ``horizon_us`` or later; 0 if there is none.

    Args:
        commits_us: version and time of each commit, in order. A clock that was set back makes none younger.
    """
    times = accumulate((us for _, us in commits_us), max)
    current = max((v for (v, _), us in zip(commits_us, times, strict=True) if us <= horizon_us), default=0)
    return max((v for v in checkpoints if v <= current), default=0)
