"""Payload encoding 1: one Arrow record batch, and the broker's validation of it.

The payload is ``RecordBatch.serialize()``: an IPC message without schema, compression or dictionaries.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.arrow_message import ARROW_FAILURES, Layout, layout_of, open_message
from seaweedmq.codec.frame import (
    ENCODING_ARROW,
    FLAG_KEY,
    FLAG_REFERENCE,
    FLAG_TIMESTAMP,
    Frame,
    FrameHeader,
    encode_header,
)
from seaweedmq.codec.payload.columns import Derived, payload_schema
from seaweedmq.codec.payload.values import Check, check_of
from seaweedmq.codec.references import check_references
from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.ring import HISTOGRAM_BUCKETS


class _Shape(NamedTuple):
    """The expected form of payloads with some flags and schema."""

    schema: pa.Schema
    layout: Layout
    checks: tuple[tuple[int, Check], ...]
    """Column numbers, each with a check that Arrow's own validation lacks."""


_UNREADABLE: tuple[type[Exception], ...] = (InvalidArgument, *ARROW_FAILURES)


def encode(batch: pa.RecordBatch) -> pa.Buffer:
    """Return the payload of a batch."""
    return batch.serialize()


def validate(header: FrameHeader, payload: Frames, topic_schema: pa.Schema | None) -> None:
    """Validate a payload, see ``batch.Encoding``: about 15 us for 1.25 MB of 100-byte records."""
    shape = _shapes.of(header.flags, topic_schema)
    try:
        message = open_message(payload, shape.layout, header.record_count)
        batch = pa.ipc.read_record_batch(message, shape.schema)
        batch.validate(full=True)
        _check_values(batch, shape)
        _check_references(batch, header.flags)
        if header.flags & FLAG_TIMESTAMP:
            _check_timestamps(header, batch.column(1 if header.flags & FLAG_KEY else 0))
    except InvalidArgument as e:
        raise InvalidArgument(f"frame payload {e}") from None
    except ARROW_FAILURES as e:
        raise InvalidArgument(f"frame payload is not a sound Arrow record batch ({e}): encode it again") from e


def check_values(batch: pa.RecordBatch, flags: int, topic_schema: pa.Schema | None) -> None:
    """Check the values of a batch, see ``batch.check_values``."""
    _check_values(batch, _shapes.of(flags, topic_schema))
    _check_references(batch, flags)


def _check_values(batch: pa.RecordBatch, shape: _Shape) -> None:
    for column, check in shape.checks:
        check(batch.column(column))


def _check_references(batch: pa.RecordBatch, flags: int) -> None:
    if flags & FLAG_REFERENCE:
        check_references(batch.column(batch.num_columns - 1), batch.column(batch.num_columns - 2))


def decode(frame: Frame, topic_schema: pa.Schema | None) -> pa.RecordBatch:
    """Decode a payload without copying, see ``batch.Encoding``: the columns keep the frame's bytes alive."""
    try:
        schema = payload_schema(frame.header.flags, topic_schema)
        return pa.ipc.read_record_batch(pa.py_buffer(frame.payload), schema)
    except _UNREADABLE as e:
        raise Corrupt(f"frame at offset {frame.header.base_offset}: unreadable payload ({e})") from e


def clip(frame: Frame, batch: pa.RecordBatch, skipped: int) -> bytes:
    """Return a frame without its first records, see ``batch.Encoding``."""
    header, rest = frame.header, batch.slice(skipped)
    payload = rest.serialize()
    lowest, highest = header.timestamp_min, header.timestamp_max
    if header.flags & FLAG_TIMESTAMP:
        bounds = pc.min_max(rest.column("_timestamp"))
        lowest, highest = bounds["min"].value, bounds["max"].value
    clipped = header._replace(
        encoding=ENCODING_ARROW,
        record_count=rest.num_rows,
        payload_length=payload.size,
        payload_checksum=xxh3_64_intdigest(payload),
        timestamp_min=lowest,
        timestamp_max=highest,
        first_sequence=header.first_sequence + skipped,
        histogram=(0,) * HISTOGRAM_BUCKETS,
        base_offset=header.base_offset + skipped,
    )
    return b"".join((encode_header(clipped), payload))


def _make_shape(flags: int, topic_schema: pa.Schema | None) -> _Shape:
    schema = payload_schema(flags, topic_schema)
    checks = ((i, check_of(field, f"column {field.name!r}")) for i, field in enumerate(schema))
    return _Shape(schema, layout_of(schema), tuple((i, c) for i, c in checks if c is not None))


_shapes: Derived[_Shape] = Derived(_make_shape)


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
