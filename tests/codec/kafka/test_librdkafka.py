"""Batches of librdkafka are accepted and readable. Its own mock broker, inside of the client, stores the bytes."""

import socket
import struct
from collections.abc import Iterator

import pytest
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.fetch import FetchRequest_v4, FetchResponse_v4
from confluent_kafka import Producer

from seaweedmq.codec.kafka.batch import check_batch, frame_of_batch
from seaweedmq.codec.kafka.header import BatchHeader, read_header
from seaweedmq.codec.payload.batch import decode_frame
from tests.support.kafka_batches import T0_MS, Record

SENT = [
    Record(
        None if n % 3 == 0 else b"k%d" % n,
        None if n % 5 == 0 else b"v" * n,
        (("h", b"%d" % n), ("n", None), ("h", b"")) if n % 2 else (),
        T0_MS - n,
    )
    for n in range(200)
]


def sent_by_librdkafka(compression: str, *, idempotent: bool) -> bytes:
    """Return the batches of ``SENT``, contiguous; the first record may be in one of its own."""
    producer = Producer(
        {
            "bootstrap.servers": "mock",
            "test.mock.num.brokers": 1,
            "compression.codec": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 5_000,  # until all are queued and flushed
            "log_level": 0,
        }
    )
    for record in SENT:
        producer.produce(
            "t",
            partition=0,
            key=record.key,
            value=record.value,
            headers=list(record.headers) or None,
            timestamp=record.timestamp_ms,
        )
    assert producer.flush(30) == 0
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    kept = b""
    with socket.create_connection((broker.host, broker.port), timeout=30) as connection:
        while (count := sum(header.record_count for header in headers_of(kept))) < len(SENT):
            found = fetch(connection, count)
            assert found, f"the mock has no more than {count} records"
            kept += found
    return kept


def fetch(connection: socket.socket, offset: int) -> bytes:
    """Return the rest of the batches from an offset on: librdkafka may have sent the first record in one of its own."""
    request = FetchRequest_v4(-1, 1_000, 1, 1 << 24, 0, [("t", [(0, offset, 1 << 24)])])
    message = RequestHeader_v1(request).encode() + request.encode()
    connection.sendall(struct.pack(">i", len(message)) + message)
    with connection.makefile("rb") as replies:
        (size,) = struct.unpack(">i", replies.read(4))
        ((_, ((*_, batches),)),) = FetchResponse_v4.decode(replies.read(size)[4:]).topics
    return bytes(batches)


def headers_of(batches: bytes) -> Iterator[BatchHeader]:
    while batches:
        header = read_header(batches)
        yield header
        batches = batches[header.size_bytes :]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_its_batches_are_let_in_and_read(compression: str, idempotent: bool) -> None:
    batches = sent_by_librdkafka(compression, idempotent=idempotent)
    rows: list[Record] = []
    while batches:
        size = read_header(batches).size_bytes
        batch, batches = batches[:size], batches[size:]
        checked = check_batch(batch)
        frame = frame_of_batch(batch, 0, checked)
        assert (frame.header.producer_id > 0) == idempotent
        assert frame.header.first_sequence == (len(rows) if idempotent else 0)
        for row in decode_frame(frame, None).to_pylist():
            moment_ms = round(row["_timestamp"].timestamp() * 1_000)
            rows.append(Record(row["_key"], row["_value"], tuple(row["_headers"] or ()), moment_ms))
    assert rows == SENT
