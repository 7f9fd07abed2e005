"""Topics as Kafka's clients see them, over the live view of real brokers."""

import pytest

from seaweedmq.core.kafka.topic_ids import topic_id_of, uid_of
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.model.calls import AlterTopic, DeleteTopic, MoveSegment, SealSegment, SplitSegment
from seaweedmq.model.topic import Scaling, TopicChange, TopicName
from tests.broker.bed import Bed, story
from tests.kafka.office import Office, office, offices

ORDERS = TopicName("kafka", "orders")


def code(office: Office, name_or_id: str | bytes) -> int:
    with pytest.raises(KafkaError) as caught:
        office.directory.find(name_or_id)
    return caught.value.kafka_code


def leaders(topic: PartitionedTopic) -> list[tuple[int, Code]]:
    return [(partition.leader, partition.error) for partition in topic.partitions()]


@story
async def test_a_partition_is_led_by_the_primary_of_its_segment(bed: Bed) -> None:
    first, *_ = await offices(bed, 3)
    await first.nodes.ready()
    await bed.topic(first.host, ORDERS, partitions=6, replicas=2)
    topic = first.directory.find("orders")
    assert (topic.name, topic.count, topic.is_writable, topic.is_internal) == ("orders", 6, True, False)
    for number in range(6):
        partition, segment = topic.partition(number), topic.segment(number)
        assert segment is not None
        assert segment.slots.lo == topic.slot(number) == number
        assert partition.leader_epoch == segment.id
        assert partition.replicas == tuple(first.nodes.number_of(broker) for broker in segment.replicas)
        assert partition.leader == partition.replicas[0]
        assert (partition.isr, partition.offline) == (partition.replicas, ())
    assert {partition.leader for partition in topic.partitions()} == {1, 2, 3}


