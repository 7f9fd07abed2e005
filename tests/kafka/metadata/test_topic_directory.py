"""Topics as Kafka's clients see them, over the live view of real brokers."""

import pytest

from seaweedmq.core.kafka.topic_ids import topic_id_of, uid_of
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.calls import AlterTopic, DeleteTopic, MoveSegment, SealSegment, SplitSegment
from seaweedmq.model.topic import Scaling, TopicChange, TopicName
from tests.broker.testbed import Testbed
from tests.kafka.byte_client import ByteClient, byte_client, byte_clients

ORDERS = TopicName("kafka", "orders")


def code(client: ByteClient, name_or_id: str | bytes) -> int:
    with pytest.raises(KafkaError) as caught:
        client.directory.find(name_or_id)
    return caught.value.kafka_code


def leaders(topic: PartitionedTopic) -> list[tuple[int, Code]]:
    return [(partition.leader, partition.error) for partition in topic.partitions()]


async def test_topics_are_found_by_name_and_by_id_until_they_are_deleted(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    made = await testbed.topic(client.host, ORDERS, partitions=1)
    topic_id = client.directory.find("orders").id
    assert uid_of(topic_id) == made.topic.uid
    assert client.directory.find(topic_id).name == "orders"
    assert code(client, "returns") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert code(client, "a/b") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert code(client, topic_id_of(made.topic.uid ^ 1)) == Code.UNKNOWN_TOPIC_ID
    assert code(client, topic_id[:8] + bytes(8)) == Code.UNKNOWN_TOPIC_ID
    for number in (-1, 1):
        with pytest.raises(KafkaError, match="it has 1, from 0") as caught:
            client.directory.find("orders").partition(number)
        assert caught.value.kafka_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    # The id of a deleted topic is not that of the next one.
    await client.host.api.call(DeleteTopic(ORDERS))
    assert code(client, topic_id) == Code.UNKNOWN_TOPIC_ID
    assert code(client, "orders") == Code.UNKNOWN_TOPIC_OR_PARTITION
    await testbed.topic(client.host, ORDERS, partitions=3)
    assert code(client, topic_id) == Code.UNKNOWN_TOPIC_ID
    again = client.directory.find("orders")
    assert (again.count, again.id == topic_id) == (3, False)
    assert client.directory.find(again.id).count == 3


async def test_only_one_namespace_is_shown_and_no_ring_that_scales_by_itself(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    for name in ("shop/orders", "kafka/returns", "kafka/orders"):
        await testbed.topic(client.host, TopicName.parse(name), partitions=1)
    await testbed.topic(client.host, TopicName("kafka", "ring"))
    assert [topic.name for topic in client.directory.topics()] == ["orders", "returns"]
    assert code(client, "ring") == Code.UNKNOWN_TOPIC_OR_PARTITION, "it scales by itself"
    await client.host.api.call(AlterTopic(TopicName("kafka", "ring"), TopicChange(scaling=Scaling.FIXED)))
    assert client.directory.find("ring").count == 1


async def test_a_ring_is_shown_to_readers_until_it_is_cut(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, ORDERS, segments=4, scaling=Scaling.FIXED)
    ring = client.directory.find("orders")
    assert (ring.count, ring.is_writable) == (4, False)
    assert [ring.slot(number) for number in range(4)] == [0, 16_384, 32_768, 49_152]
    await client.host.api.call(SealSegment(ORDERS, 1))
    epochs = [partition.leader_epoch for partition in client.directory.find("orders").partitions()]
    assert epochs == [0, 4, 2, 3]
    await client.host.api.call(SplitSegment(ORDERS, 2, None))
    assert code(client, "orders") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert "split and merge, or did" in client.directory.why_hidden(ORDERS)


async def test_a_partition_without_its_broker_has_no_leader_and_an_offline_replica(testbed: Testbed) -> None:
    one, other = await byte_clients(testbed, 2)
    await one.nodes.ready()
    victim = one if testbed.leader() is one.host else other  # no broker repairs before another one leads
    survivor = other if victim is one else one
    await survivor.nodes.ready()
    await testbed.topic(survivor.host, ORDERS, partitions=1)
    await survivor.host.api.call(MoveSegment(ORDERS, 0, (victim.host.broker.id,)))
    number = survivor.nodes.number_of(victim.host.broker.id)
    await testbed.until(lambda: leaders(survivor.directory.find("orders")) == [(number, Code.NONE)])
    gone = victim.host.broker.id
    victim.host.kill()
    await testbed.until(lambda: gone not in survivor.host.inspect.view.brokers)
    partition = survivor.directory.find("orders").partition(0)
    assert (partition.leader, partition.error) == (-1, Code.LEADER_NOT_AVAILABLE)
    assert (partition.replicas, partition.isr, partition.offline) == ((number,), (), (number,))
    await testbed.until(
        lambda: leaders(survivor.directory.find("orders")) == [(survivor.nodes.controller(), Code.NONE)]
    )


async def test_missing_replicas_are_named_and_not_in_sync_until_a_broker_returns(testbed: Testbed) -> None:
    """The number of the broker that left is used for a missing replica."""
    opened = await byte_clients(testbed, 3)
    await testbed.topic(opened[0].host, ORDERS, partitions=4, replicas=3)
    for each in opened:
        await each.nodes.ready()
    victim = next(each for each in opened if each.host is not testbed.leader())
    numbers = {each: each.nodes.number_of(each.host.broker.id) for each in opened}
    here, other = (each for each in opened if each is not victim)
    gone = victim.host.broker.id
    victim.host.kill()
    await testbed.until(lambda: gone not in here.host.inspect.view.brokers)
    await testbed.until(lambda: all(len(p.isr) == 2 for p in here.directory.find("orders").partitions()))
    for partition in here.directory.find("orders").partitions():
        assert (sorted(partition.replicas), partition.offline) == ([1, 2, 3], (numbers[victim],))
        assert partition.replicas[0] == partition.leader
        assert set(partition.isr) == {numbers[here], numbers[other]}
    await byte_client(await testbed.start(address=victim.host.address))
    await testbed.until(lambda: all(len(p.isr) == 3 for p in here.directory.find("orders").partitions()))
    assert all(partition.offline == () for partition in here.directory.find("orders").partitions())


async def test_the_broker_that_left_last_stands_for_a_missing_replica(testbed: Testbed) -> None:
    """Otherwise it is any known number: of a living broker if all live, and one without a broker if none is known."""
    opened = await byte_clients(testbed, 4)
    here = next(each for each in opened if each.host is testbed.leader())
    nodes = here.nodes
    await nodes.ready()
    first, second, left = (each for each in opened if each is not here)
    numbers = {each: nodes.number_of(each.host.broker.id) or 0 for each in opened}
    for each in (second, first):
        await each.host.stop()
        await testbed.until(lambda each=each: each.host.broker.id not in here.host.inspect.view.brokers)  # type: ignore[misc]
        await nodes.ready()
    assert nodes.absent_replicas(1, [numbers[here]]) == [numbers[first]]
    assert nodes.absent_replicas(2, [numbers[here]]) == [numbers[first], numbers[second]]
    assert nodes.absent_replicas(1, [numbers[here], numbers[first], numbers[second]]) == [numbers[left]]
    assert nodes.absent_replicas(2, sorted(numbers.values())) == [5, 6]
    assert nodes.absent_replicas(0, []) == nodes.absent_replicas(-1, []) == []


async def test_a_replica_on_a_broker_that_does_not_serve_kafka_is_not_missing(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    silent = await testbed.start()
    await testbed.until(lambda: len(client.host.inspect.view.brokers) == 2)
    await client.nodes.ready()
    await testbed.topic(client.host, ORDERS, partitions=1, replicas=2)
    await testbed.until(lambda: client.directory.find("orders").segment(0) is not None)
    partition = client.directory.find("orders").partition(0)
    assert (partition.replicas, partition.isr, partition.offline) == ((1,), (1,), ())
    gone = silent.broker.id
    silent.kill()
    await testbed.until(lambda: gone not in client.host.inspect.view.brokers)
    await testbed.until(lambda: client.directory.find("orders").partition(0).leader == 1)
    partition = client.directory.find("orders").partition(0)
    assert (partition.replicas, partition.isr, partition.offline) == ((1, 2), (1,), (2,))


async def test_brokers_that_do_not_serve_kafka_lead_nothing(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    silent = await testbed.start()
    await testbed.until(lambda: len(client.host.inspect.view.brokers) == 2)
    await testbed.topic(client.host, ORDERS, partitions=1)
    await client.nodes.ready()
    await client.host.api.call(MoveSegment(ORDERS, 0, (silent.broker.id,)))
    await testbed.until(lambda: leaders(client.directory.find("orders")) == [(-1, Code.LEADER_NOT_AVAILABLE)])
    assert [node.id for node in client.nodes.live()] == [1]
