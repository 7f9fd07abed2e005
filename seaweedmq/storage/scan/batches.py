"""Record batches of a result, of bounded size, from the columns of files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.model.config import MIB
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.scan.columns import OFFSET, SEGMENT, TIMESTAMP, TOPIC, Column

BATCH_RECORDS_MAX = 10_000
"""Spark's default of ``spark.sql.execution.arrow.maxRecordsPerBatch``; the setting does not reach a data source."""
BATCH_BYTES = 2 * MIB
"""Target size of a batch in bytes: batches of large records have fewer."""
_COMPUTED = frozenset({TOPIC, SEGMENT, OFFSET})
"""Columns known from the file's name, which are never read."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """A batch of the result, if any, and the offset up to which the range has been read."""

    batch: pa.RecordBatch | None
    next_offset: int


class BatchBuilder:
    """A builder of record batches with the columns of a result, in exactly its Arrow schema."""

    def __init__(self, topic: str, columns: Sequence[Column], schema: pa.Schema) -> None:
        self._topic = topic
        self._columns = columns
        self._schema = schema
        self._constants: dict[tuple[str, int], pa.Array] = {}
        """Constant columns, topic and segment, of the last requested length, which most batches of a read share."""
        self.sources = tuple(c.source for c in columns if c.source not in _COMPUTED)
        """Columns to read from the files."""

    def batch(
        self, segment: int, first_offset: int, count: int, read: Mapping[str, pa.Array], mask: pa.Array | None = None
    ) -> pa.RecordBatch:
        """Return the records of offsets ``[first_offset, first_offset + count)``.

        ``read`` has :attr:`sources` as stored; a column is null if it is absent, as in plain records of a topic with a
        schema. ``mask`` has the rows to keep; None: all.
        """
        arrays = []
        for column, field in zip(self._columns, self._schema, strict=True):
            if column.source == TOPIC:
                array = self._constant(pa.scalar(self._topic, field.type), TOPIC, count)
            elif column.source == SEGMENT:
                array = self._constant(pa.scalar(segment, field.type), f"{SEGMENT}{segment}", count)
            elif column.source == OFFSET:
                array = pa.array(np.arange(first_offset, first_offset + count, dtype=np.int64))
            else:
                array = read.get(column.source)
                if array is None:
                    array = pa.nulls(count, field.type)
                elif array.type != field.type:
                    array = array.cast(field.type, safe=False)  # widens, or truncates nanoseconds as Spark does
            arrays.append(array)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if mask is None else batch.filter(mask)

    def _constant(self, value: pa.Scalar, name: str, count: int) -> pa.Array:
        array = self._constants.get((name, count))
        if array is None:
            self._constants = {k: v for k, v in self._constants.items() if k[1] == count}
            array = self._constants[name, count] = pa.repeat(value, count)
        return array


def in_batches(
    builder: BatchBuilder, timestamps: Interval, segment: int, base: int, rows: pa.RecordBatch
) -> Iterator[Scanned]:
    """Yield rows from offset ``base`` in batches of the target size, without those outside the interval."""
    count = max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES * rows.num_rows // max(1, rows.nbytes)))
    for first in range(0, rows.num_rows, count):
        part = rows.slice(first, count)
        columns = dict(zip(part.schema.names, part.columns, strict=True))
        mask = in_interval(columns[TIMESTAMP], timestamps) if timestamps.is_bounded else None
        offset = base + first
        yield Scanned(builder.batch(segment, offset, part.num_rows, columns, mask), offset + part.num_rows)


def in_interval(column: pa.Array, interval: Interval) -> pa.Array:
    """Return the mask of the timestamps (microseconds) in a bounded interval."""
    values = column.view(pa.int64())
    masks = []
    if interval.lo is not None:
        masks.append(pc.greater_equal(values, pa.scalar(interval.lo, pa.int64())))
    if interval.hi is not None:
        masks.append(pc.less(values, pa.scalar(interval.hi, pa.int64())))
    return masks[0] if len(masks) == 1 else pc.and_(masks[0], masks[1])
