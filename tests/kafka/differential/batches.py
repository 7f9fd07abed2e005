"""Record batches as clients send them, and malformed ones."""

from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from seaweedmq.codec.kafka.header import HEADER_BYTES
from tests.support.kafka_batches import T0_MS, changed, varint

Header = tuple[str, bytes | None]


def batch(
    *values: bytes | None,
    time_ms: int = T0_MS,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Header] = (),
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a record batch, a millisecond from record to record. ``producer``: id, epoch, sequence."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, *producer, 1 << 24)
    for i, value in enumerate(values):
        assert builder.append(i, time_ms + i, None if keys is None else keys[i], value, list(headers)) is not None
    return bytes(builder.build())


def with_body(data: bytes, body: bytes, codec: int = 0) -> bytes:
    """Replace the records by others, packed by a codec."""
    return changed(data[:HEADER_BYTES] + body, batch_length=HEADER_BYTES - 12 + len(body), attributes=codec)


def record(names: Sequence[bytes | None]) -> bytes:
    """Return the one record of a batch, with the key k, the value v, and headers of these names."""
    headers = b"".join(varint(-1 if name is None else len(name)) + (name or b"") + varint(0) for name in names)
    body = b"\0\0\0" + varint(1) + b"k" + varint(1) + b"v" + varint(len(names)) + headers
    return varint(len(body)) + body
