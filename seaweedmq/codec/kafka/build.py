"""Columns as record batches, for Kafka's clients: what native publishers sent, and what is in tables.

Some 4 M records of 100 bytes a second, by aiokafka's builder, a record at a time: for a thread.
"""

import struct
from itertools import repeat
from typing import Final

import google_crc32c
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from seaweedmq.codec.kafka.columns import US_PER_MS
from seaweedmq.codec.kafka.compression import NONE
from seaweedmq.codec.kafka.header import ATTRIBUTES_AT, CRC_AT, FIRST_TIMESTAMP_AT, MAGIC, NO_PRODUCER, patched_head

_ROWS_AT_ONCE: Final = 4_096
"""That are Python objects."""
_TIMESTAMPS: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")


def batches_of(rows: pa.RecordBatch, base_offset: int, leader_epoch: int, bytes_max: int) -> list[bytes]:
    """The rows as batches of at most ``bytes_max`` each, or of one record, uncompressed, of no producer.

    Args:
        rows: with ``_key, _timestamp, _headers, _value``, of consecutive offsets. Timestamps lose their microseconds,
            downwards.
        base_offset: of the first row.
    """
    building = _Building(base_offset, leader_epoch, bytes_max)
    for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
        building.add(rows.slice(first, _ROWS_AT_ONCE))
    return building.finish()


class _Building:
    """Batches that are done, and the one that takes rows."""

    def __init__(self, base_offset: int, leader_epoch: int, bytes_max: int) -> None:
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._bytes_max = bytes_max
        self._done: list[bytes] = []
        self._count = 0
        """Of records in the batch."""
        self._first_ms = 0
        self._builder = self._begin()

    def add(self, rows: pa.RecordBatch) -> None:
        timestamps = rows.column("_timestamp").view(pa.int64()).to_numpy() // US_PER_MS
        column = rows.column("_headers")
        headers = repeat([]) if column.null_count == len(column) else (each or [] for each in column.to_pylist())
        keys, values = (rows.column(name).to_pylist() for name in ("_key", "_value"))
        for row in zip(timestamps.tolist(), keys, values, headers, strict=False):
            if not self._append(*row):
                self._close()
                self._append(*row)

    def finish(self) -> list[bytes]:
        if self._count:
            self._close()
        return self._done

    def _append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]
    ) -> bool:
        if not self._count:
            self._first_ms = timestamp_ms
        # Timestamps begin with 0, since the builder takes -1 for none; ``_close`` puts that right.
        if self._builder.append(self._count, timestamp_ms - self._first_ms, key, value, headers) is None:
            return False
        self._count += 1
        return True

    def _begin(self) -> DefaultRecordBatchBuilder:
        # The builder keeps below its limit, but for a first record.
        return DefaultRecordBatchBuilder(MAGIC, NONE, 0, NO_PRODUCER, -1, -1, self._bytes_max + 1)

    def _close(self) -> None:
        batch = self._builder.build()
        first, last = _TIMESTAMPS.unpack_from(batch, FIRST_TIMESTAMP_AT)
        _TIMESTAMPS.pack_into(batch, FIRST_TIMESTAMP_AT, first + self._first_ms, last + self._first_ms)
        _CRC.pack_into(batch, CRC_AT, google_crc32c.value(bytes(memoryview(batch)[ATTRIBUTES_AT:])))
        head = patched_head(batch, self._base_offset, self._leader_epoch)
        batch[: len(head)] = head
        self._done.append(bytes(batch))
        self._base_offset += self._count
        self._count = 0
        self._builder = self._begin()
