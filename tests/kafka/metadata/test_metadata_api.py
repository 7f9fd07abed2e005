"""Metadata, DescribeCluster and DescribeTopicPartitions; differential scenes have the codes of all versions."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.codec.paths import TOPIC_DOCUMENT
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.core.kafka.topic_ids import topic_id_of
from seaweedmq.kafka.wire.messages import API, MetadataResponse
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.calls import DeleteTopic
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import CONFIG, Testbed
from tests.kafka.byte_client import ByteClient, byte_clients, versions
from tests.kafka.differential.scenes.topics import new

ORDERS = TopicName("kafka", "orders")


def named(*names: str | None) -> list[Any]:
    return [{"name": name} for name in names]


def codes(reply: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in reply.topics]


async def ask(client: ByteClient, topics: Any, version: int = 13, create: bool = False, **more: Any) -> Any:
    return await client.ask(API.METADATA, version, topics=topics, allow_auto_topic_creation=create, **more)


async def test_every_version_tells_brokers_and_all_topics(testbed: Testbed) -> None:
    first, second = await byte_clients(testbed, 2)
    made = await testbed.topic(first.host, ORDERS, partitions=3, replicas=2)
    for version in versions(API.METADATA):
        reply: MetadataResponse = await ask(first, [] if version == 0 else None, version)
        assert [(b.node_id, b.host, b.port) for b in reply.brokers] == [(1, "broker-0", 9092), (2, "broker-1", 9092)]
        assert codes(reply) == [("orders", Code.NONE)], version
        (topic,) = reply.topics
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        for partition in topic.partitions:
            assert partition.error_code == Code.NONE
            assert partition.leader_id == partition.replica_nodes[0]
            assert sorted(partition.replica_nodes) == sorted(partition.isr_nodes) == [1, 2]
            assert partition.leader_epoch == (partition.partition_index if version >= 7 else -1), version
            assert not partition.offline_replicas
        if version >= 1:
            assert reply.controller_id == first.nodes.number_of(testbed.leader().broker.id)
        if version >= 2:
            assert reply.cluster_id == first.nodes.cluster_id
        if version >= 10:
            assert topic.topic_id.bytes == topic_id_of(made.topic.uid)
    cluster = await first.ask(API.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)
    assert [(b.broker_id, b.host, b.port) for b in cluster.brokers] == [(1, "broker-0", 9092), (2, "broker-1", 9092)]
    assert (cluster.cluster_id, cluster.controller_id) == (first.nodes.cluster_id, first.nodes.controller())
    await second.nodes.ready()
    assert second.nodes.cluster_id == first.nodes.cluster_id


# --- auto-creation


async def test_a_topic_that_is_asked_for_is_created(testbed: Testbed) -> None:
    client, *others = await byte_clients(testbed, 4)
    reply = await ask(client, named("orders", "a/b"), create=True)
    assert codes(reply) == [("orders", Code.NONE), ("a/b", Code.INVALID_TOPIC_EXCEPTION)]
    (topic, _) = reply.topics
    assert len(topic.partitions) == 4
    assert all(len(partition.replica_nodes) == 3 for partition in topic.partitions)
    assert all(partition.leader_id > 0 for partition in topic.partitions)
    await testbed.until(lambda: all(ORDERS in other.host.inspect.view.topics for other in others))
    # Before version 4, every request wants its topics created.
    assert codes(await client.ask(API.METADATA, 3, topics=named("returns"))) == [("returns", Code.NONE)]


async def test_one_client_gets_only_so_many_topics_created_in_a_minute(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    (client,) = await byte_clients(
        testbed, 1, replace(CONFIG, kafka_auto_create_per_minute_max=6, kafka_partitions_default=1)
    )
    names = [f"t{number}" for number in range(20)]

    async def created() -> int:
        found = codes(await ask(client, named(*names), create=True))
        assert {code for _, code in found} <= {Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION}
        return sum(code == Code.NONE for _, code in found)

    assert await created() == 6
    assert await created() == 6
    await asyncio.sleep(30)
    assert await created() == 9
    said = [record.message for record in caplog.records if "kafka_auto_create_per_minute_max" in record.message]
    assert len(said) == 1, "once a minute"
    assert (
        "14 of 20, the first kafka/t6: kafka_auto_create_per_minute_max is 6: create them with CreateTopics" in said[0]
    )


async def test_topics_leave_room_for_that_of_the_groups(testbed: Testbed) -> None:
    config = replace(CONFIG, kafka_listen="127.0.0.1:0", open_segments_max=20, kafka_internal_partitions=4)
    (client,) = await byte_clients(testbed, 1, replace(config, kafka_partitions_default=2))
    names = [f"t{number}" for number in range(20)]
    found = codes(await ask(client, named(*names), create=True))
    assert [code for _, code in found] == [Code.NONE] * 8 + [Code.INVALID_TOPIC_EXCEPTION] * 12
    reply = await client.ask(API.FIND_COORDINATOR, 2, key="billing", key_type=0)
    assert reply.error_code == Code.NONE, reply.error_message
    assert len(client.host.inspect.view.open_of(TopicName("kafka", "__consumer_offsets"))) == 4


async def test_nothing_is_created_where_it_is_not_wanted(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1, replace(CONFIG, kafka_auto_create=False))
    assert codes(await ask(client, named("orders"), create=True)) == [("orders", Code.UNKNOWN_TOPIC_OR_PARTITION)]
    assert not client.host.inspect.view.topics


async def test_a_topic_whose_folder_is_another_ones_is_not_created(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients give up at this code; the reason is logged once, and is in the reply to CreateTopics."""
    first, second = await byte_clients(testbed, 2)
    topic = replace((await testbed.topic(first.host, ORDERS, partitions=1)).topic, uid=7)
    await first.host.api.call(DeleteTopic(ORDERS))
    await testbed.store.put_documents(ORDERS, {TOPIC_DOCUMENT: topic_document(topic)}, uid=7, revision=1)
    for asked in (first, second, second):
        reply = await ask(asked, named("orders"), create=True)
        assert codes(reply) == [("orders", Code.INVALID_TOPIC_EXCEPTION)]
    said = [record.message for record in caplog.records if "topic not created for a Kafka client" in record.message]
    assert len(said) == 2, "by each broker, once"
    assert "topics/kafka/orders of storage memory holds files of another topic" in said[0]
    wanted = [new("orders")]
    (made,) = (await second.ask(API.CREATE_TOPICS, topics=wanted, timeout_ms=5_000, validate_only=False)).topics
    assert made.error_code == Code.POLICY_VIOLATION
    assert "seaweedmq cluster recover" in made.error_message


