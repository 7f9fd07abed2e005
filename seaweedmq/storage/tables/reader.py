"""Reader of a Parquet table as frames, one small batch at a time. Blocking, for a thread.

Decoding is as fast as pyarrow alone. It reads only the columns of a frame, decompresses pages as needed instead of
whole row groups, and encodes a frame with one copy and one checksum.
"""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seaweedmq.codec.frame import FLAG_HEADERS, FLAG_KEY, FLAG_REFERENCE, FLAG_TIMESTAMP, SCHEMA_VERSION_SHIFT
from seaweedmq.codec.payload.batch import encode_frame, payload_schema
from seaweedmq.codec.references import REFERENCE
from seaweedmq.errors import Corrupt
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, KeyRange
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.logs.log_scan import CHUNKS_AT_ONCE, Chunk
from seaweedmq.storage.tables.format import PLACE
from seaweedmq.storage.tables.opener import open_table, schema_of, table_error
from seaweedmq.storage.tables.row_groups import row_groups

ROWS_AT_ONCE_MAX = 65_536
"""Limit of the rows per batch, well below a frame's record limit: repeated values take little space in the file."""
_NOT_COUNTED = (0,) * HISTOGRAM_BUCKETS


class TableReader:
    """A reader of the records ``[start, end)`` of one table as frames; any thread may call it."""

    def __init__(
        self, source: BlockingInput, file: SegmentFile, topic: Topic, start: int, end: int, *, chunk_bytes: int
    ) -> None:
        """Take over ``source``, which ``close`` closes."""
        self._source = source
        self._file = file
        self._topic = topic
        self._start = start
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._lock = threading.Lock()
        self._table: pq.ParquetFile | None = None
        self._chunks: Iterator[Chunk] | None = None

    def next(self) -> list[Chunk] | None:
        """Return the next few frames; None at the end."""
        with self._lock:
            if self._chunks is None:
                self._table = open_table(self._source, self._file, self._topic)
                self._chunks = self._frames(self._table)
            chunks: list[Chunk] = []
            size = 0
            while size < CHUNKS_AT_ONCE * self._chunk_bytes and (chunk := next(self._chunks, None)) is not None:
                chunks.append(chunk)
                size += len(chunk.data)
                if len(chunks) == CHUNKS_AT_ONCE:
                    break
            return chunks or None

    def close(self) -> None:
        """Close the table and its source; ``next`` then returns None."""
        with self._lock:
            self._chunks = iter(())
            if self._table is not None:
                self._table.close()
            self._source.close()

    def _frames(self, table: pq.ParquetFile) -> Iterator[Chunk]:
        schema = schema_of(table, self._topic)
        groups = [g for g in row_groups(self._file, table) if g.end_offset > self._start and g.base_offset < self._end]
        if not groups:
            return
        position = groups[0].base_offset
        found = [table.metadata.row_group(g.index) for g in groups]
        row_bytes = max(1, *(g.total_byte_size // max(1, g.num_rows) for g in found))
        columns = [name for name in table.schema_arrow.names if name not in PLACE]
        batches = table.iter_batches(
            batch_size=min(max(1, self._chunk_bytes // row_bytes), ROWS_AT_ONCE_MAX),
            row_groups=[g.index for g in groups],
            columns=columns,
            use_threads=False,
        )
        while position < self._end:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as e:
                raise table_error(self._file, e) from e
            if batch is None:
                raise Corrupt(f"{self._file.path} ends with offset {position} before its end: restore it from a copy")
            first = max(0, self._start - position)
            count = min(batch.num_rows, self._end - position) - first
            if count > 0:
                for part in _halves(batch.slice(first, count), 2 * self._chunk_bytes):
                    base = position + first
                    first += part.num_rows
                    yield Chunk(base + part.num_rows, _encode(part, schema, base, self._topic.ring))
            position += batch.num_rows


def _halves(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Split a batch into parts of at most ``bytes_max`` or one record: sizes may be uneven within a row group."""
    if batch.nbytes <= bytes_max or batch.num_rows < 2:
        yield batch
    else:
        middle = batch.num_rows // 2
        yield from _halves(batch.slice(0, middle), bytes_max)
        yield from _halves(batch.slice(middle), bytes_max)


def _encode(batch: pa.RecordBatch, topic_schema: pa.Schema | None, base_offset: int, ring: KeyRange) -> Frames:
    """Encode one frame without the optional columns that are all null, and without timestamps that are all equal."""
    timestamp, key, headers, *values = batch.columns
    has_references = batch.schema.names[-1] == REFERENCE.name
    if has_references and values[-1].null_count == batch.num_rows:
        values, has_references = values[:-1], False
    bounds = pc.min_max(timestamp)
    lowest, highest = bounds["min"].value, bounds["max"].value
    flags = (0 if topic_schema is None else 1) << SCHEMA_VERSION_SHIFT | (FLAG_REFERENCE if has_references else 0)
    columns = []
    if key.null_count < len(key):
        flags |= FLAG_KEY
        columns.append(key)
    if lowest != highest:
        flags |= FLAG_TIMESTAMP
        columns.append(timestamp)
    if headers.null_count < len(headers):
        flags |= FLAG_HEADERS
        columns.append(headers)
    schema = payload_schema(flags, topic_schema)
    arrays = [a if a.type == f.type else a.cast(f.type) for a, f in zip([*columns, *values], schema, strict=True)]
    return encode_frame(  # casts restore seconds from milliseconds
        pa.RecordBatch.from_arrays(arrays, schema=schema),
        flags=flags,
        producer_id=0,
        producer_epoch=0,
        first_sequence=0,
        timestamp_min=lowest,
        timestamp_max=highest,
        slot_min=0,
        slot_max=ring.hi - 1,
        histogram=_NOT_COUNTED,
        base_offset=base_offset,
    )
