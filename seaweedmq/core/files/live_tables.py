"""Selection of a topic's live tables, and the classification of changes between two selections.

Overlapping tables of a segment hold identical records: a merged table and those it replaces, or tables from converters
that did not see each other. A list of whole files, as Delta and Iceberg keep it, is exact only if no two of them
overlap.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

TABLE_GRACE_S = 3_600.0
"""Time for which superseded tables keep their link, which limits time travel: ``BrokerConfig.table_grace_s``."""
CHECKPOINT_COMMITS = 50
"""Most files of the log that a reader opens beside a checkpoint."""
CHECKPOINT_BYTES = 4 * 1024 * 1024
"""Approximate bytes of the log that a reader reads beside a checkpoint."""


class TableSpan(NamedTuple):
    """A table, identified by its offsets ``[base, end)`` of a segment."""

    segment: int
    base: int
    end: int


@dataclass(frozen=True, slots=True)
class LiveTables:
    """The live tables of a set of tables."""

    spans: frozenset[TableSpan]
    """Live tables. No two of them overlap."""
    missing: tuple[TableSpan, ...]
    """Offsets that only tables hold that are not live, since each partly overlaps others."""


def select_live(spans: Iterable[TableSpan]) -> LiveTables:
    """Return, for each segment, the tables with the most records without overlap; among equals the fewest tables."""
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
    """Return the spans that ``select_live`` may judge differently after the changed ones were added or removed.

    These are connected to the changed ones by overlaps. The result may have more spans of their segments, never fewer.
    """
    bounds: dict[int, tuple[int, int]] = {}
    for span in changed:
        low, high = bounds.get(span.segment, (span.base, span.end))
        bounds[span.segment] = min(low, span.base), max(high, span.end)
    by_segment: dict[int, list[TableSpan]] = {segment: [] for segment in bounds}
    for span in spans:
        if span[0] in by_segment:
            by_segment[span[0]].append(span)
    found: list[TableSpan] = []
    for segment, (low, high) in bounds.items():
        while True:
            near = [s for s in by_segment[segment] if s[1] < high and low < s[2]]
            wider = min((s.base for s in near), default=low), max((s.end for s in near), default=high)
            if low <= wider[0] and wider[1] <= high:
                break
            low, high = min(low, wider[0]), max(high, wider[1])
        found += near
    return found


def _overlapping(ordered: Sequence[TableSpan]) -> Iterator[list[TableSpan]]:
    """Yield groups of tables that are connected by overlaps; most groups have one table."""
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
    """Select by weighted interval scheduling, as in Kleinberg and Tardos, "Algorithm Design", 6.1."""
    ordered = sorted(group, key=lambda s: (s.end, s.base))
    ends = [s.end for s in ordered]
    worth: list[tuple[int, int]] = [(0, 0)]
    """For each count of the first spans: most records without overlap, and the negated least number of tables for it.
    """
    before: list[int] = []
    """For each span, the number of earlier ones that end before it begins."""
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
    """The operation of a version of the log, in the words that Delta's own writers use where they have one."""

    CREATE = "CREATE TABLE"
    WRITE = "WRITE"
    """Records were added."""
    DELETE = "DELETE"
    """Records were removed, by retention or manually."""
    OPTIMIZE = "OPTIMIZE"
    """The same records are in other tables."""
    COLUMNS = "ADD COLUMNS"
    """The topic got its schema."""
    PROPERTIES = "SET TBLPROPERTIES"
    """The log's settings were corrected, as after an upgrade."""


class TableChange(NamedTuple):
    """The difference between two sets of live tables."""

    added: tuple[TableSpan, ...]
    removed: tuple[TableSpan, ...]
    come: frozenset[TableSpan]
    """The added tables that bring new records; the others hold records of removed tables."""
    gone: frozenset[TableSpan]
    """The removed tables with records that no added table holds."""

    @property
    def operation(self) -> Operation:
        """The operation that describes the change in the log."""
        if self.come:
            return Operation.WRITE
        if self.gone:
            return Operation.DELETE
        return Operation.OPTIMIZE if self.added or self.removed else Operation.COLUMNS


def change(before: Collection[TableSpan], after: Collection[TableSpan]) -> TableChange:
    """Return the change from one selection of live tables to another.

    Neither has overlapping tables, so every table that shares records with an added one is removed.
    """
    old, new = set(before), set(after)
    added, removed = tuple(sorted(new - old)), tuple(sorted(old - new))
    return TableChange(
        added=added,
        removed=removed,
        come=frozenset(_not_within(added, removed)),
        gone=frozenset(_not_within(removed, added)),
    )


def _not_within(spans: Sequence[TableSpan], others: Sequence[TableSpan]) -> Iterator[TableSpan]:
    """Yield the spans with records that none of the others has. Both are in order and without overlaps."""
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
    """Whether to write a checkpoint, given the commits since the last one, their total size, and its age or the log's.

    Versions are kept for ``grace_s``, and only those before a checkpoint of that age are removed. Otherwise a rarely
    written topic would keep up to ``CHECKPOINT_COMMITS`` versions that serve no reader.
    """
    if commits <= 0:
        return False
    return commits >= CHECKPOINT_COMMITS or size_bytes >= CHECKPOINT_BYTES or age_s >= grace_s


def oldest_needed(commits_us: Sequence[tuple[int, int]], checkpoints: Iterable[int], horizon_us: int) -> int:
    """Return the version below which no file of the log is needed, 0 if all are.

    It is the last checkpoint from which every version can be read that was the newest one at ``horizon_us`` or later.
    ``commits_us`` has version and time of each commit; a clock that was set back makes no commit younger.
    """
    times = accumulate((us for _, us in commits_us), max)
    current = max((v for (v, _), us in zip(commits_us, times, strict=True) if us <= horizon_us), default=0)
    return max((v for v in checkpoints if v <= current), default=0)
