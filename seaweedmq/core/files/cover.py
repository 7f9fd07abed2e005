"""Which files hold which offsets of a segment: Parquet first, logs for the rest. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from seaweedmq.errors import Unavailable
from seaweedmq.model.files import FileKind, SegmentFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Offsets ``[start, end)`` and where they are: in one table, or in one or more of some logs.

    Where a log ends only its content tells; ``logs`` are all that begin before ``end`` and may hold part of the piece.
    """

    start: int
    end: int
    table: SegmentFile | None = None
    logs: tuple[SegmentFile, ...] = ()
    """By base offset; see :func:`log_at`."""


def cover(files: Sequence[SegmentFile], start: int, end: int) -> tuple[Piece, ...]:
    """Cut ``[start, end)`` into pieces, in order, without gap or overlap.

    Of two tables at one position the one that reaches further is taken. A piece may have no file at all.
    """
    tables = [f for f in files if f.kind is FileKind.TABLE]
    logs = [f for f in files if f.kind is FileKind.LOG]
    pieces: list[Piece] = []
    position = start
    while position < end:
        here = [t for t in tables if t.base_offset <= position < _end(t)]
        if here:
            table = max(here, key=_end)
            pieces.append(Piece(start=position, end=min(_end(table), end), table=table))
        else:
            until = min((t.base_offset for t in tables if position < t.base_offset < end), default=end)
            pieces.append(Piece(start=position, end=until, logs=_logs_for(logs, until)))
        position = pieces[-1].end
    return tuple(pieces)


def log_at(logs: Sequence[SegmentFile], position: int, passed: set[str]) -> SegmentFile | None:
    """The log to look for ``position`` in: it begins closest below, and was not looked through before."""
    usable = (f for f in logs if f.base_offset <= position and f.path not in passed)
    return max(usable, key=lambda f: (f.base_offset, f.size_bytes, f.path), default=None)


def covered_up_to(tables: Iterable[SegmentFile], position: int) -> int:
    """End of the stretch from ``position`` on that tables hold without gap; ``position`` if none does."""
    return max(map(_end, _stretch(tables, position)), default=position)


def covered_since(base: int, end: int, tables: Iterable[SegmentFile]) -> int | None:
    """When tables came to hold all of ``[base, end)``: the age of the youngest of them; None if they do not."""
    since_us, position = 0, base
    for table in _stretch(tables, base):
        if position >= end:
            break
        position = _end(table)
        since_us = max(since_us, table.modified_us)
    return since_us if position >= end else None


def _stretch(tables: Iterable[SegmentFile], position: int) -> Iterator[SegmentFile]:
    """The tables that hold what follows ``position`` without gap, in order; each reaches further."""
    for table in sorted(tables, key=lambda t: t.base_offset):
        if table.base_offset <= position < _end(table):
            position = _end(table)
            yield table


def uncovered(tables: Iterable[SegmentFile], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of ``[start, end)`` that no table holds."""
    for table in sorted(tables, key=lambda t: t.base_offset):
        if table.base_offset >= end:
            break
        if start < table.base_offset:
            yield start, table.base_offset
        start = max(start, _end(table))
    if start < end:
        yield start, end


def refuse_overlap(tables: Iterable[SegmentFile], base: int, end: int) -> None:
    """Make sure that a new table of offsets ``[base, end)`` has no record that another one of the segment has.

    Plain Parquet readers take whatever lies in the table folder: they would see such a record twice.

    Raises:
        Unavailable: another converter was faster.
    """
    for table in tables:
        if table.base_offset < end and base < _end(table):
            raise Unavailable(
                f"offsets [{base}, {end}) were converted by another process meanwhile: {table.path}; "
                "convert again, and what it holds is left out"
            )


def _logs_for(logs: Sequence[SegmentFile], until: int) -> tuple[SegmentFile, ...]:
    return tuple(sorted((f for f in logs if f.base_offset < until), key=lambda f: (f.base_offset, f.path)))


def _end(table: SegmentFile) -> int:
    return table.end_offset or 0
