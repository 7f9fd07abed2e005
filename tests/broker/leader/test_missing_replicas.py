"""Under-replicated segments: the leader counts them, and repairs them as soon as a broker is available."""

import asyncio

from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.messages.calls import GetClusterStatus, MoveSegment
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import NAME, Host, Testbed
from tests.doubles.memory_store import StorageOp

OTHER = TopicName("test", "unreadable")


def opened(host: Host, name: TopicName = NAME) -> list[Segment]:
    return sorted(host.inspect.view.open_of(name).values(), key=lambda segment: segment.id)


def is_whole(host: Host, replicas: int, name: TopicName = NAME) -> bool:
    live = host.inspect.view.brokers
    return all(len(s.replicas) == replicas and live.keys() >= set(s.replicas) for s in opened(host, name))


async def lacking(host: Host) -> int:
    status: ClusterStatus = await host.api.call(GetClusterStatus())
    return status.under_replicated_segments


async def test_segments_are_under_replicated_until_a_broker_comes_and_are_repaired_once(testbed: Testbed) -> None:
    hosts = await testbed.several(3, segments=12, replicas=3)
    assert await lacking(hosts[0]) == 0
    victim = next(host for host in hosts if host is not testbed.leader())
    leader, gone = testbed.leader(), victim.broker.id
    victim.kill()
    await testbed.until(lambda: gone not in leader.inspect.view.brokers)
    await testbed.until(lambda: all(gone not in segment.replicas for segment in opened(leader)))
    assert await lacking(leader) == 12
    began = testbed.loop.time()
    await testbed.start(address=victim.address)
    await testbed.until(lambda: is_whole(leader, 3))
    assert testbed.loop.time() - began < 10
    assert await lacking(leader) == 0
    repaired = opened(leader)
    await asyncio.sleep(30)
    assert opened(leader) == repaired, "what is whole is left alone"


async def test_a_segment_that_cannot_be_recovered_keeps_no_other_from_its_replicas(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    victim = next(host for host in hosts if host is not testbed.leader())
    leader, gone = testbed.leader(), victim.broker.id
    await testbed.topic(leader, replicas=3)
    await testbed.topic(leader, OTHER)
    (segment,) = opened(leader, OTHER)
    if segment.primary != gone:
        await leader.api.call(MoveSegment(OTHER, segment.id, (gone,)))
    testbed.faults.paths = "unreadable"
    testbed.faults.failing = dict.fromkeys((StorageOp.LIST, StorageOp.OPEN, StorageOp.READ), "input/output error")
    victim.kill()
    await testbed.until(lambda: gone not in leader.inspect.view.brokers)
    await testbed.until(lambda: all(gone not in segment.replicas for segment in opened(leader)))
    await asyncio.sleep(5)
    await testbed.start(address=victim.address)
    await testbed.until(lambda: is_whole(leader, 3))
    assert [s.primary for s in opened(leader, OTHER)] == [gone], "its files are still unreadable"
    assert await lacking(leader) == 1
    testbed.faults.failing.clear()
    await testbed.until(lambda: is_whole(leader, 1, OTHER))
    assert await lacking(leader) == 0
