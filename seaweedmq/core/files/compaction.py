"""Selection of a segment's tables to merge into fewer, larger ones, by file names and sizes alone.

Readers open files one after another, and each file costs them the time to read half a megabyte. A merge makes one table
of adjacent tables of one segment and one kind of columns. So offsets stay in order, and no record is ever in two live
tables. Large tables are left alone: a repeated compaction finds nothing to do.

A table with records on both sides of a low watermark is rewritten without the deleted ones. The new table lies within
the old one and ends where it ends, as does a small table within the merged one that replaces it. Their dates tell the
two cases apart (:func:`is_better`): a rewritten table is younger than its original, a merged one never older than the
tables it replaces. So processes that know different low watermarks never delete both versions.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Final

from seaweedmq.model.config import MIB, US_PER_S
from seaweedmq.model.files import FileKind, SegmentFile

TARGET_BYTES: Final = 256 * MIB
RETAINED_TABLES_MIN: Final = 8
AUTO_TARGET_BYTES: Final = 128 * MIB
"""Target size of a merge by a broker's worker, which equals the size of one conversion."""
AUTO_TABLES_MIN: Final = 8
"""Least adjacent small tables that are worth a merge: fewer are left until more follow."""
AUTO_TABLES_MAX: Final = 64
"""Number of small tables that are merged even if most of the bytes come from one of them."""
AUTO_MERGE_TABLES_MAX: Final = 1_000
MERGE_TABLES_MAX: Final = 10_000
"""Most tables that are merged into one; a larger merge makes several tables."""


