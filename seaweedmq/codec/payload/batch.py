"""The payload of a frame: one Arrow record batch, and what a broker makes sure of before it trusts one.

Columns, in this order: those of ``_key``, ``_timestamp`` and ``_headers`` that the flags name, then ``_value`` or the
topic schema's columns. The payload is ``RecordBatch.serialize()``: an IPC message without schema, compression or
dictionaries.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.arrow_message import ARROW_FAILURES, Layout, layout_of, open_message
from seaweedmq.codec.frame import (
    COLUMN_FLAGS,
    ENCODING_ARROW,
    FLAG_HEADERS,
    FLAG_KEY,
    FLAG_TIMESTAMP,
    PAYLOAD_BYTES_MAX,
    RECORDS_MAX,
    SCHEMA_VERSION_SHIFT,
    Frame,
    FrameHeader,
    encode_header,
)
from seaweedmq.codec.payload.values import Check, check_of
from seaweedmq.codec.topic_schema import check_topic_schema, schema_from_bytes, schema_to_bytes
from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.frames import Frames

__all__ = [
    "PLAIN_SCHEMA",
    "array_of",
    "check_topic_schema",
    "decode_frame",
    "encode_frame",
    "full_batch",
    "full_schema",
    "payload_schema",
    "schema_from_bytes",
    "schema_to_bytes",
    "validate_payload",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_MIN_US = -62_135_596_800_000_000
"""0001-01-01, and below 9999-12-31T23:59:60: what Python, Spark and SQL can all show."""
TIMESTAMP_MAX_US = 253_402_300_799_999_999

_KEY = pa.field("_key", pa.binary())
_TIMESTAMP = pa.field("_timestamp", TIMESTAMP)
_HEADERS = pa.field("_headers", pa.map_(pa.string(), pa.binary()))
_VALUE = pa.field("_value", pa.binary())
_FLAGGED = ((FLAG_KEY, _KEY), (FLAG_TIMESTAMP, _TIMESTAMP), (FLAG_HEADERS, _HEADERS))

PLAIN_SCHEMA = pa.schema([_KEY, _TIMESTAMP, _HEADERS, _VALUE])
"""All columns of a plain topic."""


class _Shape(NamedTuple):
    """What is derived from a schema and flags once and used for every frame."""

    topic_schema: pa.Schema | None
    """Kept so that its ``id`` stays its own while it is a key below."""
    schema: pa.Schema
    layout: Layout
    checks: tuple[tuple[int, Check], ...]
    """Column number and the check that Arrow's own validation lacks."""


_UNREADABLE: tuple[type[Exception], ...] = (InvalidArgument, *ARROW_FAILURES)
_shapes: dict[tuple[int, int], _Shape] = {}
_SHAPES_MAX = 4_096


def payload_schema(flags: int, topic_schema: pa.Schema | None) -> pa.Schema:
    """Columns of a payload with these flags in a topic with this schema (None: plain topic).

    Raises:
        InvalidArgument: unknown flags, or a schema version that does not go with the topic.
    """
    return _shape(flags, topic_schema).schema


def full_schema(topic_schema: pa.Schema | None) -> pa.Schema:
    """Columns of :func:`full_batch`."""
    return payload_schema(COLUMN_FLAGS | (0 if topic_schema is None else 1) << SCHEMA_VERSION_SHIFT, topic_schema)


def encode_frame(
    batch: pa.RecordBatch,
    *,
    flags: int,
    producer_id: int,
    producer_epoch: int,
    first_sequence: int,
    timestamp_min: int,
    timestamp_max: int,
    slot_min: int,
    slot_max: int,
    histogram: tuple[int, ...],
    join: Callable[[Sequence[Frames]], Frames] = b"".join,
) -> Frames:
    """A frame of a batch that has exactly the columns of ``payload_schema(flags, ...)``. Its base offset is 0.

    Args:
        timestamp_min, timestamp_max: exact lowest and highest, microseconds; equal if there is no such column.
        slot_min, slot_max: inclusive.
        histogram: 16 counts as of ``slots.histogram_of``; all zero if not counted.
        join: makes header and payload one, so that whoever sends the frame can have it where it needs it.

    Raises:
        InvalidArgument: no records, more than ``RECORDS_MAX``, or 4 GiB and more of payload.
    """
    _check_count(batch.num_rows)
    payload = batch.serialize()
    if payload.size > PAYLOAD_BYTES_MAX:
        raise InvalidArgument(f"frame of {payload.size} bytes: the format ends at 4 GiB; cut the batch in pieces")
    header = FrameHeader(
        encoding=ENCODING_ARROW,
        flags=flags,
        record_count=batch.num_rows,
        payload_length=payload.size,
        payload_checksum=xxh3_64_intdigest(payload),
        timestamp_min=timestamp_min,
        timestamp_max=timestamp_max,
        producer_id=producer_id,
        first_sequence=first_sequence,
        producer_epoch=producer_epoch,
        slot_min=slot_min,
        slot_max=slot_max,
        histogram=histogram,
    )
    return join((encode_header(header), memoryview(payload)))


def decode_frame(frame: Frame, topic_schema: pa.Schema | None) -> pa.RecordBatch:
    """The columns as stored, zero-copy: they keep the frame's bytes alive. Only for frames a broker let in.

    Raises:
        Corrupt: the payload is not what its header says, though its checksum holds.
    """
    try:
        schema = _shape(frame.header.flags, topic_schema).schema
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame.payload), schema)
    except _UNREADABLE as e:
        raise Corrupt(f"frame at offset {frame.header.base_offset}: unreadable payload ({e})") from e
    if batch.num_rows != frame.header.record_count:
        raise Corrupt(
            f"frame at offset {frame.header.base_offset}: {batch.num_rows} records where the header says "
            f"{frame.header.record_count}"
        )
    return batch


