"""Header of a record batch, 61 bytes, and the changes that a broker may make to it.

Layout: https://kafka.apache.org/documentation/#recordbatch. The CRC covers everything from the attributes, so that base
offset and leader epoch are written without touching it.
"""

import struct
from typing import Final, NamedTuple

import google_crc32c
import numpy as np

from seaweedmq.codec.kafka.batch_errors import BatchErrorCode, InvalidBatch
from seaweedmq.model.messages.frames import Frames

HEADER_BYTES: Final = 61
HEAD_BYTES: Final = 16
"""Bytes that :func:`patched_head` replaces: base offset, length, leader epoch."""
MAGIC: Final = 2
NO_PRODUCER: Final = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qii")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_LENGTH_AT, _LENGTH_END, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 8, 12, 17, 21, 35
FIRST_TIMESTAMP_AT: Final = 27
"""Position of the first timestamp; the highest follows it."""
_CODEC_MASK, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20

assert _HEADER.size == HEADER_BYTES
assert _HEAD.size == HEAD_BYTES


class BatchHeader(NamedTuple):
    """The fields of a header, in the order of the wire format."""

    base_offset: int
    batch_length: int
    """Bytes behind this field."""
    leader_epoch: int
    magic: int
    crc: int
    """CRC-32C of everything behind this field."""
    attributes: int
    last_offset_delta: int
    first_timestamp_ms: int
    """Base of the records' timestamp deltas; not the lowest timestamp."""
    max_timestamp_ms: int
    """Highest timestamp according to the client; the timestamp of every record if ``has_append_time``."""
    producer_id: int
    """Id of the producer; -1 for none."""
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch in bytes."""
        return _LENGTH_END + self.batch_length

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The number of the codec, 0 to 7."""
        return self.attributes & _CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        """Whether all records have the highest timestamp, which the broker wrote."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch has markers instead of users' records."""
        return bool(self.attributes & _CONTROL)


def read_header(data: Frames) -> BatchHeader:
    """Return the header at the start of ``data``.

    Raises:
        InvalidBatch: If there are too few bytes, or the format is another one.
    """
    if len(data) < HEADER_BYTES:
        raise InvalidBatch(
            BatchErrorCode.INVALID_RECORD,
            f"{len(data)} bytes are not a record batch: its header alone has {HEADER_BYTES}",
        )
    header = BatchHeader._make(_HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise InvalidBatch(
            BatchErrorCode.INVALID_RECORD if 0 <= header.magic < MAGIC else BatchErrorCode.CORRUPT_MESSAGE,
            f"a batch of message format {header.magic}: send format {MAGIC}, as clients do since Kafka 0.11",
        )
    return header


def check_crc(header: BatchHeader, data: Frames) -> None:
    """Verify the CRC of exactly one batch.

    Raises:
        InvalidBatch: If the batch is not the one that was sent.
    """
    found = _crc_of(data)
    if found != header.crc:
        raise InvalidBatch(
            BatchErrorCode.CORRUPT_MESSAGE,
            f"the CRC of a batch is {found:08x} and should be {header.crc:08x}: it was damaged, send it again",
        )


def stored_bytes(payload: Frames) -> int:
    """Return the bytes of the batch in a checked payload, without the padding."""
    return _LENGTH_END + int(_LENGTH.unpack_from(payload, _LENGTH_AT)[0])


def patched_head(payload: Frames, base_offset: int, leader_epoch: int) -> bytes:
    """Return the first ``HEAD_BYTES`` of a stored batch as they are sent; the rest is sent unchanged."""
    _, length, _ = _HEAD.unpack_from(payload)
    return _HEAD.pack(base_offset, length, leader_epoch)


def with_append_time(header: BatchHeader, data: Frames, timestamp_ms: int) -> tuple[BatchHeader, memoryview]:
    """Return the batch and its header with one timestamp for all of its records: Kafka's ``LogAppendTime``."""
    stamped = bytearray(data)
    attributes = header.attributes | _APPEND_TIME
    _ATTRIBUTES.pack_into(stamped, _ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_AT, timestamp_ms)
    crc = write_crc(stamped)
    return header._replace(attributes=attributes, max_timestamp_ms=timestamp_ms, crc=crc), memoryview(stamped)


def write_crc(batch: bytearray) -> int:
    """Update the CRC after a change behind it, and return it."""
    crc = _crc_of(batch)
    _CRC.pack_into(batch, _CRC_AT, crc)
    return crc


def _crc_of(batch: Frames | bytearray) -> int:
    # google_crc32c takes no memoryview, and a copy of 1 MB costs almost as much as its CRC. Of an array it takes the
    # bytes in place.
    return int(google_crc32c.value(np.frombuffer(batch, np.uint8, offset=_ATTRIBUTES_AT)))
