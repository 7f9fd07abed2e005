"""Native administration of Kafka consumer groups, through any broker, on real brokers in virtual time."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.kafka.assignment import assigned_partitions
from seaweedmq.errors import InvalidArgument, NotFound, Unavailable
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.group_admin import KafkaGroupMember, KafkaGroupOffset, KafkaGroupSummary
from seaweedmq.model.messages.calls import DeleteKafkaGroup, DescribeKafkaGroup, ListKafkaGroups, ResetKafkaGroup
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, Start, StartKind
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import Testbed
from tests.kafka.group_testbed import TOPIC, Cluster, Member
from tests.sim.machines.determinism import WALL_START_US

GROUP = "billing of a region, written as Kafka allows"
TOPIC_TEXT = str(TOPIC)


def assignment(*topics: tuple[str, list[int]]) -> bytes:
    data = struct.pack(">hi", 1, len(topics))
    for topic, partitions in topics:
        name = topic.encode()
        data += struct.pack(f">h{len(name)}si{len(partitions)}i", len(name), name, len(partitions), *partitions)
    return data + struct.pack(">i", -1)


async def stored(cluster: Cluster, *records: int) -> None:
    """Store this many records in each partition of the topic, a second apart."""
    for partition, count in enumerate(records):
        primary = await cluster.testbed.primary(cluster.gateways[0].host, TOPIC, partition)
        publisher = await primary.publisher(name=TOPIC, segment=partition, producer=partition + 1)
        for number in range(count):
            at_us = WALL_START_US + number * 1_000_000
            await publisher.store(slots=(partition, partition), timestamp=at_us, histogram=(0,) * 16)


async def joined(cluster: Cluster) -> Member:
    """Return the only member, with partitions 0 and 2."""
    member = Member(cluster, GROUP)
    await member.join()
    reply = await member.ask(
        API.SYNC_GROUP,
        5,
        member_id=member.id,
        generation_id=member.generation,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member.id, "assignment": assignment((TOPIC.name, [0, 2]))}],
    )
    assert reply.error_code == Code.NONE
    return member


async def ask(cluster: Cluster, call: Any) -> Any:
    """Return the reply, after checking that every broker gives the same one."""
    answers = [await gateway.host.api.call(call) for gateway in cluster.living()]
    assert answers == answers[:1] * len(answers)
    return answers[0]


async def test_groups_are_listed_and_described_through_any_broker(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 3)
    assert await ask(cluster, ListKafkaGroups()) == ()
    await stored(cluster, 5, 0, 3)
    member = await joined(cluster)
    await member.commit((0, 4), (1, 0))
    await Member(cluster, "a simple one").commit((0, 1))
    assert await ask(cluster, ListKafkaGroups()) == (
        KafkaGroupSummary(group="a simple one", state="Empty", protocol_type="", members=0),
        KafkaGroupSummary(group=GROUP, state="Stable", protocol_type="consumer", members=1),
    )
    found = await ask(cluster, DescribeKafkaGroup(GROUP))
    assert (found.group, found.state, found.protocol_type, found.protocol) == (GROUP, "Stable", "consumer", "range")
    assert found.coordinator == (await cluster.coordinator(GROUP)).host.broker.id
    assert found.members == (
        KafkaGroupMember(
            id=member.id, instance="", client="tests", host="127.0.0.1", partitions=((TOPIC_TEXT, 0), (TOPIC_TEXT, 2))
        ),
    )
    assert found.offsets == (
        KafkaGroupOffset(partition=(TOPIC_TEXT, 0), owner=member.id, committed=4, end_offset=5),
        KafkaGroupOffset(partition=(TOPIC_TEXT, 1), owner="", committed=0, end_offset=0),
        KafkaGroupOffset(partition=(TOPIC_TEXT, 2), owner=member.id, committed=None, end_offset=3),
    )
    assert [offset.lag_records for offset in found.offsets] == [1, 0, None]


async def test_a_group_without_members_is_reset(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 2)
    await stored(cluster, 5, 0, 3)
    member = Member(cluster, GROUP)
    await member.commit((1, 1))
    for start, offsets in (
        (EARLIEST, {0: 0, 1: 0, 2: 0}),
        (LATEST, {0: 5, 1: 0, 2: 3}),
        (Start(StartKind.OFFSET, 2), {0: 2, 1: 2, 2: 2}),
        (Start(StartKind.TIME, WALL_START_US + 2_500_000), {0: 3, 1: 0, 2: 3}),
    ):
        found = await testbed.hosts[1].api.call(ResetKafkaGroup(GROUP, TOPIC, start))
        assert {o.partition[1]: o.committed for o in found.offsets} == offsets, start
        assert await member.committed() == offsets


async def test_a_group_with_members_is_neither_reset_nor_deleted(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 2)
    member = await joined(cluster)
    await member.commit((0, 4))
    for call in (ResetKafkaGroup(GROUP, TOPIC, LATEST), DeleteKafkaGroup(GROUP)):
        with pytest.raises(InvalidArgument, match="has 1 members, which track their own positions: stop them"):
            await testbed.hosts[0].api.call(call)
    await member.leave()
    assert await member.committed() == {0: 4}
    await testbed.hosts[0].api.call(DeleteKafkaGroup(GROUP))
    assert await ask(cluster, ListKafkaGroups()) == ()


async def test_what_is_not_there_is_named(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 2)
    calls = [DescribeKafkaGroup("none"), ResetKafkaGroup("none", TOPIC, LATEST), DeleteKafkaGroup("none")]
    for _ in range(2):
        for call in calls:
            with pytest.raises(NotFound, match="there is no Kafka group 'none'"):
                await testbed.hosts[0].api.call(call)
        await Member(cluster, GROUP).commit((0, 1))  # creates the internal topic
    for name in (TopicName("kafka", "nothing"), TopicName("other", "orders")):
        with pytest.raises(NotFound, match=f"there is no topic {name} for Kafka consumers"):
            await testbed.hosts[0].api.call(ResetKafkaGroup(GROUP, name, LATEST))


async def test_a_broker_that_does_not_listen_for_kafka_clients_says_so(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1)
    await Member(cluster, GROUP).commit((0, 1))
    testbed.hosts[0].broker.ports.cluster.kafka_groups.answer = None
    for call in (ListKafkaGroups(), DescribeKafkaGroup(GROUP)):
        with pytest.raises(Unavailable, match="does not listen for Kafka clients: start every broker with"):
            await testbed.hosts[0].api.call(call)


def test_what_a_consumer_was_assigned_is_read() -> None:
    assert assigned_partitions(assignment(("b", [3, 1]), ("a", [0]))) == (("a", 0), ("b", 1), ("b", 3))
    assert assigned_partitions(b"") == ()
    assert assigned_partitions(b"what Connect writes") == ()
    assert assigned_partitions(struct.pack(">hihihi", 1, 2**31 - 1, -6, 0, -6, 0)) == ()


@given(st.binary(max_size=60))
def test_an_assignment_that_is_none_is_empty(data: bytes) -> None:
    assert isinstance(assigned_partitions(data), tuple)
