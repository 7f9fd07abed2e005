"""The hand-written Fetch reply: byte for byte what two other implementations write."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.kafka.wire.fields import Endpoint
from seaweedmq.kafka.wire.messages import API, FetchResponse
from seaweedmq.kafka.wire.replies.fetch_reply import FetchedPartition, FetchedTopic, fetch_reply
from tests.kafka.wire import oracle

VERSIONS = range(4, 18)
I64 = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.lists(st.binary(max_size=20) | st.just(b"r" * 300), max_size=3)
PARTITIONS = st.builds(
    FetchedPartition,
    index=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 120),
    high_watermark=I64,
    last_stable_offset=I64,
    log_start_offset=I64,
    records=RECORDS,
    aborted=st.none() | st.lists(st.tuples(I64, I64), max_size=3),
    leader_id=st.integers(-1, 5),
    leader_epoch=st.integers(-1, 5),
)
TOPICS = st.builds(
    FetchedTopic,
    name=st.text(max_size=200),
    topic_id=st.uuids().map(lambda one: one.bytes),
    partitions=st.lists(PARTITIONS, max_size=3),
)
ENDPOINTS = st.lists(st.builds(Endpoint, st.integers(0, 9), st.text(max_size=90), st.integers(0, 65_535)), max_size=3)


def by_kafka_python(version: int, topics: list[FetchedTopic], endpoints: list[Endpoint], **head: int) -> bytes:
    of_topic = FetchResponse.FetchableTopicResponse
    of_partition = of_topic.PartitionData
    responses = []
    for topic in topics:
        partitions = []
        for one in topic.partitions:
            aborted = (
                None
                if one.aborted is None
                else [
                    of_partition.AbortedTransaction(version=version, producer_id=producer, first_offset=first)
                    for producer, first in one.aborted
                ]
            )
            part = of_partition(
                version=version,
                partition_index=one.index,
                error_code=one.error_code,
                high_watermark=one.high_watermark,
                last_stable_offset=one.last_stable_offset,
                log_start_offset=one.log_start_offset,
                aborted_transactions=aborted,
                records=b"".join(one.records),
            )
            if version >= 12 and (one.leader_id >= 0 or one.leader_epoch >= 0):
                part.current_leader = of_partition.LeaderIdAndEpoch(
                    version=version, leader_id=one.leader_id, leader_epoch=one.leader_epoch
                )
            partitions.append(part)
        responses.append(
            of_topic(version=version, topic=topic.name, topic_id=uuid.UUID(bytes=topic.topic_id), partitions=partitions)
        )
    reply = FetchResponse(version=version, responses=responses, **head)
    if version >= 16:
        reply.node_endpoints = [
            FetchResponse.NodeEndpoint(version=version, node_id=one.node_id, host=one.host, port=one.port, rack=None)
            for one in endpoints
        ]
    return bytes(reply.encode())


@pytest.mark.parametrize("version", VERSIONS)
@given(
    topics=st.lists(TOPICS, max_size=3),
    endpoints=ENDPOINTS,
    throttle=st.integers(0, 1_000),
    error=st.integers(-1, 120),
    session=st.integers(0, 2**31 - 1),
)
def test_it_is_what_kafka_python_writes_and_kio_reads(
    version: int, topics: list[FetchedTopic], endpoints: list[Endpoint], throttle: int, error: int, session: int
) -> None:
    reply = fetch_reply(
        version, topics, throttle_ms=throttle, error_code=error, session_id=session, endpoints=endpoints
    )
    data = b"".join(reply.buffers)
    head = {"throttle_time_ms": throttle} | ({"error_code": error, "session_id": session} if version >= 7 else {})
    assert data == by_kafka_python(version, topics, endpoints, **head)
    found = oracle.decode(API.FETCH, version, "response", data)
    assert [len(topic.partitions) for topic in found.responses] == [len(topic.partitions) for topic in topics]
    assert [one.records for topic in found.responses for one in topic.partitions] == [
        b"".join(one.records) for topic in topics for one in topic.partitions
    ]


def test_records_are_the_very_buffers_that_were_given() -> None:
    head, rest = bytes(16), memoryview(bytes(1_000_000))
    partitions = [FetchedPartition(index=i, records=[head, rest]) for i in range(3)]
    buffers = fetch_reply(12, [FetchedTopic(name="t", partitions=partitions)]).buffers
    assert sum(one is rest for one in buffers) == 3
    assert len(buffers) == 1 + 3 * 3
