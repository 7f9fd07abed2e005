"""The Parquet files of a topic: their columns and how they are encoded.

Columns: ``_segment int32, _offset int64, _timestamp timestamp[us, UTC], _key binary, _headers map<string, binary>``,
then ``_value binary`` or the topic schema's columns. Topics with partitions have ``_partition int32`` behind the
segment. Offsets are contiguous in a file. Pages carry
checksums, and so does the footer (``footer``).

Offsets and timestamps are delta-encoded; they and the segment have statistics for pruning. Arrow first tries a
dictionary for every column, which for unique values is work thrown away: it is kept for what tends to repeat, and
binary columns do without. For 100-byte records that is 390-450 MB/s a core instead of 250-280.
"""

import contextlib
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.frame import FrameHeader
from seaweedmq.codec.payload.batch import full_batch, full_schema
from seaweedmq.model.topic import Topic
from seaweedmq.storage.tables.footer import seal_footer

SEGMENT = pa.field("_segment", pa.int32(), nullable=False)
PARTITION = pa.field("_partition", pa.int32(), nullable=False)
OFFSET = pa.field("_offset", pa.int64(), nullable=False)
PLACE = frozenset({SEGMENT.name, PARTITION.name, OFFSET.name})
"""Columns that say where a record is, and are no part of it."""
_DELTA = ("_offset", "_timestamp")
_STATISTICS = ("_segment", "_partition", "_offset", "_timestamp")
"""All tables of a topic lie in one folder: the footer tells a plain reader which are of the segment it looks for."""
_NO_DICTIONARY = frozenset({"_offset", "_timestamp", "_key", "_headers", "_value"})


def table_schema(topic: Topic, topic_schema: pa.Schema | None) -> pa.Schema:
    """Columns of a table of the topic's frames with this schema (None: plain)."""
    columns = {f.name: f for f in full_schema(topic_schema)}
    leading = [columns.pop(name) for name in ("_timestamp", "_key", "_headers")]
    place = [SEGMENT, OFFSET] if topic.partitions is None else [SEGMENT, PARTITION, OFFSET]
    return pa.schema([*place, *leading, *columns.values()])


def stored_schema(topic: Topic, topic_schema: pa.Schema | None) -> pa.Schema:
    """What a reader of such a table finds: Parquet has no seconds, and keeps milliseconds for them."""
    return pa.schema([_child(f) for f in table_schema(topic, topic_schema)])


class TableFile:
    """Writes rows that have all columns of a table into one Parquet file, row group by row group."""

    def __init__(self, sink: IO[bytes], topic: Topic, topic_schema: pa.Schema | None) -> None:
        """``sink`` is open for reading and writing; it stays open."""
        self._sink = sink
        self.schema = table_schema(topic, topic_schema).with_metadata(
            {
                "seaweedmq.topic": str(topic.name),
                "seaweedmq.topic_uid": str(topic.uid),
                "seaweedmq.schema_version": "0" if topic_schema is None else "1",
            }
        )
        self._writer = pq.ParquetWriter(
            sink,
            self.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f.name for f in self.schema if _repeats(f)] or False,
            column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
            write_statistics=[name for name in _STATISTICS if name in self.schema.names],
            write_page_checksum=True,
        )

    def write(self, rows: pa.Table) -> None:
        """One row group."""
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
        seal_footer(self._sink)

    def abandon(self) -> None:
        """Release the file without caring for its content."""
        with contextlib.suppress(OSError, pa.ArrowException):  # the reason to abandon it may strike again
            self._writer.close()


class TableWriter:
    """Streams batches of frames into one Parquet file. Memory: one row group and its encoded columns."""

    def __init__(
        self, sink: IO[bytes], topic: Topic, segment: int, topic_schema: pa.Schema | None, row_group_bytes: int
    ) -> None:
        """``sink`` is open for reading and writing; it stays open."""
        self._file = TableFile(sink, topic, topic_schema)
        self._topic_schema = topic_schema
        self._segment = segment
        self._row_group_bytes = row_group_bytes
        self._batches: list[pa.RecordBatch] = []
        self._partitions: list[int] = []
        """Of each batch: a frame of a topic with partitions is of one."""
        self._waiting_bytes = 0
        self._offset: int | None = None

    def add(self, batch: pa.RecordBatch, header: FrameHeader, first: int, count: int) -> None:
        """Add ``count`` records from the ``first`` on of a frame's batch. Offsets must go on without gap."""
        if self._offset is None:
            self._offset = header.base_offset + first
        whole = full_batch(batch, header, self._topic_schema)
        self._batches.append(whole if count == batch.num_rows else whole.slice(first, count))
        self._partitions.append(header.slot_min)
        # A payload may be compressed.
        size = max(header.payload_length, batch.get_total_buffer_size())
        self._waiting_bytes += size * count // header.record_count
        if self._waiting_bytes >= self._row_group_bytes:
            self._flush()

    def close(self) -> None:
        """Write what waits, and the footer."""
        self._flush()
        self._file.close()

    def abandon(self) -> None:
        """Release the file without caring for its content."""
        self._batches.clear()
        self._file.abandon()

    def _flush(self) -> None:
        if not self._batches or self._offset is None:
            return
        table = pa.Table.from_batches(self._batches)
        count = table.num_rows
        place = {
            SEGMENT: np.full(count, self._segment, np.int32),
            PARTITION: np.repeat(np.array(self._partitions, np.int32), [batch.num_rows for batch in self._batches]),
            OFFSET: np.arange(self._offset, self._offset + count, dtype=np.int64),
        }
        columns = [array_of(place[f], f.type) if f in place else table.column(f.name) for f in self._file.schema]
        self._file.write(pa.Table.from_arrays(columns, schema=self._file.schema))
        self._offset += count
        self._batches.clear()
        self._partitions.clear()
        self._waiting_bytes = 0


def _without_seconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_time32(kind):
        return pa.time32("ms")
    if pa.types.is_struct(kind):
        return pa.struct([_child(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_child(kind.key_field), _child(kind.item_field), keys_sorted=kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(_child(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_child(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_child(kind.value_field), kind.list_size)
    return kind


def _child(field: pa.Field) -> pa.Field:
    return field.with_type(_without_seconds(field.type))


def _repeats(field: pa.Field) -> bool:
    """Whether a dictionary is worth trying."""
    kind = field.type
    if field.name in _NO_DICTIONARY or pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return False
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
