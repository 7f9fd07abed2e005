"""A suspended and resumed machine: its monotonic clock stood still, its lease expired."""

import asyncio

import pytest

from seaweedmq.model.messages.publish import PublishAck
from tests.broker.testbed import NAME, TTL_S, Testbed, story, values
from tests.doubles.memory_store import StorageOp


@story
async def test_a_broker_whose_machine_slept_knows_at_once_that_its_lease_may_have_ended(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    primary = await testbed.primary(hosts[0])
    session = primary.session

    async def remaining_s() -> float:
        return session.remaining_s

    before_s = await testbed.network.spawn(primary.owner, remaining_s())
    await primary.suspend(TTL_S)
    assert await testbed.network.spawn(primary.owner, remaining_s()) == pytest.approx(before_s - TTL_S)
    assert not session.alive()


@story
async def test_what_a_machine_had_under_way_when_it_fell_asleep_is_not_acknowledged(testbed: Testbed) -> None:
    primary, other = await testbed.pair(2)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    held = testbed.faults.hold(StorageOp.APPEND)
    await publisher.send()
    await testbed.until(lambda: primary.inspect.segments[NAME, 0].log.end == 4)
    testbed.loop.suspend(primary.owner)
    del testbed.faults.held[StorageOp.APPEND]
    await testbed.until(lambda: 1 in other.inspect.view.segments[NAME])
    primary.meta.is_cut_off = True  # its network comes back later than the machine
    held.set()
    testbed.loop.resume(primary.owner)
    await asyncio.sleep(TTL_S / 2)
    assert not any(isinstance(r, PublishAck) for r in publisher.stream.replies)
    primary.meta.is_cut_off = False
    await testbed.until(lambda: len(other.inspect.view.brokers) == 2)
    reader = await other.subscriber()
    assert (await reader.ending()).end_offset == 3
    assert reader.values == values(1, 3)


@story
async def test_a_leader_whose_machine_slept_leads_no_more(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    leader = testbed.leader()
    sleeping = asyncio.create_task(leader.suspend(3 * TTL_S))
    await testbed.until(lambda: any(h.inspect.leads for h in hosts if h is not leader))
    await sleeping
    assert not leader.inspect.leads
    await testbed.until(lambda: len(testbed.leader().inspect.view.brokers) == 3)