@story
async def test_what_is_not_a_partition_is_refused(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    await bed.topic(office.host, ORDERS, partitions=2)
    topic = office.directory.find("orders")
    for number in (-1, 2):
        with pytest.raises(KafkaError, match="it has 2, from 0") as caught:
            topic.partition(number)
        assert caught.value.kafka_code == Code.UNKNOWN_TOPIC_OR_PARTITION


@story
async def test_topics_are_found_by_name_and_by_id(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    made = await bed.topic(office.host, ORDERS, partitions=1)
    topic_id = office.directory.find("orders").id
    assert uid_of(topic_id) == made.topic.uid
    assert office.directory.find(topic_id).name == "orders"
    assert code(office, "returns") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert code(office, "a/b") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert code(office, topic_id_of(made.topic.uid ^ 1)) == Code.UNKNOWN_TOPIC_ID
    assert code(office, topic_id[:8] + bytes(8)) == Code.UNKNOWN_TOPIC_ID


@story
async def test_the_id_of_a_deleted_topic_is_not_that_of_the_next_one(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    await bed.topic(office.host, ORDERS, partitions=1)
    before = office.directory.find("orders").id
    assert office.directory.find(before).name == "orders"
    await office.host.api.call(DeleteTopic(ORDERS))
    assert code(office, before) == Code.UNKNOWN_TOPIC_ID
    assert code(office, "orders") == Code.UNKNOWN_TOPIC_OR_PARTITION
    await bed.topic(office.host, ORDERS, partitions=3)
    assert code(office, before) == Code.UNKNOWN_TOPIC_ID
    again = office.directory.find("orders")
    assert (again.count, again.id == before) == (3, False)
    assert office.directory.find(again.id).count == 3


@story
async def test_only_one_namespace_is_shown_by_name(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    for name in ("shop/orders", "kafka/returns", "kafka/orders"):
        await bed.topic(office.host, TopicName.parse(name), partitions=1)
    assert [topic.name for topic in office.directory.topics()] == ["orders", "returns"]


@story
async def test_a_ring_is_shown_to_readers_until_it_is_cut(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    await bed.topic(office.host, ORDERS, segments=4, scaling=Scaling.FIXED)
    ring = office.directory.find("orders")
    assert (ring.count, ring.is_writable) == (4, False)
    assert [ring.slot(number) for number in range(4)] == [0, 16_384, 32_768, 49_152]
    await office.host.api.call(SealSegment(ORDERS, 1))
    epochs = [partition.leader_epoch for partition in office.directory.find("orders").partitions()]
    assert epochs == [0, 4, 2, 3]
    await office.host.api.call(SplitSegment(ORDERS, 2, None))
    assert code(office, "orders") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert "split and merge, or did" in office.directory.why_hidden(ORDERS)


@story
async def test_a_ring_that_scales_by_itself_is_not_shown(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    await bed.topic(office.host, ORDERS)
    assert code(office, "orders") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert office.directory.topics() == []
    await office.host.api.call(AlterTopic(ORDERS, TopicChange(scaling=Scaling.FIXED)))
    assert office.directory.find("orders").count == 1


@story
async def test_the_epoch_rises_when_a_partition_moves(bed: Bed) -> None:
    one, other = await offices(bed, 2)
    await one.nodes.ready()
    await bed.topic(one.host, ORDERS, partitions=1)
    before = one.directory.find("orders").partition(0)
    here = one.nodes.broker_of(before.leader)
    to = next(office.host.broker.id for office in (one, other) if office.host.broker.id != here)
    await one.host.api.call(MoveSegment(ORDERS, 0, (to,)))
    await bed.until(lambda: one.directory.find("orders").partition(0).leader != before.leader)
    after = one.directory.find("orders").partition(0)
    assert after.leader_epoch > before.leader_epoch
    assert one.nodes.broker_of(after.leader) == to


@story
async def test_a_partition_without_its_broker_has_no_leader_and_an_offline_replica(bed: Bed) -> None:
    one, other = await offices(bed, 2)
    await one.nodes.ready()
    victim = one if bed.leader() is one.host else other  # nobody repairs before another one leads
    survivor = other if victim is one else one
    await survivor.nodes.ready()
    await bed.topic(survivor.host, ORDERS, partitions=1)
    await survivor.host.api.call(MoveSegment(ORDERS, 0, (victim.host.broker.id,)))
    number = survivor.nodes.number_of(victim.host.broker.id)
    await bed.until(lambda: leaders(survivor.directory.find("orders")) == [(number, Code.NONE)])
    gone = victim.host.broker.id
    victim.host.kill()
    await bed.until(lambda: gone not in survivor.host.inspect.view.brokers)
    partition = survivor.directory.find("orders").partition(0)
    assert (partition.leader, partition.error) == (-1, Code.LEADER_NOT_AVAILABLE)
    assert (partition.replicas, partition.isr, partition.offline) == ((number,), (), (number,))
    await bed.until(lambda: leaders(survivor.directory.find("orders")) == [(survivor.nodes.controller(), Code.NONE)])


@story
async def test_missing_replicas_are_named_and_not_in_sync_until_a_broker_returns(bed: Bed) -> None:
    """The number of the broker that left stands for a missing replica."""
    opened = await offices(bed, 3)
    await bed.topic(opened[0].host, ORDERS, partitions=4, replicas=3)
    for each in opened:
        await each.nodes.ready()
    victim = next(each for each in opened if each.host is not bed.leader())
    numbers = {each: each.nodes.number_of(each.host.broker.id) for each in opened}
    here, other = (each for each in opened if each is not victim)
    gone = victim.host.broker.id
    victim.host.kill()
    await bed.until(lambda: gone not in here.host.inspect.view.brokers)
    await bed.until(lambda: all(len(p.isr) == 2 for p in here.directory.find("orders").partitions()))
    for partition in here.directory.find("orders").partitions():
        assert (sorted(partition.replicas), partition.offline) == ([1, 2, 3], (numbers[victim],))
        assert partition.replicas[0] == partition.leader
        assert set(partition.isr) == {numbers[here], numbers[other]}
    await office(await bed.start(address=victim.host.address))
    await bed.until(lambda: all(len(p.isr) == 3 for p in here.directory.find("orders").partitions()))
    assert all(partition.offline == () for partition in here.directory.find("orders").partitions())


@story
async def test_the_broker_that_left_last_stands_for_a_missing_replica(bed: Bed) -> None:
    """Else any that is known; one that lives, if all do; and a number that no broker has, if none is known."""
    opened = await offices(bed, 4)
    here = next(each for each in opened if each.host is bed.leader())
    nodes = here.nodes
    await nodes.ready()
    first, second, left = (each for each in opened if each is not here)
    numbers = {each: nodes.number_of(each.host.broker.id) or 0 for each in opened}
    for each in (second, first):
        await each.host.stop()
        await bed.until(lambda each=each: each.host.broker.id not in here.host.inspect.view.brokers)  # type: ignore[misc]
        await nodes.ready()
    assert nodes.absent_replicas(1, [numbers[here]]) == [numbers[first]]
    assert nodes.absent_replicas(2, [numbers[here]]) == [numbers[first], numbers[second]]
    assert nodes.absent_replicas(1, [numbers[here], numbers[first], numbers[second]]) == [numbers[left]]
    assert nodes.absent_replicas(2, sorted(numbers.values())) == [5, 6]
    assert nodes.absent_replicas(0, []) == nodes.absent_replicas(-1, []) == []


@story
async def test_a_replica_on_a_broker_that_does_not_serve_kafka_is_not_missing(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    silent = await bed.start()
    await bed.until(lambda: len(office.host.inspect.view.brokers) == 2)
    await office.nodes.ready()
    await bed.topic(office.host, ORDERS, partitions=1, replicas=2)
    await bed.until(lambda: office.directory.find("orders").segment(0) is not None)
    partition = office.directory.find("orders").partition(0)
    assert (partition.replicas, partition.isr, partition.offline) == ((1,), (1,), ())
    gone = silent.broker.id
    silent.kill()
    await bed.until(lambda: gone not in office.host.inspect.view.brokers)
    await bed.until(lambda: office.directory.find("orders").partition(0).leader == 1)
    partition = office.directory.find("orders").partition(0)
    assert (partition.replicas, partition.isr, partition.offline) == ((1, 2), (1,), (2,))


@story
async def test_brokers_that_do_not_serve_kafka_lead_nothing(bed: Bed) -> None:
    (office,) = await offices(bed, 1)
    silent = await bed.start()
    await bed.until(lambda: len(office.host.inspect.view.brokers) == 2)
    await bed.topic(office.host, ORDERS, partitions=1)
    await office.nodes.ready()
    await office.host.api.call(MoveSegment(ORDERS, 0, (silent.broker.id,)))
    await bed.until(lambda: leaders(office.directory.find("orders")) == [(-1, Code.LEADER_NOT_AVAILABLE)])
    assert [node.id for node in office.nodes.live()] == [1]
