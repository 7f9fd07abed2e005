"""The 61 bytes in front of a record batch, and what a broker may change in them.

Layout: https://kafka.apache.org/documentation/#recordbatch. The CRC covers everything from the attributes on, so that
base offset and leader epoch are written without touching it.
"""

import struct
from typing import Final, NamedTuple

import google_crc32c

from seaweedmq.codec.kafka.refusals import BatchRefused, Refusal
from seaweedmq.model.frames import Frames

HEADER_BYTES: Final = 61
HEAD_BYTES: Final = 16
"""What :func:`patched_head` replaces: base offset, length, leader epoch."""
MAGIC: Final = 2
NO_PRODUCER: Final = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_LENGTH_AT, _LENGTH_END = 8, 12
CRC_AT, ATTRIBUTES_AT, FIRST_TIMESTAMP_AT, MAX_TIMESTAMP_AT = 17, 21, 27, 35
"""The CRC is of what begins with the attributes."""
_CODEC_MASK, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20

assert _HEADER.size == HEADER_BYTES
assert _HEAD.size == HEAD_BYTES


class BatchHeader(NamedTuple):
    """As on the wire, in its order."""

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
    """What the records' timestamps are relative to; not the lowest of them."""
    max_timestamp_ms: int
    """What the client says it is; the timestamp of every record if ``has_append_time``."""
    producer_id: int
    """-1: none."""
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Of the whole batch."""
        return _LENGTH_END + self.batch_length

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """0 to 7."""
        return self.attributes & _CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        """All records have the last timestamp, which the broker wrote."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """It has markers, and no records of users."""
        return bool(self.attributes & _CONTROL)


def read_header(data: Frames) -> BatchHeader:
    """The header at the start of ``data``.

    Raises:
        BatchRefused: too few bytes, or another format.
    """
    if len(data) < HEADER_BYTES:
        raise BatchRefused(
            Refusal.INVALID_RECORD, f"{len(data)} bytes are no record batch: its header alone has {HEADER_BYTES}"
        )
    header = BatchHeader._make(_HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise BatchRefused(
            Refusal.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"a batch of message format {header.magic}: send format {MAGIC}, as clients do since Kafka 0.11",
        )
    return header


def check_crc(header: BatchHeader, data: Frames) -> None:
    """Raise BatchRefused unless the batch is the one that was sent. ``data``: exactly the batch."""
    found = google_crc32c.value(bytes(data[ATTRIBUTES_AT:]))
    if found != header.crc:
        raise BatchRefused(
            Refusal.CORRUPT_MESSAGE,
            f"the CRC of a batch is {found:08x} and should be {header.crc:08x}: it was damaged, send it again",
        )


def batch_bytes(payload: Frames) -> memoryview:
    """The batch without the zeros that fill its frame. Requires a payload that was checked."""
    view = memoryview(payload)
    (length,) = struct.unpack_from(">i", view, _LENGTH_AT)
    return view[: _LENGTH_END + length]


def patched_head(payload: Frames, base_offset: int, leader_epoch: int) -> bytes:
    """The first ``HEAD_BYTES`` of a stored batch as they are sent out; what follows is sent as it is."""
    _, length, _ = _HEAD.unpack_from(payload)
    return _HEAD.pack(base_offset, length, leader_epoch)


def with_append_time(data: Frames, timestamp_ms: int) -> bytes:
    """The same batch, with one timestamp for all of its records: Kafka's ``LogAppendTime``."""
    stamped = bytearray(data)
    (attributes,) = _ATTRIBUTES.unpack_from(stamped, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(stamped, ATTRIBUTES_AT, attributes | _APPEND_TIME)
    _TIMESTAMP.pack_into(stamped, MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(stamped, CRC_AT, google_crc32c.value(bytes(memoryview(stamped)[ATTRIBUTES_AT:])))
    return bytes(stamped)
