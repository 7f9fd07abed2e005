"""Payload encoding 2: one Kafka record batch as its client sent it, padded with zeros to a multiple of 8 bytes.

Frames of this encoding have all three optional columns, and the exact timestamps of the records in their headers.
"""

import pyarrow as pa

from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.frame import COLUMN_FLAGS, Frame, FrameHeader
from seaweedmq.codec.kafka.batch import UNPACKED_BYTES_MAX, InvalidBatch, check_batch, padded
from seaweedmq.codec.kafka.columns import columns_of
from seaweedmq.codec.kafka.header import read_header
from seaweedmq.codec.payload import arrow
from seaweedmq.codec.payload.columns import PLAIN_SCHEMA, TIMESTAMP
from seaweedmq.errors import Corrupt, InvalidArgument
from seaweedmq.model.messages.frames import Frames


def validate(header: FrameHeader, payload: Frames, topic_schema: pa.Schema | None) -> None:
    """Validate a payload, see ``batch.Encoding``."""
    if topic_schema is not None or header.flags != COLUMN_FLAGS:
        raise InvalidArgument("a frame of a Kafka batch has key, timestamp, headers and value, and no other columns")
    size = read_header(payload).size_bytes
    if len(payload) != padded(size) or any(payload[size:]):
        raise InvalidArgument(f"a payload of {len(payload)} bytes has a batch of {size}: pad it with zeros to 8")
    checked = check_batch(payload[:size], has_append_time=True)
    said = header.record_count, header.timestamp_min, header.timestamp_max
    found = checked.record_count, checked.timestamp_min_us, checked.timestamp_max_us
    if said != found:
        raise InvalidArgument(
            f"a frame header has {said[0]} records with timestamps {said[1]} to {said[2]}, its batch has {found[0]} "
            f"with {found[1]} to {found[2]}"
        )


def decode(frame: Frame, topic_schema: pa.Schema | None) -> pa.RecordBatch:
    """Decode a payload, see ``batch.Encoding``: some 3 M records per second."""
    del topic_schema  # such frames have none
    try:
        size = read_header(frame.payload).size_bytes
        columns = columns_of(frame.payload[:size], unpacked_bytes_max=UNPACKED_BYTES_MAX)
    except InvalidBatch as error:
        raise Corrupt(f"frame at offset {frame.header.base_offset}: unreadable payload ({error})") from error
    return pa.RecordBatch.from_arrays(
        [columns.key, array_of(columns.timestamp_us, TIMESTAMP), columns.headers, columns.value], schema=PLAIN_SCHEMA
    )


def clip(frame: Frame, batch: pa.RecordBatch, skipped: int) -> bytes:
    """Return a frame of Arrow columns without the first records, see ``batch.Encoding``."""
    return arrow.clip(frame, batch, skipped)
