"""Row groups of a table, as its footer describes them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyarrow.parquet as pq

from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.place import Place
from seaweedmq.storage.tables.opener import open_table

_TIMESTAMP = "_timestamp"


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


@contextmanager
def opened(place: Place, file: SegmentFile, topic: Topic) -> Iterator[pq.ParquetFile]:
    """Yield an open table; raises like ``opener.open_table``."""
    with closing(place.open_input(file)) as source, open_table(source, file, topic) as table:
        yield table


def row_groups(file: SegmentFile, table: pq.ParquetFile) -> list[RowGroup]:
    """Return the row groups with offsets, which follow from their row counts: offsets are contiguous in a table."""
    leaf = next(i for i in range(len(table.schema)) if table.schema.column(i).path == _TIMESTAMP)
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
