"""Access to the payloads of frames as record batches, for every encoding. All readers of payloads use this module.

A frame's header names the encoding of its payload; ``ENCODINGS`` has the functions of each. An encoding is one module
beside this one, and a line in that table; ``optional`` stands for those whose libraries may not be installed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import (
    ENCODING_ARROW,
    ENCODING_KAFKA,
    FLAG_TIMESTAMP,
    PAYLOAD_BYTES_MAX,
    RECORDS_MAX,
    Frame,
    FrameHeader,
    encode_header,
)
from seaweedmq.codec.payload import arrow, optional
from seaweedmq.codec.payload.columns import PLAIN_SCHEMA, TIMESTAMP, full_batch, full_schema, payload_schema
from seaweedmq.codec.timestamps import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from seaweedmq.codec.topic_schema import check_topic_schema, schema_from_bytes, schema_to_bytes
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.messages.frames import Frames

__all__ = [
    "ENCODINGS",
    "PLAIN_SCHEMA",
    "TIMESTAMP",
    "TIMESTAMP_MAX_US",
    "TIMESTAMP_MIN_US",
    "Encoding",
    "check_topic_schema",
    "check_values",
    "clip_frame",
    "decode_frame",
    "encode_frame",
    "full_batch",
    "full_schema",
    "payload_schema",
    "schema_from_bytes",
    "schema_to_bytes",
    "validate_payload",
]


@dataclass(frozen=True, slots=True)
class Encoding:
    """The functions of one payload encoding. This module checks the header's own rules and counts."""

    name: str
    validate: Callable[[FrameHeader, Frames, pa.Schema | None], None]
    """Validator that raises InvalidArgument unless ``decode`` will find what header and topic schema promise."""
    decode: Callable[[Frame, pa.Schema | None], pa.RecordBatch]
    """Decoder that returns exactly the columns of ``payload_schema(header.flags, ...)``, or raises Corrupt."""
    clip: Callable[[Frame, pa.RecordBatch, int], bytes]
    """Function that returns the frame without its first N records, given the result of ``decode``. The new frame may
    have another encoding. Its slots keep their bounds, but not their counts."""


ENCODINGS: Final[dict[int, Encoding]] = {
    ENCODING_ARROW: Encoding("Arrow IPC", arrow.validate, arrow.decode, arrow.clip),
    ENCODING_KAFKA: Encoding("Kafka batch", *(optional.of_kafka(name) for name in ("validate", "decode", "clip"))),
}
"""Encodings by the number in the frame's header."""


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
    base_offset: int = 0,
    join: Callable[[Sequence[Frames]], Frames] = b"".join,
) -> Frames:
    """Return a frame of a batch that has exactly the columns of ``payload_schema(flags, ...)``.

    The other arguments are fields of ``FrameHeader``. ``base_offset`` is 0 if a broker is going to stamp the frame.
    ``join`` joins header and payload, so that the sender can place the frame in its own buffer.

    Raises:
        InvalidArgument: If there are no records, more than ``RECORDS_MAX``, or 4 GiB or more of payload.
    """
    _check_count(batch.num_rows)
    payload = arrow.encode(batch)
    if payload.size > PAYLOAD_BYTES_MAX:
        raise InvalidArgument(f"frame of {payload.size} bytes: the format ends at 4 GiB; split the batch")
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
        base_offset=base_offset,
    )
    return join((encode_header(header), memoryview(payload)))


def check_values(batch: pa.RecordBatch, flags: int, topic_schema: pa.Schema | None) -> None:
    """Check for values that brokers reject, in a batch with exactly the columns of ``payload_schema(flags, ...)``.

    Raises InvalidArgument, naming the column, if a non-nullable field has a null, or no table can hold a time.
    """
    arrow.check_values(batch, flags, topic_schema)


def decode_frame(frame: Frame, topic_schema: pa.Schema | None) -> pa.RecordBatch:
    """Return the columns as stored, of a frame that a broker has accepted.

    Raises Corrupt if the payload does not match its header, though its checksum does, or Unsupported if the encoding is
    unknown.
    """
    header = frame.header
    batch = _encoding_of(header).decode(frame, topic_schema)
    if batch.num_rows != header.record_count:
        raise Corrupt(
            f"frame at offset {header.base_offset}: {batch.num_rows} records where the header says "
            f"{header.record_count}"
        )
    return batch


def clip_frame(frame: Frame, start_offset: int, topic_schema: pa.Schema | None) -> bytes:
    """Return a frame of the records from ``start_offset``, inside the frame; raises as :func:`decode_frame`."""
    header = frame.header
    batch = decode_frame(frame, topic_schema if header.schema_version else None)
    return _encoding_of(header).clip(frame, batch, start_offset - header.base_offset)


def validate_payload(header: FrameHeader, payload: Frames, topic_schema: pa.Schema | None) -> None:
    """Validate that every later reader of the frame finds what its header and the topic promise.

    ``split_frames`` verifies the checksums.

    Raises:
        InvalidArgument: If the frame breaks a rule; the message names it.
        Unsupported: If the encoding is unknown.
    """
    encoding = _encoding_of(header)
    _check_header(header)
    encoding.validate(header, payload, topic_schema)


def _encoding_of(header: FrameHeader) -> Encoding:
    encoding = ENCODINGS.get(header.encoding)
    if encoding is None:
        known = ", ".join(f"{number} ({known.name})" for number, known in ENCODINGS.items())
        raise Unsupported(
            f"frame at offset {header.base_offset}: payload encoding {header.encoding}, this build knows {known}; "
            "upgrade the older side"
        )
    return encoding


def _check_header(header: FrameHeader) -> None:
    """Check the fields that no checksum protects."""
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
