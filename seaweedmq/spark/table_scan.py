"""Reading one Parquet table of a segment, a row group at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seaweedmq.errors import Corrupt
from seaweedmq.model.files import SegmentFile
from seaweedmq.spark.columns import TIMESTAMP, Assembler
from seaweedmq.spark.window import Span
from seaweedmq.storage.tables.footer import verify_footer

BATCH_RECORDS_MAX = 10_000
"""Spark's own default (spark.sql.execution.arrow.maxRecordsPerBatch); its setting does not reach a data source."""
BATCH_BYTES = 2 * 1024 * 1024
"""Fewer records a batch if they are large."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What the footer says about one row group."""

    index: int
    base_offset: int
    end_offset: int
    size_bytes: int
    """Compressed."""
    timestamps: tuple[int, int] | None
    """Lowest and highest, microseconds; None if there are no statistics."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """A batch for Spark, if there is any, and the offset up to which the piece is now read."""

    batch: pa.RecordBatch | None
    next_offset: int


def open_table(root: Path, file: SegmentFile) -> pq.ParquetFile:
    """The table, to be used as a context manager.

    Raises:
        FileNotFoundError: it was deleted. Corrupt: it is not the Parquet file its name promises.
    """
    assert file.end_offset is not None
    try:
        verify_footer(root / file.path, file.path)
        table = pq.ParquetFile(root / file.path, page_checksum_verification=True)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as e:
        raise Corrupt(f"{file.path} is not a readable Parquet file ({e}): restore it from a copy") from e
    if table.metadata.num_rows != file.end_offset - file.base_offset:
        table.close()
        raise Corrupt(
            f"{file.path} holds {table.metadata.num_rows} records where its name says "
            f"{file.end_offset - file.base_offset}: it was renamed or is not ours"
        )
    return table


def row_groups(file: SegmentFile, table: pq.ParquetFile) -> list[RowGroup]:
    """Offsets are contiguous in a table, so the counts of its row groups tell their offsets."""
    names = table.schema_arrow.names
    leaf = next((i for i in range(len(table.schema)) if table.schema.column(i).path == TIMESTAMP), None)
    if leaf is None:
        raise Corrupt(f"{file.path} has no column {TIMESTAMP} but {', '.join(names)}: it is not ours")
    groups = []
    base = file.base_offset
    for index in range(table.metadata.num_row_groups):
        group = table.metadata.row_group(index)
        statistics = group.column(leaf).statistics
        span = None
        if statistics is not None and statistics.has_min_max:
            span = (int(statistics.min_raw), int(statistics.max_raw))
        size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        groups.append(RowGroup(index, base, base + group.num_rows, size, span))
        base += group.num_rows
    return groups


def scan_table(
    root: Path, file: SegmentFile, start: int, end: int, timestamps: Span, assembler: Assembler
) -> Iterator[Scanned]:
    """Records of offsets ``[start, end)`` with timestamps in the span.

    Raises:
        FileNotFoundError: the table was deleted.
        Corrupt: it is damaged; the message names it.
    """
    with open_table(root, file) as table:
        _check_columns(file, table, assembler.sources)
        for group in row_groups(file, table):
            if group.end_offset <= start or group.base_offset >= end:
                continue
            if group.timestamps is not None and not timestamps.overlaps(*group.timestamps):
                continue
            exact = group.timestamps is not None and timestamps.contains(*group.timestamps)
            check = timestamps if timestamps.is_bounded and not exact else None
            try:
                yield from _scan_group(table, file, group, (start, end), check, assembler)
            except (pa.ArrowException, OSError) as e:
                raise Corrupt(
                    f"{file.path} is damaged in row group {group.index}, offsets {group.base_offset} to "
                    f"{group.end_offset} ({e}): restore it from a copy"
                ) from e


def _scan_group(
    table: pq.ParquetFile,
    file: SegmentFile,
    group: RowGroup,
    wanted: tuple[int, int],
    check: Span | None,
    assembler: Assembler,
) -> Iterator[Scanned]:
    sources = assembler.sources
    read = sources if check is None or TIMESTAMP in sources else (*sources, TIMESTAMP)
    for base, count, columns in _batches(table, group, _present(table, read)):
        start, stop = max(base, wanted[0]), min(base + count, wanted[1])
        if start >= stop:
            continue
        if stop - start < count:
            columns = {name: array.slice(start - base, stop - start) for name, array in columns.items()}
        mask = None if check is None else in_span(columns[TIMESTAMP], check)
        yield Scanned(assembler.batch(file.segment, start, stop - start, columns, mask), stop)


def _batches(
    table: pq.ParquetFile, group: RowGroup, sources: Sequence[str]
) -> Iterator[tuple[int, int, dict[str, pa.Array]]]:
    """Columns of a row group piece by piece: offset of the first record, number of records, columns by name."""
    base = group.base_offset
    count = group.end_offset - base
    if not sources:  # all that is asked for follows from the file's name
        for first in range(base, group.end_offset, BATCH_RECORDS_MAX):
            yield first, min(BATCH_RECORDS_MAX, group.end_offset - first), {}
        return
    size_bytes = table.metadata.row_group(group.index).total_byte_size
    rows = max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES * count // max(1, size_bytes)))
    for batch in table.iter_batches(rows, row_groups=[group.index], columns=list(sources), use_threads=False):
        yield base, batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True))
        base += batch.num_rows


def in_span(column: pa.Array, span: Span) -> pa.Array:
    """Mask of the timestamps (microseconds) in the span."""
    values = column.view(pa.int64())
    masks = []
    if span.lo is not None:
        masks.append(pc.greater_equal(values, pa.scalar(span.lo, pa.int64())))
    if span.hi is not None:
        masks.append(pc.less(values, pa.scalar(span.hi, pa.int64())))
    return masks[0] if len(masks) == 1 else pc.and_(masks[0], masks[1])


def _is_plain(names: Sequence[str]) -> bool:
    """Whether a table of these columns has records without a schema. They may be in a topic that has one."""
    return "_value" in names


def _present(table: pq.ParquetFile, sources: Sequence[str]) -> list[str]:
    return [name for name in sources if name in table.schema_arrow.names]


def _check_columns(file: SegmentFile, table: pq.ParquetFile, sources: Sequence[str]) -> None:
    names = table.schema_arrow.names
    missing = [s for s in sources if s not in names]
    if missing and not _is_plain(names):
        raise Corrupt(f"{file.path} has no column {missing[0]!r} but {', '.join(names)}: it is not of this topic")
