"""The mapping from a segment's offsets to the files that hold them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from seaweedmq.errors import Unavailable
from seaweedmq.model.files import FileKind, SegmentFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverPiece:
    """Offsets ``[start, end)`` and the table that holds them, None if no table does."""

    start: int
    end: int
    table: SegmentFile | None


def file_at(files: Iterable[SegmentFile], position: int, passed: Collection[str]) -> SegmentFile | None:
    """Return the file to read ``position`` from, None if no remaining file may hold it.

    A log is preferred: it holds the original bytes, while a table must be decoded and encoded again. Among logs, the
    one that begins closest below wins, among tables the one that reaches furthest. ``passed`` has the paths of logs
    that turned out not to hold the position: only the content of a log shows where it ends.
    """
    begun = [f for f in files if f.base_offset <= position and f.path not in passed]
    logs = (f for f in begun if f.kind is FileKind.LOG)
    log = max(logs, key=lambda f: (f.base_offset, f.size_bytes, f.path), default=None)
    tables = (f for f in begun if f.kind is FileKind.TABLE and position < _end(f))
    return log or max(tables, key=_end, default=None)


def cover(files: Sequence[SegmentFile], start: int, end: int) -> tuple[CoverPiece, ...]:
    """Divide ``[start, end)`` into ranges with and without a table, in order, without gap or overlap.

    If two tables hold a position, the one that reaches further is taken.
    """
    tables = [f for f in files if f.kind is FileKind.TABLE]
    pieces: list[CoverPiece] = []
    position = start
    while position < end:
        here = [t for t in tables if t.base_offset <= position < _end(t)]
        if here:
            table = max(here, key=_end)
            pieces.append(CoverPiece(start=position, end=min(_end(table), end), table=table))
        else:
            until = min((t.base_offset for t in tables if position < t.base_offset < end), default=end)
            pieces.append(CoverPiece(start=position, end=until, table=None))
        position = pieces[-1].end
    return tuple(pieces)


def covered_up_to(tables: Iterable[SegmentFile], position: int) -> int:
    """Return the end of the range from ``position`` on that tables hold without gap; ``position`` if none does."""
    return max(map(_end, _contiguous(tables, position)), default=position)


def covered_since(base: int, end: int, tables: Iterable[SegmentFile]) -> int | None:
    """Return the time since when tables hold all of ``[base, end)``: the youngest one's date; None if they do not."""
    since_us, position = 0, base
    for table in _contiguous(tables, base):
        if position >= end:
            break
        position = _end(table)
        since_us = max(since_us, table.modified_us)
    return since_us if position >= end else None


def _contiguous(tables: Iterable[SegmentFile], position: int) -> Iterator[SegmentFile]:
    """Yield the tables that hold the offsets after ``position`` without gap, in order; each reaches further."""
    for table in sorted(tables, key=lambda t: t.base_offset):
        if table.base_offset <= position < _end(table):
            position = _end(table)
            yield table


def uncovered(tables: Iterable[SegmentFile], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``[start, end)`` that no table holds."""
    for table in sorted(tables, key=lambda t: t.base_offset):
        if table.base_offset >= end:
            break
        if start < table.base_offset:
            yield start, table.base_offset
        start = max(start, _end(table))
    if start < end:
        yield start, end


def check_no_overlap(
    tables: Iterable[SegmentFile], base: int, end: int, replaced: Collection[SegmentFile] = ()
) -> None:
    """Raise Unavailable if a new table of offsets ``[base, end)`` repeats a record of the segment's other tables.

    Another converter was faster then, or a ``replaced`` table was removed. Tables that it was made from and replaces
    are exempt. Plain Parquet readers take every file in the table folder, and would see such a record twice.
    """
    missing = {table.path for table in replaced}
    for table in tables:
        if table.path in missing:
            missing.remove(table.path)
        elif any(r.base_offset <= table.base_offset and _end(table) <= _end(r) for r in replaced):
            continue  # a replaced table had already superseded it
        elif table.base_offset < end and base < _end(table):
            raise Unavailable(
                f"offsets [{base}, {end}) were {'merged' if replaced else 'converted'} by another process meanwhile "
                f"({table.path}): {'plan again' if replaced else 'convert again'}, leaving out what it holds"
            )
    if missing:
        raise Unavailable(
            f"{min(missing)} was removed meanwhile, by retention or a merge of another process: plan again"
        )


def _end(table: SegmentFile) -> int:
    return table.end_offset or 0
