"""The hand-written Produce reply: byte for byte what two other implementations write."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.kafka.wire.fields import Endpoint
from seaweedmq.kafka.wire.messages import API, ProduceResponse
from seaweedmq.kafka.wire.replies.produce_reply import ProducedPartition, ProducedTopic, produce_reply
from seaweedmq.runtime.turns import at_once
from tests.kafka.wire import oracle

VERSIONS = range(3, 14)
I64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(
    ProducedPartition,
    index=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 120),
    base_offset=I64,
    log_append_time_ms=st.integers(-1, 2**41),
    log_start_offset=I64,
    record_errors=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.text(max_size=200)), max_size=3),
    error_message=st.none() | st.text(max_size=200),
    leader_id=st.integers(-1, 5),
    leader_epoch=st.integers(-1, 5),
)
TOPICS = st.builds(
    ProducedTopic,
    name=st.text(max_size=200),
    topic_id=st.uuids().map(lambda one: one.bytes),
    partitions=st.lists(PARTITIONS, max_size=3),
)
ENDPOINTS = st.lists(st.builds(Endpoint, st.integers(0, 9), st.text(max_size=90), st.integers(0, 65_535)), max_size=3)


def by_kafka_python(version: int, topics: list[ProducedTopic], endpoints: list[Endpoint], throttle: int) -> bytes:
    of_topic = ProduceResponse.TopicProduceResponse
    of_partition = of_topic.PartitionProduceResponse
    responses = []
    for topic in topics:
        partitions = []
        for one in topic.partitions:
            part = of_partition(
                version=version,
                index=one.index,
                error_code=one.error_code,
                base_offset=one.base_offset,
                log_append_time_ms=one.log_append_time_ms,
                log_start_offset=one.log_start_offset,
                record_errors=[
                    of_partition.BatchIndexAndErrorMessage(
                        version=version, batch_index=number, batch_index_error_message=why
                    )
                    for number, why in (one.record_errors if version >= 8 else ())
                ],
                error_message=one.error_message,
            )
            if version >= 10 and (one.leader_id >= 0 or one.leader_epoch >= 0):
                part.current_leader = of_partition.LeaderIdAndEpoch(
                    version=version, leader_id=one.leader_id, leader_epoch=one.leader_epoch
                )
            partitions.append(part)
        responses.append(
            of_topic(
                version=version,
                name=topic.name,
                topic_id=uuid.UUID(bytes=topic.topic_id),
                partition_responses=partitions,
            )
        )
    reply = ProduceResponse(version=version, responses=responses, throttle_time_ms=throttle)
    if version >= 10:
        reply.node_endpoints = [
            ProduceResponse.NodeEndpoint(version=version, node_id=one.node_id, host=one.host, port=one.port, rack=None)
            for one in endpoints
        ]
    return bytes(reply.encode())


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=st.lists(TOPICS, max_size=3), endpoints=ENDPOINTS, throttle=st.integers(0, 1_000))
def test_it_is_what_kafka_python_writes_and_kio_reads(
    version: int, topics: list[ProducedTopic], endpoints: list[Endpoint], throttle: int
) -> None:
    data = b"".join(at_once(produce_reply(version, topics, throttle_ms=throttle, endpoints=endpoints)).buffers)
    assert data == by_kafka_python(version, topics, endpoints, throttle)
    found = oracle.decode(API.PRODUCE, version, "response", data)
    assert [[(one.index, one.base_offset) for one in topic.partition_responses] for topic in found.responses] == [
        [(one.index, one.base_offset) for one in topic.partitions] for topic in topics
    ]