async def test_two_brokers_that_create_a_topic_at_once_both_have_it(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    replies = await asyncio.gather(*(ask(client, named("orders"), create=True) for client in both))
    assert [codes(reply) for reply in replies] == [[("orders", Code.NONE)]] * 2
    assert replies[0].topics[0].topic_id == replies[1].topics[0].topic_id


async def test_what_is_internal_or_not_shown_is_not_created_by_asking(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    reply = await ask(client, named("__consumer_offsets"), create=True)
    assert codes(reply) == [("__consumer_offsets", Code.UNKNOWN_TOPIC_OR_PARTITION)]
    await testbed.topic(client.host, TopicName("kafka", "__consumer_offsets"), partitions=2)
    (topic,) = (await ask(client, named("__consumer_offsets"))).topics
    assert topic.is_internal

    made = await testbed.topic(client.host, ORDERS)
    reply = await ask(client, named("orders"), create=True)
    assert codes(reply) == [("orders", Code.UNKNOWN_TOPIC_OR_PARTITION)]
    assert client.host.inspect.view.topics[ORDERS].uid == made.topic.uid


async def test_what_can_not_be_created_now_may_be_asked_for_again(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await client.nodes.ready()
    testbed.etcd.server.freeze()
    reply = await ask(client, named("orders"), create=True)
    assert reply.topics[0].error_code in (Code.LEADER_NOT_AVAILABLE, Code.REQUEST_TIMED_OUT)
    testbed.etcd.server.thaw()


# --- DescribeTopicPartitions


async def test_partitions_of_all_topics_come_page_by_page(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    for name, partitions in (("a", 2), ("b", 3), ("c", 1)):
        await testbed.topic(client.host, TopicName("kafka", name), partitions=partitions)
    cursor, pages = None, []
    while len(pages) < 3:
        reply = await client.ask(API.DESCRIBE_TOPIC_PARTITIONS, topics=[], response_partition_limit=3, cursor=cursor)
        pages.append([(topic.name, [p.partition_index for p in topic.partitions]) for topic in reply.topics])
        if (after := reply.next_cursor) is None:
            break
        cursor = {"topic_name": after.topic_name, "partition_index": after.partition_index}
    assert pages == [[("a", [0, 1]), ("b", [0])], [("b", [1, 2]), ("c", [0])]]


# --- leaders that died a moment ago


async def test_a_leader_that_died_a_moment_ago_is_not_named_and_the_next_one_is(testbed: Testbed) -> None:
    everybody = await byte_clients(testbed, 3)
    await testbed.topic(everybody[0].host, ORDERS, partitions=6, replicas=2)
    dying = next(client for client in everybody if client.host is not testbed.leader())
    left = [client for client in everybody if client is not dying]
    before = (await ask(left[0], named("orders"))).topics[0].partitions
    node = left[0].nodes.number_of(dying.host.broker.id)
    lost = {p.partition_index for p in before if p.leader_id == node}
    assert lost
    dying.host.kill()
    killed_at = testbed.loop.time()
    for client in left:
        (topic,) = (await ask(client, named("orders"))).topics
        for partition in topic.partitions:
            is_lost = partition.partition_index in lost
            assert partition.error_code == (Code.LEADER_NOT_AVAILABLE if is_lost else Code.NONE)
            assert (partition.leader_id == -1) is is_lost
    assert testbed.loop.time() - killed_at < 0.1, "before another broker could take over"

    async def lead_again() -> bool:
        (topic,) = (await ask(left[0], named("orders"))).topics
        return all(p.leader_id not in (-1, node) and p.error_code == Code.NONE for p in topic.partitions)

    async with asyncio.timeout(5.0):
        while not await lead_again():  # noqa: ASYNC110 - a client retries
            await asyncio.sleep(0.1)


async def test_a_leader_that_is_slow_is_named_all_the_same(testbed: Testbed) -> None:
    first, second = await byte_clients(testbed, 2)
    await testbed.topic(first.host, ORDERS, partitions=4, replicas=2)
    second.host.freeze()
    frozen_at = testbed.loop.time()
    (topic,) = (await ask(first, named("orders"))).topics
    assert {p.leader_id for p in topic.partitions} == {1, 2}
    assert {p.error_code for p in topic.partitions} == {Code.NONE}
    assert testbed.loop.time() - frozen_at < 0.5
    second.host.thaw()
