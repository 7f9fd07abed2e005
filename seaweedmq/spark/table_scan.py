"""Reader of one Parquet table of a segment, one row group at a time."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seaweedmq.model.config import MIB
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.spark.columns import TIMESTAMP, Assembler
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.store.file_handles import open_input
from seaweedmq.storage.tables.opener import open_table, table_error

BATCH_RECORDS_MAX = 10_000
"""Spark's default of ``spark.sql.execution.arrow.maxRecordsPerBatch``; the setting does not reach a data source."""
BATCH_BYTES = 2 * MIB
"""Target size of a batch in bytes: batches of large records have fewer."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group, as the footer describes it."""

    index: int
    base_offset: int
    end_offset: int
    size_bytes: int
    """Compressed size."""
    timestamps: tuple[int, int] | None
    """Lowest and highest timestamp in microseconds; None without statistics."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """A batch for Spark, if any, and the offset up to which the piece has been read."""

    batch: pa.RecordBatch | None
    next_offset: int


@contextmanager
def opened(root: Path, file: SegmentFile, topic: Topic) -> Iterator[pq.ParquetFile]:
    """Yield an open table; raises like ``opener.open_table``."""
    with closing(open_input(root, file)) as source, open_table(source, file, topic) as table:
        yield table


def row_groups(file: SegmentFile, table: pq.ParquetFile) -> list[RowGroup]:
    """Return the row groups with offsets, which follow from their row counts: offsets are contiguous in a table."""
    leaf = next(i for i in range(len(table.schema)) if table.schema.column(i).path == TIMESTAMP)
    groups = []
    base = file.base_offset
    for index in range(table.metadata.num_row_groups):
        group = table.metadata.row_group(index)
        statistics = group.column(leaf).statistics
        interval = None
        if statistics is not None and statistics.has_min_max:
            interval = (int(statistics.min_raw), int(statistics.max_raw))
        size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        groups.append(RowGroup(index, base, base + group.num_rows, size, interval))
        base += group.num_rows
    return groups


def scan_table(
    table: pq.ParquetFile, file: SegmentFile, start: int, end: int, timestamps: Interval, assembler: Assembler
) -> Iterator[Scanned]:
    """Yield the records of an open table with offsets ``[start, end)`` and timestamps in the interval.

    Raises:
        NotFound: If the table was deleted, and the file system does not keep open files.
        Corrupt: If the table is damaged; the message names it.
    """
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
            where = f" in row group {group.index}, offsets {group.base_offset} to {group.end_offset}"
            raise table_error(file, e, where) from e


def _scan_group(
    table: pq.ParquetFile,
    file: SegmentFile,
    group: RowGroup,
    wanted: tuple[int, int],
    check: Interval | None,
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
        mask = None if check is None else in_interval(columns[TIMESTAMP], check)
        yield Scanned(assembler.batch(file.segment, start, stop - start, columns, mask), stop)


def _batches(
    table: pq.ParquetFile, group: RowGroup, sources: Sequence[str]
) -> Iterator[tuple[int, int, dict[str, pa.Array]]]:
    """Yield parts of a row group: offset of the first record, number of records, columns by name."""
    base = group.base_offset
    count = group.end_offset - base
    if not sources:  # all requested columns follow from the file's name
        for first in range(base, group.end_offset, BATCH_RECORDS_MAX):
            yield first, min(BATCH_RECORDS_MAX, group.end_offset - first), {}
        return
    size_bytes = table.metadata.row_group(group.index).total_byte_size
    rows = max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES * count // max(1, size_bytes)))
    for batch in table.iter_batches(rows, row_groups=[group.index], columns=list(sources), use_threads=False):
        yield base, batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True))
        base += batch.num_rows


def in_batches(
    assembler: Assembler, timestamps: Interval, segment: int, base: int, rows: pa.RecordBatch
) -> Iterator[Scanned]:
    """Yield rows from offset ``base`` in batches of the target size, without those outside the interval."""
    count = max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES * rows.num_rows // max(1, rows.nbytes)))
    for first in range(0, rows.num_rows, count):
        part = rows.slice(first, count)
        columns = dict(zip(part.schema.names, part.columns, strict=True))
        mask = in_interval(columns[TIMESTAMP], timestamps) if timestamps.is_bounded else None
        offset = base + first
        yield Scanned(assembler.batch(segment, offset, part.num_rows, columns, mask), offset + part.num_rows)


def in_interval(column: pa.Array, interval: Interval) -> pa.Array:
    """Return the mask of the timestamps (microseconds) in a bounded interval."""
    values = column.view(pa.int64())
    masks = []
    if interval.lo is not None:
        masks.append(pc.greater_equal(values, pa.scalar(interval.lo, pa.int64())))
    if interval.hi is not None:
        masks.append(pc.less(values, pa.scalar(interval.hi, pa.int64())))
    return masks[0] if len(masks) == 1 else pc.and_(masks[0], masks[1])


def _present(table: pq.ParquetFile, sources: Sequence[str]) -> list[str]:
    """Return the names that the table has: plain records in a topic with a schema lack its columns."""
    return [name for name in sources if name in table.schema_arrow.names]
