"""A partition whose files are damaged, as Kafka's clients see it: like one whose log directory is offline."""

from dataclasses import replace

from seaweedmq.kafka.wire import messages
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import TopicName
from tests.broker.bed import Bed, story
from tests.kafka.doors import batch, doors
from tests.kafka.group_bed import ASK_AGAIN, KAFKA, OFFSETS_TOPIC, Cluster, Member

ORDERS = TopicName("kafka", "orders")


@story
async def test_an_unrecoverable_partition_is_a_storage_error_and_has_no_leader_until_it_is_healed(bed: Bed) -> None:
    opened = await doors(bed, 2)
    leader = next(door for door in opened if door.host is bed.leader())
    await bed.topic(leader.host, ORDERS, partitions=2)
    primaries = [await bed.primary(leader.host, ORDERS, n) for n in (0, 1)]
    victim = next(door for door in opened if door is not leader)
    broken = primaries.index(victim.host)
    await bed.until(lambda: all(len(door.host.inspect.view.open_of(ORDERS)) == 2 for door in opened))
    for n in range(5):
        said = await victim.produce("orders", broken, batch(b"value %d" % n))
        assert said.error_code == Code.NONE, said.error_message
    (log,) = bed.files(FileKind.LOG, ORDERS, broken)
    victim.host.kill()
    bed.store.files[log.path].data[300] ^= 1
    view = leader.host.inspect.view
    await bed.until(lambda: view.open_of(ORDERS)[broken].problem)
    said = await leader.produce("orders", broken, batch(b"lost"))
    assert said.error_code == Code.KAFKA_STORAGE_ERROR
    assert log.path in said.error_message
    assert (await leader.fetch("orders", broken, 0)).error_code == Code.KAFKA_STORAGE_ERROR
    for timestamp in (-1, -2, 0):
        listed = await leader.list_offset("orders", broken, timestamp)
        assert listed.error_code == Code.KAFKA_STORAGE_ERROR
    make = messages.MetadataRequest.MetadataRequestTopic
    metadata = await leader.ask(
        API.METADATA,
        9,
        topics=[make(name="orders")],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    codes = {p.partition_index: p.error_code for p in metadata.topics[0].partitions}
    assert codes == {broken: Code.LEADER_NOT_AVAILABLE, 1 - broken: Code.NONE}
    assert (await leader.produce("orders", 1 - broken, batch(b"kept"))).error_code == Code.NONE
    bed.store.files[log.path].data[300] ^= 1
    await bed.until(lambda: broken not in view.open_of(ORDERS), 70)
    assert (await leader.produce("orders", broken, batch(b"kept"))).error_code == Code.NONE


@story
async def test_groups_of_an_unrecoverable_shard_have_no_coordinator_until_it_is_healed(bed: Bed) -> None:
    cluster = await Cluster.of(bed, 1, replace(KAFKA, kafka_internal_partitions=1))
    assert await Member(cluster).commit((0, 5), (1, 7)) == [Code.NONE, Code.NONE]
    (log,) = bed.files(FileKind.LOG, OFFSETS_TOPIC)
    sound = bytes(bed.store.files[log.path].data)
    cluster.gateways[0].host.kill()
    bed.store.files[log.path].data[:8] = b"SWMQLOG?"
    gateway = cluster.open(await bed.start(replace(KAFKA, kafka_internal_partitions=1)))
    view = gateway.host.inspect.view
    await bed.until(lambda: view.open_of(OFFSETS_TOPIC)[0].problem)
    found = await gateway.ask(API.FIND_COORDINATOR, 3, key="billing", key_type=0)
    assert found.error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert log.path in found.error_message
    asked = await gateway.ask(API.OFFSET_FETCH, 7, group_id="billing", topics=None, require_stable=True)
    assert asked.error_code in ASK_AGAIN
    bed.store.files[log.path].data[:] = sound
    await bed.until(lambda: 0 not in view.open_of(OFFSETS_TOPIC), 70)
    assert await Member(cluster).committed() == {0: 5, 1: 7}
