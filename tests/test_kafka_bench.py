"""Tests of the Kafka suite's own protocol: its encoding without a client library conforms to Kafka's schemas."""

import io

import pytest

pytest.importorskip("aiokafka")
pytest.importorskip("kafka")

from benchmarks.contest.errors import Failed
from benchmarks.data import random_table
from benchmarks.kafka.batches import batch_of, batches_of
from benchmarks.kafka.wire import CLIENT, FETCH_VERSION, PRODUCE_VERSION, fetched, produce_head
from benchmarks.neighbors.requests import OF_MANY, largest
from seaweedmq.codec.kafka.batch import check_batch
from seaweedmq.kafka.wire.messages import FetchResponse, Line, ProduceRequest
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from tests.support.kafka_wire import read_request

pytestmark = pytest.mark.deep

CONTEXT = CallContext(listener=ListenerKind.KAFKA, peer="127.0.0.1:1")
BEFORE_BODY = 4 + 2 + 2 + 4 + 2 + len(CLIENT)
"""Length, key, version, correlation id, client id."""


def fetch_reply(records: bytes, error: int = 0) -> memoryview:
    """Return a reply for one partition of the topic ``t``, with its correlation id."""
    make = FetchResponse.FetchableTopicResponse
    offsets = {"high_watermark": 100, "last_stable_offset": 100, "log_start_offset": 0}
    part = make.PartitionData(
        **(offsets | {"version": FETCH_VERSION, "partition_index": 0, "error_code": error, "records": records}),
        aborted_transactions=[],
        preferred_read_replica=-1,
    )
    reply = FetchResponse(
        version=FETCH_VERSION,
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[make(version=FETCH_VERSION, topic="t", partitions=[part])],
    )
    return memoryview(b"\0\0\0\0" + bytes(reply.encode(version=FETCH_VERSION)))


def test_a_produce_request_ends_with_its_batch() -> None:
    batch = batch_of([b"one", b"two"])
    request = produce_head("t", len(batch)) + batch
    assert int.from_bytes(request[:4], "big") == len(request) - 4
    body = ProduceRequest.decode(io.BytesIO(request[BEFORE_BODY:]), version=PRODUCE_VERSION)
    (topic,) = body.topic_data
    (part,) = topic.partition_data
    assert (topic.name, part.index, bytes(part.records)) == ("t", 0, batch)


def test_a_fetch_reply_is_read_by_its_batches_heads() -> None:
    first, second = bytearray(batch_of([b"one", b"two"])), bytearray(batch_of([b"three"]))
    first[:8], second[:8] = (40).to_bytes(8, "big"), (42).to_bytes(8, "big")
    records = bytes(first + second)
    assert fetched(fetch_reply(records), "t") == (3, len(records), 43)
    assert fetched(fetch_reply(b""), "t") == (0, 0, -1)
    with pytest.raises(Failed, match="error 3"):
        fetched(fetch_reply(b"", error=3), "t")


def test_batches_are_sound_and_of_the_promised_size() -> None:
    batches = batches_of(random_table(2_500_000, 1_000))
    checked = [check_batch(batch, unpacked_bytes_max=1 << 26, compacted=False) for batch in batches]
    assert [one.header.record_count for one in checked] == [1_000, 1_000, 500]
    assert all(len(batch) <= 1_048_588 for batch in batches)


def test_the_largest_requests_of_a_neighbor_are_taken() -> None:
    for api in OF_MANY:
        data = memoryview(largest(api))[4:]
        request = read_request(data, context=CONTEXT, connection=1, line=Line())
        assert request.api == api
