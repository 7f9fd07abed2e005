"""Builder of record batches for Kafka clients, from columns of native publishers and of tables.

Builds some 4 M records of 100 bytes per second, with aiokafka's builder and one record at a time: run it in a thread.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from seaweedmq.codec.kafka.columns import US_PER_MS
from seaweedmq.codec.kafka.compression import NONE
from seaweedmq.codec.kafka.header import FIRST_TIMESTAMP_AT, MAGIC, NO_PRODUCER, patched_head, write_crc
from seaweedmq.codec.kafka.varints import Longs
from seaweedmq.codec.references import KAFKA_HEADER, REFERENCE, reference_json, reference_of

Row: TypeAlias = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Timestamp in milliseconds, key, value, headers."""
_ROWS_AT_ONCE: Final = 4_096
"""Number of rows that are Python objects at a time."""
_TIMESTAMPS: Final = struct.Struct(">qq")


def batches_of(rows: pa.RecordBatch, base_offset: int, leader_epoch: int, bytes_max: int) -> list[bytes]:
    """Return rows of consecutive offsets as uncompressed batches of no producer.

    A batch has at most ``bytes_max`` or one record. The columns are ``_key, _timestamp, _headers, _value``, and
    ``_reference`` in a frame with payloads by reference; timestamps are rounded down to milliseconds. Kafka has no such
    payloads: the value is the reference as JSON, with the header ``KAFKA_HEADER``. A null would delete the key in a
    compacted topic.
    """
    return batches_of_rows(_rows_of(rows), base_offset, leader_epoch, bytes_max)


def batches_of_rows(rows: Iterable[Row], base_offset: int, leader_epoch: int, bytes_max: int) -> list[bytes]:
    """Return the same as :func:`batches_of` for rows that are not in columns."""
    done: list[bytes] = []
    builder = _builder(bytes_max)
    count = first_ms = 0
    for timestamp_ms, key, value, headers in rows:
        if not count:
            first_ms = timestamp_ms
        # Timestamps begin with 0, since the builder treats -1 as absent; ``_finish`` adds the first one.
        if builder.append(count, timestamp_ms - first_ms, key, value, headers) is None:
            done.append(_finish(builder, first_ms, base_offset, leader_epoch))
            base_offset += count
            builder, count, first_ms = _builder(bytes_max), 0, timestamp_ms
            builder.append(0, 0, key, value, headers)
        count += 1
    if count:
        done.append(_finish(builder, first_ms, base_offset, leader_epoch))
    return done


def _rows_of(rows: pa.RecordBatch) -> Iterator[Row]:
    for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
        part = rows.slice(first, _ROWS_AT_ONCE)
        headers = part.column("_headers")
        found: Iterator[Row] = zip(
            _milliseconds_of(part.column("_timestamp")).tolist(),
            part.column("_key").to_pylist(),
            part.column("_value").to_pylist(),
            repeat([]) if headers.null_count == len(headers) else [some or [] for some in headers.to_pylist()],
            strict=False,
        )
        if REFERENCE.name in part.schema.names:
            found = map(_with_reference, found, part.column(REFERENCE.name).to_pylist())
        yield from found


def _with_reference(row: Row, stored: dict[str, Any] | None) -> Row:
    reference = reference_of(stored)
    if reference is None:
        return row
    timestamp_ms, key, _, headers = row
    others = [header for header in headers if header[0] != KAFKA_HEADER]
    return timestamp_ms, key, reference_json(reference), [*others, (KAFKA_HEADER, b"1")]


def _milliseconds_of(timestamps: pa.Array) -> Longs:
    # Not ``to_numpy``, which imports pandas where it is installed: see ``codec.arrays``.
    begin = timestamps.offset * np.dtype(np.int64).itemsize
    return np.frombuffer(timestamps.buffers()[1], np.int64, len(timestamps), begin) // US_PER_MS


def _builder(bytes_max: int) -> Any:
    # The builder stays below its limit, except for a first record.
    return DefaultRecordBatchBuilder(MAGIC, NONE, 0, NO_PRODUCER, -1, -1, bytes_max + 1)


def _finish(builder: Any, first_ms: int, base_offset: int, leader_epoch: int) -> bytes:
    batch: bytearray = builder.build()
    first, last = _TIMESTAMPS.unpack_from(batch, FIRST_TIMESTAMP_AT)
    _TIMESTAMPS.pack_into(batch, FIRST_TIMESTAMP_AT, first + first_ms, last + first_ms)
    write_crc(batch)
    head = patched_head(memoryview(batch), base_offset, leader_epoch)
    batch[: len(head)] = head
    return bytes(batch)
