"""A partition with damaged files: Kafka clients see one whose log directory is offline."""

from dataclasses import replace

from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.files import FileKind
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import Testbed
from tests.kafka.group_testbed import ASK_AGAIN, KAFKA, OFFSETS_TOPIC, Cluster, Member
from tests.kafka.in_process_client import batch, in_process_clients

ORDERS = TopicName("kafka", "orders")


async def test_an_unrecoverable_partition_is_a_storage_error_and_has_no_leader_until_it_is_healed(
    testbed: Testbed,
) -> None:
    opened = await in_process_clients(testbed, 2)
    leader = next(client for client in opened if client.host is testbed.leader())
    await testbed.topic(leader.host, ORDERS, partitions=2)
    primaries = [await testbed.primary(leader.host, ORDERS, n) for n in (0, 1)]
    victim = next(client for client in opened if client is not leader)
    broken = primaries.index(victim.host)
    await testbed.until(lambda: all(len(client.host.inspect.view.open_of(ORDERS)) == 2 for client in opened))
    for n in range(5):
        said = await victim.produce("orders", broken, batch(b"value %d" % n))
        assert said.error_code == Code.NONE, said.error_message
    (log,) = testbed.files(FileKind.LOG, ORDERS, broken)
    victim.host.kill()
    testbed.store.files[log.path].data[300] ^= 1
    view = leader.host.inspect.view
    await testbed.until(lambda: view.open_of(ORDERS)[broken].problem)
    said = await leader.produce("orders", broken, batch(b"lost"))
    assert said.error_code == Code.KAFKA_STORAGE_ERROR
    assert log.path in said.error_message
    assert (await leader.fetch("orders", broken, 0)).error_code == Code.KAFKA_STORAGE_ERROR
    for timestamp in (-1, -2, 0):
        listed = await leader.list_offset("orders", broken, timestamp)
        assert listed.error_code == Code.KAFKA_STORAGE_ERROR
    metadata = await leader.ask(
        API.METADATA,
        9,
        topics=[{"name": "orders"}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    codes = {p.partition_index: p.error_code for p in metadata.topics[0].partitions}
    assert codes == {broken: Code.LEADER_NOT_AVAILABLE, 1 - broken: Code.NONE}
    assert (await leader.produce("orders", 1 - broken, batch(b"kept"))).error_code == Code.NONE
    testbed.store.files[log.path].data[300] ^= 1
    await testbed.until(lambda: broken not in view.open_of(ORDERS), 70)
    assert (await leader.produce("orders", broken, batch(b"kept"))).error_code == Code.NONE


async def test_groups_of_an_unrecoverable_shard_have_no_coordinator_until_it_is_healed(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1, replace(KAFKA, kafka_internal_partitions=1))
    assert await Member(cluster).commit((0, 5), (1, 7)) == [Code.NONE, Code.NONE]
    (log,) = testbed.files(FileKind.LOG, OFFSETS_TOPIC)
    sound = bytes(testbed.store.files[log.path].data)
    cluster.gateways[0].host.kill()
    testbed.store.files[log.path].data[:8] = b"SWMQLOG?"
    gateway = cluster.open(await testbed.start(replace(KAFKA, kafka_internal_partitions=1)))
    view = gateway.host.inspect.view
    await testbed.until(lambda: view.open_of(OFFSETS_TOPIC)[0].problem)
    found = await gateway.ask(API.FIND_COORDINATOR, 3, key="billing", key_type=0)
    assert found.error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert log.path in found.error_message
    asked = await gateway.ask(API.OFFSET_FETCH, 7, group_id="billing", topics=None, require_stable=True)
    assert asked.error_code in ASK_AGAIN
    testbed.store.files[log.path].data[:] = sound
    await testbed.until(lambda: 0 not in view.open_of(OFFSETS_TOPIC), 70)
    assert await Member(cluster).committed() == {0: 5, 1: 7}
