"""All rows of one table, batch by batch, checked: for jobs that read it through."""

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
"""Batches, each with the topic schema that its table has; None: it is plain."""
Open: TypeAlias = Callable[[SegmentFile], BlockingInput]


def table_rows(open_file: Open, topic: Topic, table: SegmentFile) -> Rows:
    """The rows in order, in batches of about 4 MiB. They are of the offsets that the name says, footer and pages are as
    they were written.

    Raises:
        Corrupt: they are not; the message names the table. NotFound: it was deleted. StorageFailed.
    """
    with contextlib.closing(open_file(table)) as source, open_table(source, table, topic) as opened:
        schema = schema_of(opened, topic)
        position = table.base_offset
        try:
            for batch in opened.iter_batches(batch_size=_rows_at_once(opened)):
                _check_place(table, batch, position)
                position += batch.num_rows
                yield schema, batch
        except (pa.ArrowException, OSError) as e:
            raise table_error(table, e, f" behind offset {position}") from e
        if position != table.end_offset:
            raise Corrupt(f"{table.path} ends with offset {position} before its end; restore it from a copy")


def _check_place(table: SegmentFile, batch: pa.RecordBatch, position: int) -> None:
    due = np.arange(position, position + batch.num_rows)
    offsets = batch.column(OFFSET.name).to_numpy(zero_copy_only=False)
    if not np.array_equal(offsets, due):
        wrong = int(np.argmax(offsets != due))
        raise Corrupt(
            f"{table.path} has offset {offsets[wrong]} in place of {due[wrong]}: it is not what its name says; restore "
            "it from a copy"
        )
    if not (batch.column(SEGMENT.name).to_numpy(zero_copy_only=False) == table.segment).all():
        raise Corrupt(f"{table.path} has records of another segment: a foreign file; move it away")


def _rows_at_once(table: pq.ParquetFile) -> int:
    metadata = table.metadata
    size = sum(int(metadata.row_group(i).total_byte_size) for i in range(metadata.num_row_groups))
    return min(BATCH_ROWS_MAX, max(1, BATCH_BYTES * int(metadata.num_rows) // max(1, size)))
