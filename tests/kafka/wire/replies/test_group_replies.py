"""Frequent replies to group members: byte for byte what two other implementations write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.kafka.wire.messages import API, HeartbeatResponse, OffsetCommitResponse
from seaweedmq.kafka.wire.replies.group_replies import TopicErrors, commit_reply, heartbeat_reply
from seaweedmq.kafka.wire.versions import ADVERTISED
from seaweedmq.runtime.turns import at_once
from tests.kafka.wire import oracle

HEARTBEATS, COMMITS = ADVERTISED[API.HEARTBEAT], ADVERTISED[API.OFFSET_COMMIT]
ERRORS = st.sampled_from((0, 3, 16, 25, 27))
PARTITIONS = st.lists(st.tuples(st.integers(0, 2**31 - 1), ERRORS), max_size=3) | st.just([(7, 0)] * 200)
TOPICS = st.lists(st.tuples(st.text(max_size=200), PARTITIONS), max_size=3)


@pytest.mark.parametrize("version", range(HEARTBEATS.lowest, HEARTBEATS.highest + 1))
@given(error=ERRORS)
def test_of_a_heartbeat(version: int, error: int) -> None:
    data = b"".join(heartbeat_reply(version, error).buffers)
    assert data == bytes(HeartbeatResponse(version=version, error_code=error).encode())
    assert oracle.decode(API.HEARTBEAT, version, "response", data).error_code == error


@pytest.mark.parametrize("version", range(COMMITS.lowest, COMMITS.highest + 1))
@given(topics=TOPICS)
def test_of_a_commit(version: int, topics: list[TopicErrors]) -> None:
    make = OffsetCommitResponse.OffsetCommitResponseTopic
    of_each = make.OffsetCommitResponsePartition
    reply = OffsetCommitResponse(
        version=version,
        topics=[
            make(
                version=version,
                name=name,
                partitions=[of_each(version=version, partition_index=n, error_code=error) for n, error in partitions],
            )
            for name, partitions in topics
        ],
    )
    data = b"".join(at_once(commit_reply(version, topics)).buffers)
    assert data == bytes(reply.encode())
    found = oracle.decode(API.OFFSET_COMMIT, version, "response", data)
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in found.topics] == topics