def validate_payload(header: FrameHeader, payload: bytes | memoryview, topic_schema: pa.Schema | None) -> None:
    """Make sure that whoever reads the frame later, in whatever way, finds what its header and the topic promise.

    The checksums are the business of ``split_frames``. About 15 us for 1.25 MB of 100-byte records.

    Raises:
        InvalidArgument: the frame breaks a rule; the message says which.
    """
    _check_header(header)
    shape = _shape(header.flags, topic_schema)
    try:
        message = open_message(payload, shape.layout, header.record_count)
        batch = pa.ipc.read_record_batch(message, shape.schema)
        batch.validate(full=True)
        for column, check in shape.checks:
            check(batch.column(column))
        if header.flags & FLAG_TIMESTAMP:
            _check_timestamps(header, batch.column(1 if header.flags & FLAG_KEY else 0))
    except InvalidArgument as e:
        raise InvalidArgument(f"frame payload {e}") from None
    except ARROW_FAILURES as e:
        raise InvalidArgument(f"frame payload is not a sound Arrow record batch ({e}): encode it again") from e


def full_batch(batch: pa.RecordBatch, header: FrameHeader, topic_schema: pa.Schema | None) -> pa.RecordBatch:
    """The batch of :func:`decode_frame` with the absent ones of ``_key``, ``_timestamp``, ``_headers`` filled in.

    Absent keys and headers are null; absent timestamps are the header's. Present columns are not copied.
    """
    columns = iter(batch.columns)
    count = batch.num_rows
    present = [next(columns) if header.flags & flag else None for flag, _ in _FLAGGED]
    key, timestamp, headers = present
    if key is None:
        key = pa.nulls(count, _KEY.type)
    if timestamp is None:
        timestamp = array_of(np.full(count, header.timestamp_min, np.int64), TIMESTAMP)
    if headers is None:
        headers = pa.nulls(count, _HEADERS.type)
    return pa.RecordBatch.from_arrays([key, timestamp, headers, *columns], schema=full_schema(topic_schema))


def array_of(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """The memory of a contiguous NumPy array as a column without nulls of a type of the same width.

    ``pa.array``, ``pa.scalar`` and whatever takes a Python value import pandas where it is installed: 35 MB and half a
    second, which neither the broker nor its table worker has to spare.
    """
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _shape(flags: int, topic_schema: pa.Schema | None) -> _Shape:
    key = (flags, id(topic_schema))  # by identity: hashing a schema of 19 columns takes as long as all the checks
    shape = _shapes.get(key)
    if shape is None:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        shape = _shapes[key] = _make_shape(flags, topic_schema)
    return shape


def _make_shape(flags: int, topic_schema: pa.Schema | None) -> _Shape:
    version = flags >> SCHEMA_VERSION_SHIFT
    if flags & 0xFF & ~COLUMN_FLAGS or version > 1:
        raise InvalidArgument(f"frame flags {flags:#06x} are not known to this build: upgrade the older side")
    if version == 0 and topic_schema is not None:
        raise InvalidArgument("frame is of a plain topic, but the topic has a schema: publish its columns")
    if version == 1 and topic_schema is None:
        raise InvalidArgument("frame has columns of a schema, but the topic is plain: publish _value")
    fields = [field for flag, field in _FLAGGED if flags & flag] + list(
        (_VALUE,) if topic_schema is None else topic_schema
    )
    schema = pa.schema(fields)
    checks = ((i, check_of(field, f"column {field.name!r}")) for i, field in enumerate(schema))
    return _Shape(topic_schema, schema, layout_of(schema), tuple((i, c) for i, c in checks if c is not None))


def _check_header(header: FrameHeader) -> None:
    """The fields that no checksum can vouch for."""
    if header.encoding != ENCODING_ARROW:
        raise InvalidArgument(f"frame encoding {header.encoding}: only {ENCODING_ARROW} (Arrow IPC) is accepted")
    _check_count(header.record_count)
    if not TIMESTAMP_MIN_US <= header.timestamp_min <= header.timestamp_max <= TIMESTAMP_MAX_US:
        raise InvalidArgument(
            f"frame timestamps [{header.timestamp_min}, {header.timestamp_max}]: give microseconds since 1970, the "
            "lowest first, between the years 1 and 9999"
        )
    if not header.flags & FLAG_TIMESTAMP and header.timestamp_min != header.timestamp_max:
        raise InvalidArgument("frame has two timestamps but no _timestamp column: give all records one, or the column")
    if header.slot_min > header.slot_max:
        raise InvalidArgument(f"frame slots [{header.slot_min}, {header.slot_max}]: the lowest comes first")
    counted = sum(header.histogram)
    if counted not in (0, header.record_count):
        raise InvalidArgument(f"frame histogram counts {counted} of {header.record_count} records: count all or none")


def _check_count(records: int) -> None:
    if not 1 <= records <= RECORDS_MAX:
        raise InvalidArgument(f"frame of {records or 'no'} records: a frame has from 1 to {RECORDS_MAX}")


def _check_timestamps(header: FrameHeader, column: pa.Array) -> None:
    if column.null_count:
        raise InvalidArgument("has null in _timestamp: every record has one, or leave the column out")
    values = np.frombuffer(column.buffers()[1], np.int64, len(column))
    lowest, highest = int(values.min()), int(values.max())
    if (lowest, highest) != (header.timestamp_min, header.timestamp_max):
        raise InvalidArgument(
            f"has timestamps from {lowest} to {highest} where the header says {header.timestamp_min} to "
            f"{header.timestamp_max}: take the lowest and highest of the column"
        )
