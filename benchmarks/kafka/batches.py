"""Kafka's record batches for measurements, made before the clock runs."""

import time
from collections.abc import Sequence

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

MAGIC, NONE, NO_PRODUCER = 2, 0, -1
BATCH_RECORDS = 1_000
"""Number of records of 1,000 B in a batch, which is then as large as topics accept by default."""
BATCH_BYTES_MAX = 1_048_588


def batches_of(table: pa.Table, batch_records: int = BATCH_RECORDS) -> list[bytes]:
    """Return the column ``_value`` in batches, of no producer, uncompressed."""
    values = table.column("_value").to_pylist()
    return [batch_of(values[at : at + batch_records]) for at in range(0, len(values), batch_records)]


def batch_of(values: Sequence[bytes]) -> bytes:
    """Return one batch, without keys."""
    builder = DefaultRecordBatchBuilder(MAGIC, NONE, 0, NO_PRODUCER, -1, -1, BATCH_BYTES_MAX)
    now_ms = time.time_ns() // 1_000_000
    for number, value in enumerate(values):
        if builder.append(number, now_ms, None, value, []) is None:
            raise ValueError(f"{len(values)} records of {len(value)} B are more than {BATCH_BYTES_MAX} B")
    return bytes(builder.build())
