"""A machine that is suspended and resumed: its monotonic clock stood still meanwhile, its lease did not wait."""

import asyncio

import pytest

from seaweedmq.model.publish import PublishAck
from seaweedmq.storage.store.memory import StorageOp
from tests.broker.bed import NAME, TTL_S, Bed, story, values


@story
async def test_a_broker_whose_machine_slept_knows_at_once_that_its_lease_may_have_ended(bed: Bed) -> None:
    hosts = await bed.cluster(2)
    await bed.topic(hosts[0])
    primary = await bed.primary(hosts[0])
    assert primary.inspect.term is not None
    session = primary.inspect.term.session

    async def remaining_s() -> float:
        return session.remaining_s

    before_s = await bed.network.spawn(primary.owner, remaining_s())
    await primary.suspend(TTL_S)
    assert await bed.network.spawn(primary.owner, remaining_s()) == pytest.approx(before_s - TTL_S)
    assert not session.alive()


@story
async def test_what_a_machine_had_under_way_when_it_fell_asleep_is_not_acknowledged(bed: Bed) -> None:
    hosts = await bed.cluster(2)
    await bed.topic(hosts[0])
    primary = await bed.primary(hosts[0])
    other = next(h for h in hosts if h is not primary)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    held = bed.faults.hold(StorageOp.APPEND)
    await publisher.send()
    await bed.until(lambda: primary.inspect.segments[NAME, 0].log.end == 4)
    bed.loop.suspend(primary.owner)
    del bed.faults.held[StorageOp.APPEND]
    await bed.until(lambda: 1 in other.inspect.view.segments[NAME])
    primary.meta.is_cut_off = True  # its network comes back later than itself
    held.set()
    bed.loop.resume(primary.owner)
    await asyncio.sleep(TTL_S / 2)
    assert not any(isinstance(r, PublishAck) for r in publisher.stream.replies)
    primary.meta.is_cut_off = False
    await bed.until(lambda: len(other.inspect.view.brokers) == 2)
    reader = await other.subscriber()
    assert (await reader.ending()).end_offset == 3
    assert reader.values == values(1, 3)


@story
async def test_a_leader_whose_machine_slept_leads_no_more(bed: Bed) -> None:
    hosts = await bed.cluster(3)
    leader = bed.leader()
    sleeping = asyncio.create_task(leader.suspend(3 * TTL_S))
    await bed.until(lambda: any(h.inspect.leads for h in hosts if h is not leader))
    await sleeping
    assert not leader.inspect.leads
    await bed.until(lambda: len(bed.leader().inspect.view.brokers) == 3)
