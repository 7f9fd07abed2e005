"""Offsets belong to a topic, not to its name: no offset of a deleted topic is served while coordinators change."""

import asyncio

import pytest

from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.calls import DeleteTopic, MoveSegment
from tests.broker.testbed import CONFIG, TTL_S, Host, Testbed
from tests.doubles.memory_store import StorageOp
from tests.kafka.group_testbed import KAFKA, OFFSETS_TOPIC, TOPIC, Cluster, Member


async def an_idle_group(cluster: Cluster) -> Member:
    """Return a group without members that has committed offsets."""
    member = await Member(cluster).joined()
    assert await member.commit((0, 100), (1, 200)) == [Code.NONE, Code.NONE]
    assert await member.committed() == {0: 100, 1: 200}
    assert await member.leave() == Code.NONE
    return Member(cluster)


async def recreate(host: Host, testbed: Testbed, **settings: int) -> None:
    await host.api.call(DeleteTopic(TOPIC))
    await testbed.topic(host, TOPIC, partitions=3, **settings)


async def kept_by(cluster: Cluster, member: Member) -> int:
    """Return the number of offsets that a group's coordinator holds."""
    gateway = await cluster.coordinator(member.group)
    await cluster.testbed.until(lambda: gateway.shard(member.group).is_active)
    return len(await gateway.shard(member.group).read(lambda state: state.offsets(member.group)))


async def asked_by_name(member: Member) -> list[int]:
    asked = {"name": TOPIC.name, "partition_indexes": [0, 1]}
    reply = await member.ask(API.OFFSET_FETCH, 7, topics=[asked], require_stable=True)
    return [partition.committed_offset for topic in reply.topics for partition in topic.partitions]


async def test_the_coordinator_sees_the_deletion(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 2)
    member = await an_idle_group(cluster)
    await recreate(testbed.leader(), testbed, replicas=2)
    assert await asked_by_name(member) == [-1, -1]
    await asyncio.sleep(5)
    assert await kept_by(cluster, member) == 0

    # What is committed to the recreated topic stays.
    assert await member.commit((0, 7)) == [Code.NONE]
    await asyncio.sleep(5)
    assert await member.committed() == {0: 7}
    (await cluster.coordinator(member.group)).host.kill()
    assert await member.committed() == {0: 7}
    await asyncio.sleep(5)
    assert await kept_by(cluster, member) == 1


async def test_the_coordinator_is_down_meanwhile(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 4)
    member = await an_idle_group(cluster)
    coordinator = await cluster.coordinator(member.group)
    if coordinator.host.inspect.leads:
        await coordinator.host.stop()
        await testbed.until(lambda: any(host.lives and host.inspect.leads for host in testbed.hosts))
        coordinator = await cluster.coordinator(member.group)
    testbed.faults.paths = OFFSETS_TOPIC.name
    loading = testbed.faults.hold(StorageOp.READ)
    coordinator.host.kill()
    await recreate(testbed.leader(), testbed, replicas=2)
    loading.set()
    testbed.faults.held.clear()
    assert await asked_by_name(member) == [-1, -1]
    assert await member.committed() == {}
    await asyncio.sleep(5)
    assert await kept_by(cluster, member) == 0, "they go: no client will ask for them"


async def test_all_brokers_with_a_gateway_are_down_meanwhile(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 2)
    member = await an_idle_group(cluster)
    native = await testbed.start(CONFIG, address="broker-8:7777")
    for gateway in cluster.gateways:
        await gateway.host.stop()
    await testbed.until(lambda: native.inspect.leads, 120)
    await recreate(native, testbed)
    host = await testbed.start(KAFKA, address="broker-9:7777")
    last = cluster.open(host)
    await native.stop()
    await testbed.until(lambda: host.inspect.leads, 120)
    cluster.by_port = lambda port: last  # type: ignore[method-assign]
    assert await member.committed() == {}


async def test_a_name_is_free_once_the_coordinators_know_of_the_deletion(testbed: Testbed) -> None:
    """A coordinator whose view lags would take commits to the recreated topic for commits to the deleted one."""
    cluster = await Cluster.of(testbed, 3)
    member = await an_idle_group(cluster)
    coordinator = await cluster.coordinator(member.group)
    other = next(gateway for gateway in cluster.gateways if gateway is not coordinator)
    for segment in list(other.host.inspect.view.open_of(TOPIC).values()):
        await other.host.api.call(MoveSegment(TOPIC, segment.id, (other.host.broker.id,)))
    await testbed.until(lambda: TOPIC not in {name for name, _ in coordinator.host.inspect.segments})
    coordinator.host.meta.hears_metadata.clear()
    deleting = asyncio.create_task(recreate(other.host, testbed))
    await asyncio.sleep(TTL_S)
    assert not deleting.done()
    coordinator.host.meta.hears_metadata.set()
    await deleting
    assert await member.commit((0, 7)) == [Code.NONE]
    await asyncio.sleep(5)
    assert await member.committed() == {0: 7}


@pytest.mark.parametrize("knows", [True, False])
async def test_without_etcd_offsets_are_served_unless_their_topic_is_in_doubt(testbed: Testbed, knows: bool) -> None:
    cluster = await Cluster.of(testbed, 2)
    member = await an_idle_group(cluster)
    gateway = await cluster.coordinator(member.group)
    if not knows:  # as if the view lacked what another coordinator has seen
        gateway.coordinators.topic_ids.known = lambda topic: None  # type: ignore[method-assign]
    testbed.etcd.server.stop()
    reply = await gateway.ask(API.OFFSET_FETCH, 7, topics=None, group_id=member.group, require_stable=True)
    assert reply.error_code == (Code.NONE if knows else Code.NOT_COORDINATOR)
    testbed.etcd.server.start()
    assert await member.committed() == {0: 100, 1: 200}
