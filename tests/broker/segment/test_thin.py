"""A replicated topic without a second replica: one page cache does not suffice, so the fsync comes first."""

import pytest

from seaweedmq.model.topic import Durability, TopicChange
from tests.broker.segment.test_without_etcd import all_values, replicated
from tests.broker.testbed import NAME, Host, Testbed, story, values
from tests.doubles.memory_store import StorageOp


async def thinned(testbed: Testbed, **settings: int) -> tuple[Host, int]:
    """Return the only remaining broker, and its segment without a follower."""
    primary, follower, _ = await replicated(testbed, brokers=2, **settings)
    follower.kill()
    view = primary.inspect.view
    await testbed.until(lambda: any(s.is_open and len(s.replicas) == 1 for s in view.segments[NAME].values()))
    (segment,) = (s.id for s in view.segments[NAME].values() if s.is_open)
    return primary, segment


@story
async def test_what_is_acknowledged_survives_the_machine(testbed: Testbed) -> None:
    primary, number = await thinned(testbed)
    publisher = await primary.publisher(segment=number)
    gate = testbed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    assert await publisher.quiet(3.0), "not before it is fsynced"
    gate.set()
    await publisher.acks()
    testbed.faults.held.clear()
    began = testbed.loop.time()
    await publisher.store(frames=20)
    assert testbed.loop.time() - began < 0.5, "and that at once, not within the flush interval"
    writer = primary.broker.id
    primary.kill()
    testbed.store.crash(writer=writer)
    fresh = await testbed.start(address="broker-9:7777")
    await testbed.until(lambda: not fresh.inspect.view.segments[NAME][number].is_open)
    assert fresh.inspect.view.segments[NAME][number].end_offset == 21


@pytest.mark.parametrize("replicas", [1, 2])
@story
async def test_who_asks_for_one_page_cache_or_has_two_does_not_wait(testbed: Testbed, replicas: int) -> None:
    hosts = await testbed.several(2, replicas=replicas, durability=Durability.REPLICATED)
    publisher = await (await testbed.primary(hosts[0])).publisher()
    gate = testbed.faults.hold(StorageOp.SYNC)
    await publisher.store(frames=5)
    gate.set()


@story
async def test_it_stays_so_when_the_topic_is_altered(testbed: Testbed) -> None:
    primary, number = await thinned(testbed)
    for durability in (Durability.STORED, Durability.REPLICATED):
        await testbed.network.spawn(
            primary.owner,
            primary.inspect.leader.topics.alter(NAME, TopicChange(durability=durability), 0),
        )
    publisher = await primary.publisher(segment=number)
    gate = testbed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    assert await publisher.quiet(3.0)
    gate.set()
    await publisher.acks()


@story
async def test_with_another_broker_it_waits_no_longer(testbed: Testbed) -> None:
    primary, number = await thinned(testbed)
    await (await primary.publisher(segment=number)).store(frames=3)
    await testbed.start(address="broker-9:7777")
    view = primary.inspect.view
    await testbed.until(lambda: any(s.is_open and len(s.replicas) == 2 for s in view.segments[NAME].values()))
    (segment,) = (s for s in view.segments[NAME].values() if s.is_open)
    publisher = await (await testbed.primary(primary, segment=segment.id)).publisher(2, segment=segment.id)
    gate = testbed.faults.hold(StorageOp.SYNC)
    await publisher.store(frames=2)
    gate.set()
    testbed.faults.held.clear()
    assert await all_values(testbed, primary) == values(1, 3) + values(2, 2)
