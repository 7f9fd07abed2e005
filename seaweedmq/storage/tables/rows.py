"""Verified rows of one table in batches, for jobs that read whole tables."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.errors import Corrupt
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.tables.format import OFFSET, SEGMENT
from seaweedmq.storage.tables.opener import open_table, schema_of, table_error

BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_ROWS_MAX: Final = 65_536


Rows: TypeAlias = Iterator[tuple[pa.Schema | None, pa.RecordBatch]]
"""Batches, each with the topic schema of its table; None for plain records."""
Open: TypeAlias = Callable[[SegmentFile], BlockingInput]


def table_rows(open_file: Open, topic: Topic, table: SegmentFile) -> Rows:
    """Yield the rows in order, in batches of about 4 MiB, with their offsets and all checksums verified."""
    with contextlib.closing(open_file(table)) as source, open_table(source, table, topic) as opened:
        schema = schema_of(opened, topic)
        position = table.base_offset
        try:
            for batch in opened.iter_batches(batch_size=_rows_at_once(opened)):
                _check_place(table, batch, position)
                position += batch.num_rows
                yield schema, batch
        except (pa.ArrowException, OSError) as e:
            raise table_error(table, e, f" after offset {position}") from e
        if position != table.end_offset:
            raise Corrupt(f"{table.path} ends with offset {position} before its end: restore it from a copy")


def _check_place(table: SegmentFile, batch: pa.RecordBatch, position: int) -> None:
    due = np.arange(position, position + batch.num_rows)
    offsets = batch.column(OFFSET.name).to_numpy(zero_copy_only=False)
    if not np.array_equal(offsets, due):
        wrong = int(np.argmax(offsets != due))
        raise Corrupt(
            f"{table.path} has offset {offsets[wrong]} in place of {due[wrong]}, it does not match its name: restore "
            "it from a copy"
        )
    if not (batch.column(SEGMENT.name).to_numpy(zero_copy_only=False) == table.segment).all():
        raise Corrupt(f"{table.path} is foreign, it has records of another segment: move it away")


def _rows_at_once(table: pq.ParquetFile) -> int:
    metadata = table.metadata
    size = sum(int(metadata.row_group(i).total_byte_size) for i in range(metadata.num_row_groups))
    return min(BATCH_ROWS_MAX, max(1, BATCH_BYTES * int(metadata.num_rows) // max(1, size)))
