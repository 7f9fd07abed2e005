"""Record batches as clients send them, and malformed ones."""

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from google_crc32c import value as crc32c

from tests.support.kafka_batches import varint

NO_PRODUCER = (-1, -1, -1)
HEADER_BYTES = 61
Header = tuple[str, bytes | None]


def batch(
    *values: bytes | None,
    time_ms: int,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Header] = (),
    codec: int = 0,
    producer: tuple[int, int, int] = NO_PRODUCER,
    transactional: bool = False,
) -> bytes:
    """Return a record batch, a millisecond from record to record. ``producer``: id, epoch, sequence."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, *producer, 1 << 24)
    for i, value in enumerate(values):
        assert builder.append(i, time_ms + i, None if keys is None else keys[i], value, list(headers)) is not None
    return bytes(builder.build())


def with_bytes(data: bytes, position: int, layout: str, value: int, *, mends_crc: bool = True) -> bytes:
    """Set a header field to another value, and correct the CRC unless ``mends_crc`` is false."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    if mends_crc:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def with_magic(data: bytes, magic: int) -> bytes:
    """Return a batch that claims another format."""
    return with_bytes(data, 16, ">b", magic)


def with_attributes(data: bytes, attributes: int) -> bytes:
    """Set the attributes: bits 0-2 codec, 3 append time, 4 transactional, 5 control."""
    return with_bytes(data, 21, ">h", attributes)


def with_count(data: bytes, count: int) -> bytes:
    """Return a batch that claims this many records."""
    return with_bytes(data, 57, ">i", count)


def with_last_delta(data: bytes, delta: int) -> bytes:
    """Return a batch that claims this number for its last record."""
    return with_bytes(data, 23, ">i", delta)


def with_wrong_crc(data: bytes) -> bytes:
    """Flip a bit of the CRC."""
    return with_bytes(data, 17, ">I", struct.unpack_from(">I", data, 17)[0] ^ 1, mends_crc=False)


def with_length(data: bytes, length: int) -> bytes:
    """Return a batch that claims this length."""
    return with_bytes(data, 8, ">i", length, mends_crc=False)


def with_body(data: bytes, body: bytes, codec: int = 0) -> bytes:
    """Replace the records by others, packed by a codec."""
    made = with_length(data[:HEADER_BYTES] + body, HEADER_BYTES - 12 + len(body))
    return with_attributes(made, codec)


def record(names: Sequence[bytes | None]) -> bytes:
    """Return the one record of a batch, with the key k, the value v, and headers of these names."""
    headers = b"".join(varint(-1 if name is None else len(name)) + (name or b"") + varint(0) for name in names)
    body = b"\0\0\0" + varint(1) + b"k" + varint(1) + b"v" + varint(len(names)) + headers
    return varint(len(body)) + body