def target_table_bytes(target_bytes: int, retention_bytes: int | None) -> int:
    """Return the target table size of a topic with a size limit: retention deletes whole tables, and needs several."""
    return (
        target_bytes if retention_bytes is None else max(1, min(target_bytes, retention_bytes // RETAINED_TABLES_MIN))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerge:
    """A merge of a segment's tables into one, of offsets ``[base_offset, end_offset)``."""

    tables: tuple[SegmentFile, ...]
    """Tables in order of offsets, each from the end of the one before. At least two, unless the low watermark lies in
    the first."""
    low_watermark: int = 0
    """Offset below which records are deleted and left out."""

    def __post_init__(self) -> None:
        if any(_end(one) != other.base_offset for one, other in pairwise(self.tables)):
            raise AssertionError("a merge needs tables that follow one another without gap")
        if self.low_watermark >= _end(self.tables[0]) or (len(self.tables) < 2 and not self.leaves_out):
            raise AssertionError("a merge needs several tables, or a first one with deleted records")

    @property
    def base_offset(self) -> int:
        """First offset of the new table."""
        return max(self.tables[0].base_offset, self.low_watermark)

    @property
    def leaves_out(self) -> int:
        """Number of deleted records at the beginning of the first table."""
        return self.base_offset - self.tables[0].base_offset

    @property
    def modified_us(self) -> int:
        """Date of the new table: that of its youngest record, and later than the original's if records are left out."""
        youngest_us = max(table.modified_us for table in self.tables)
        return youngest_us + US_PER_S if self.leaves_out else youngest_us

    @property
    def end_offset(self) -> int:
        """Offset after the last record of the new table."""
        return _end(self.tables[-1])

    @property
    def size_bytes(self) -> int:
        """Total size of the merged tables."""
        return sum(t.size_bytes for t in self.tables)

    def __str__(self) -> str:
        first = self.tables[0]
        return f"{first.topic}#{first.segment} [{self.base_offset}, {self.end_offset})"


def is_better(one: SegmentFile, other: SegmentFile) -> bool:
    """Whether the first of two tables of a segment replaces the second, provided that it has all its undeleted records.

    This is a total order. Tables are deleted only because of better ones, so some table with the records always stays.
    """
    return (_end(one), one.modified_us, -one.base_offset) > (_end(other), other.modified_us, -other.base_offset)


def superseded(files: Iterable[SegmentFile], low_watermark: int = 0) -> list[SegmentFile]:
    """Return the tables of one segment whose records are all in another one.

    They remain from a merge that was interrupted before it removed them, or from converters that did not see each
    other. Records below the low watermark do not count, except in tables that have no others.
    """
    found: list[SegmentFile] = []
    reached = 0
    same_end: dict[int, list[SegmentFile]] = {}
    tables = {table.path: _begin(table, low_watermark) for table in _tables(files)}
    for table in sorted(_tables(files), key=lambda t: (tables[t.path], -_end(t), t.base_offset)):
        beside = same_end.setdefault(_end(table), [])
        beside.append(table)
        if _end(table) < reached:
            found.append(table)
        reached = max(reached, _end(table))
    known = {table.path for table in found}
    for beside in same_end.values():
        for table in beside if len(beside) > 1 else ():
            is_held = any(is_better(o, table) and o.base_offset <= tables[table.path] for o in beside)
            if is_held and table.path not in known:
                found.append(table)
    return sorted(found, key=lambda t: (t.base_offset, -_end(t)))


def containing(table: SegmentFile, files: Iterable[SegmentFile]) -> SegmentFile | None:
    """Return another table that has all records of this one and replaces it, None if there is none."""
    for other in _tables(files):
        if other.base_offset <= table.base_offset and _end(table) <= _end(other) and is_better(other, table):
            return other
    return None


def partly_deleted(files: Iterable[SegmentFile], low_watermark: int) -> TableMerge | None:
    """Return the rewrite of the table with records on both sides of a segment's low watermark, None if there is none.

    Tables that overlap others are left to the process that merges them.
    """
    tables = _tables(files)
    gone = {table.path for table in superseded(tables, low_watermark)}
    reaching = [t for t in tables if t.path not in gone and low_watermark < _end(t)]
    for table in reaching:
        if table.base_offset < low_watermark:
            is_alone = all(t is table or _end(table) <= t.base_offset for t in reaching)
            return TableMerge(tables=(table,), low_watermark=low_watermark) if is_alone else None
    return None


def has_log_below(files: Iterable[SegmentFile], offset: int) -> bool:
    """Whether a log file begins below an offset. A conversion would restore its records below as a table."""
    return any(f.kind is FileKind.LOG and f.base_offset < offset for f in files)


def merges(
    files: Iterable[SegmentFile], target_bytes: int, kind_of: Callable[[SegmentFile], object] = lambda table: None
) -> list[TableMerge]:
    """Return the merges of one segment's files for tables of about ``target_bytes``, in order of offsets.

    A sequence of small tables is merged into as few tables as possible, of about equal size, so that they can be made
    in parallel. Tables of different ``kind_of`` are not merged, and those of kind NotImplemented are left alone.
    """
    found: list[TableMerge] = []
    for run in _runs(files, target_bytes / 2, kind_of):
        parts = max(math.ceil(_size(run) / target_bytes), math.ceil(len(run) / MERGE_TABLES_MAX))
        found += [TableMerge(tables=tuple(part)) for part in _even(run, parts) if len(part) > 1]
    return found


def due_merge(files: Iterable[SegmentFile], target_bytes: int = AUTO_TARGET_BYTES) -> TableMerge | None:
    """Return the background merge of one segment's tables, None if there are too few small ones.

    No merged table is larger than all others together, so its size at least doubles whenever a record is rewritten. A
    stream of small tables therefore costs a few rewrites per record, not one per table.
    """
    for run in _runs(files, target_bytes / 2, lambda table: None):
        for first in range(min(len(run), AUTO_TABLES_MAX)):
            taken = _worthwhile_prefix(run, first, target_bytes)
            if len(taken) >= AUTO_TABLES_MIN:
                return TableMerge(tables=tuple(taken))
        if len(run) >= AUTO_TABLES_MAX:
            sums = accumulate(t.size_bytes for t in run)
            taken = [t for t, sum_bytes in zip(run, sums, strict=True) if sum_bytes <= target_bytes]
            return TableMerge(tables=tuple(taken[:AUTO_TABLES_MAX]))
    return None


def _worthwhile_prefix(run: Sequence[SegmentFile], first: int, target_bytes: int) -> Sequence[SegmentFile]:
    """Return the longest sequence of tables from ``first`` on that is worth a merge."""
    size = largest = worth = 0
    for count, table in enumerate(run[first : first + AUTO_MERGE_TABLES_MAX], start=1):
        size += table.size_bytes
        largest = max(largest, table.size_bytes)
        if size > target_bytes:
            break
        if 2 * largest <= size:
            worth = count
    return run[first : first + worth]


def _runs(
    files: Iterable[SegmentFile], small_bytes: float, kind_of: Callable[[SegmentFile], object]
) -> Iterable[list[SegmentFile]]:
    """Yield the sequences of adjacent small tables of one kind, leaving out tables that overlap others.

    A superseded table will be removed. A table made from a partly overlapping one would overlap the other one as well.
    """
    tables = _tables(files)
    gone = {table.path for table in superseded(tables)}
    ordered = sorted((t for t in tables if t.path not in gone), key=lambda t: t.base_offset)
    assert len({t.segment for t in ordered}) <= 1, "the tables belong to several segments: pass those of one segment"
    overlapping = {t.path for pair in pairwise(ordered) if pair[1].base_offset < _end(pair[0]) for t in pair}
    small = [table for table in ordered if table.size_bytes < small_bytes and table.path not in overlapping]
    kinds = {table.path: kind_of(table) for table in small}
    run: list[SegmentFile] = []
    for table in ordered:
        is_next = bool(run) and table.base_offset == _end(run[-1])
        kind = kinds.get(table.path, NotImplemented)
        if run and not (is_next and kind is not NotImplemented and kind == kinds[run[-1].path]):
            yield run
            run = []
        if kind is not NotImplemented:
            run.append(table)
    if run:
        yield run


def _even(run: Sequence[SegmentFile], parts: int) -> list[list[SegmentFile]]:
    """Divide the tables into ``parts`` sequences of about equal size."""
    share = _size(run) / parts
    before = 0
    numbered = []
    for table in run:
        numbered.append((min(parts - 1, int((before + table.size_bytes / 2) / share)) if share else 0, table))
        before += table.size_bytes
    return [[table for _, table in part] for _, part in groupby(numbered, key=lambda entry: entry[0])]


def _tables(files: Iterable[SegmentFile]) -> list[SegmentFile]:
    return [f for f in files if f.kind is FileKind.TABLE]


def _size(tables: Iterable[SegmentFile]) -> int:
    return sum(t.size_bytes for t in tables)


def _end(table: SegmentFile) -> int:
    return table.end_offset or 0


def _begin(table: SegmentFile, low_watermark: int) -> int:
    """Return the offset of the first undeleted record, in a table that has one."""
    return max(table.base_offset, low_watermark) if low_watermark < _end(table) else table.base_offset
