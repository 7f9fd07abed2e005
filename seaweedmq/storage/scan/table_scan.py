"""Reader of one Parquet table of a segment, one row group at a time."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.model.files import SegmentFile
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.scan.batches import BATCH_BYTES, BATCH_RECORDS_MAX, BatchBuilder, Scanned, in_interval
from seaweedmq.storage.scan.columns import TIMESTAMP
from seaweedmq.storage.tables.opener import table_error
from seaweedmq.storage.tables.row_groups import RowGroup, row_groups


def scan_table(
    table: pq.ParquetFile, file: SegmentFile, start: int, end: int, timestamps: Interval, builder: BatchBuilder
) -> Iterator[Scanned]:
    """Yield the records of an open table with offsets ``[start, end)`` and timestamps in the interval."""
    for group in row_groups(file, table):
        if group.end_offset <= start or group.base_offset >= end:
            continue
        if group.timestamps is not None and not timestamps.overlaps(*group.timestamps):
            continue
        exact = group.timestamps is not None and timestamps.contains(*group.timestamps)
        check = timestamps if timestamps.is_bounded and not exact else None
        try:
            yield from _scan_group(table, file, group, (start, end), check, builder)
        except (pa.ArrowException, OSError) as e:
            where = f" in row group {group.index}, offsets {group.base_offset} to {group.end_offset}"
            raise table_error(file, e, where) from e


def _scan_group(
    table: pq.ParquetFile,
    file: SegmentFile,
    group: RowGroup,
    wanted: tuple[int, int],
    check: Interval | None,
    builder: BatchBuilder,
) -> Iterator[Scanned]:
    sources = builder.sources
    read = sources if check is None or TIMESTAMP in sources else (*sources, TIMESTAMP)
    for base, count, columns in _batches(table, group, _present(table, read)):
        start, stop = max(base, wanted[0]), min(base + count, wanted[1])
        if start >= stop:
            continue
        if stop - start < count:
            columns = {name: array.slice(start - base, stop - start) for name, array in columns.items()}
        mask = None if check is None else in_interval(columns[TIMESTAMP], check)
        yield Scanned(builder.batch(file.segment, start, stop - start, columns, mask), stop)


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


def _present(table: pq.ParquetFile, sources: Sequence[str]) -> list[str]:
    """Return the names that the table has: plain records in a topic with a schema lack its columns."""
    return [name for name in sources if name in table.schema_arrow.names]
