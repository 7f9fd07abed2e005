"""A replicated topic with replicas missing: one page cache is no second copy, so the fsync comes first."""

import pytest

from seaweedmq.model.topic import Durability, TopicChange
from seaweedmq.storage.store.memory import StorageOp
from tests.broker.bed import NAME, Bed, Host, story, values
from tests.broker.segment.test_without_etcd import all_values, replicated


async def thinned(bed: Bed, **settings: int) -> tuple[Host, int]:
    """The only broker left, and the segment it has without a follower."""
    primary, follower, _ = await replicated(bed, brokers=2, **settings)
    follower.kill()
    view = primary.inspect.view
    await bed.until(lambda: any(s.is_open and len(s.replicas) == 1 for s in view.segments[NAME].values()))
    (segment,) = (s.id for s in view.segments[NAME].values() if s.is_open)
    return primary, segment


@story
async def test_what_is_acknowledged_survives_the_machine(bed: Bed) -> None:
    primary, number = await thinned(bed)
    publisher = await primary.publisher(segment=number)
    gate = bed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    assert await publisher.quiet(3.0), "not before it is fsynced"
    gate.set()
    await publisher.acks()
    bed.faults.held.clear()
    began = bed.loop.time()
    await publisher.store(frames=20)
    assert bed.loop.time() - began < 0.5, "and that at once, not within the flush interval"
    writer = primary.broker.id
    primary.kill()
    bed.store.crash(writer=writer)
    fresh = await bed.start(address="broker-9:7777")
    await bed.until(lambda: not fresh.inspect.view.segments[NAME][number].is_open)
    assert fresh.inspect.view.segments[NAME][number].end_offset == 21


@pytest.mark.parametrize("replicas", [1, 2])
@story
async def test_who_asks_for_one_page_cache_or_has_two_does_not_wait(bed: Bed, replicas: int) -> None:
    hosts = await bed.cluster(2)
    await bed.topic(hosts[0], replicas=replicas, durability=Durability.REPLICATED)
    publisher = await (await bed.primary(hosts[0])).publisher()
    gate = bed.faults.hold(StorageOp.SYNC)
    await publisher.store(frames=5)
    gate.set()


@story
async def test_it_stays_so_when_the_topic_is_altered(bed: Bed) -> None:
    primary, number = await thinned(bed)
    for durability in (Durability.STORED, Durability.REPLICATED):
        await bed.network.spawn(
            primary.owner,
            primary.inspect.leader.topics.alter(NAME, TopicChange(durability=durability), 0),
        )
    publisher = await primary.publisher(segment=number)
    gate = bed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    assert await publisher.quiet(3.0)
    gate.set()
    await publisher.acks()


@story
async def test_with_another_broker_it_waits_no_longer(bed: Bed) -> None:
    primary, number = await thinned(bed)
    await (await primary.publisher(segment=number)).store(frames=3)
    await bed.start(address="broker-9:7777")
    view = primary.inspect.view
    await bed.until(lambda: any(s.is_open and len(s.replicas) == 2 for s in view.segments[NAME].values()))
    (segment,) = (s for s in view.segments[NAME].values() if s.is_open)
    publisher = await (await bed.primary(primary, segment=segment.id)).publisher(2, segment=segment.id)
    gate = bed.faults.hold(StorageOp.SYNC)
    await publisher.store(frames=2)
    gate.set()
    bed.faults.held.clear()
    assert await all_values(bed, primary) == values(1, 3) + values(2, 2)
