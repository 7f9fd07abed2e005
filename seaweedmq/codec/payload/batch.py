"""What a frame carries, as a record batch of columns, whatever its encoding. All who read payloads come through here.

A frame's header names the encoding of its payload; ``ENCODINGS`` says what is done with each. An encoding is one module
beside this one, and a line in that table; ``optional`` stands for those whose libraries need not be there.
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
from seaweedmq.codec.payload.columns import (
    PLAIN_SCHEMA,
    TIMESTAMP,
    full_batch,
    full_schema,
    payload_schema,
)
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
    """How payloads of one encoding are checked, read and cut. The header's own rules and counts are checked here."""

    name: str
    validate: Callable[[FrameHeader, Frames, pa.Schema | None], None]
    """Make sure that ``decode`` will find what the header and the topic's schema promise. InvalidArgument."""
    decode: Callable[[Frame, pa.Schema | None], pa.RecordBatch]
    """Exactly the columns of ``payload_schema(header.flags, ...)``. Corrupt."""
    clip: Callable[[Frame, pa.RecordBatch, int], bytes]
    """The frame without so many of its first records, given what ``decode`` gave: a frame of whatever encoding. Slots
    keep their bounds, not their counts."""


ENCODINGS: Final[dict[int, Encoding]] = {
    ENCODING_ARROW: Encoding("Arrow IPC", arrow.validate, arrow.decode, arrow.clip),
    ENCODING_KAFKA: Encoding("Kafka batch", optional.validate_kafka, optional.decode_kafka, optional.clip_kafka),
}
"""By the number in the frame's header."""


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
    """A frame of a batch that has exactly the columns of ``payload_schema(flags, ...)``.

    Args:
        timestamp_min, timestamp_max: exact lowest and highest, microseconds; equal if there is no such column.
        slot_min, slot_max: inclusive.
        histogram: 16 counts as of ``slots.histogram_of``; all zero if not counted.
        base_offset: 0 of a frame that a broker is going to stamp.
        join: makes header and payload one, so that whoever sends the frame can have it where it needs it.

    Raises:
        InvalidArgument: no records, more than ``RECORDS_MAX``, or 4 GiB and more of payload.
    """
    _check_count(batch.num_rows)
    payload = arrow.encode(batch)
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
        base_offset=base_offset,
    )
    return join((encode_header(header), memoryview(payload)))


def check_values(batch: pa.RecordBatch, flags: int, topic_schema: pa.Schema | None) -> None:
    """Find the values that brokers refuse in a batch with exactly the columns of ``payload_schema(flags, ...)``.

    Raises:
        InvalidArgument: null inside of a column that declares it not null there, or a time that no table holds; names
            the column.
    """
    arrow.check_values(batch, flags, topic_schema)


def decode_frame(frame: Frame, topic_schema: pa.Schema | None) -> pa.RecordBatch:
    """The columns as stored. Only for frames a broker let in.

    Raises:
        Corrupt: the payload is not what its header says, though its checksum holds.
        Unsupported: its encoding is not known.
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
    """The records from ``start_offset`` on, which lies inside of the frame, as a frame.

    Raises:
        Corrupt, Unsupported: as ``decode_frame``.
    """
    header = frame.header
    batch = decode_frame(frame, topic_schema if header.schema_version else None)
    return _encoding_of(header).clip(frame, batch, start_offset - header.base_offset)


def validate_payload(header: FrameHeader, payload: Frames, topic_schema: pa.Schema | None) -> None:
    """Make sure that whoever reads the frame later, in whatever way, finds what its header and the topic promise.

    The checksums are the business of ``split_frames``.

    Raises:
        InvalidArgument: the frame breaks a rule; the message says which.
        Unsupported: its encoding is not known.
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
    """The fields that no checksum can vouch for."""
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
