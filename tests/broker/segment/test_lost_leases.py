"""Leases that end early: a follower's, which first writes out what it holds, or those of all brokers at once."""

import asyncio

import pytest

from seaweedmq.broker.leader.sealer import Sealer
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import SealSegment
from tests.broker.segment.test_without_etcd import all_values, open_segment, replicated, store_two
from tests.broker.testbed import NAME, TTL_S, Testbed, story, values
from tests.doubles.memory_store import StorageOp


async def test_the_machine_of_a_primary_and_the_lease_of_its_follower_are_lost_at_once(testbed: Testbed) -> None:
    primary, follower, _ = await replicated(testbed, brokers=2)
    await (await primary.publisher()).store(frames=5)
    assert primary.inspect.segments[NAME, 0].log.flushed == 0
    primary.expire_lease()
    follower.expire_lease()
    primary.kill()
    testbed.store.crash(writer=primary.broker.id)
    await testbed.until(lambda: 1 in follower.inspect.view.segments[NAME])
    assert follower.inspect.view.segments[NAME][0].end_offset == 5
    await testbed.start(address="broker-9:7777")
    await store_two(testbed, follower)
    assert await all_values(testbed, follower) == values(1, 5) + values(2, 2)


@pytest.mark.parametrize("op", [StorageOp.CREATE, StorageOp.APPEND, StorageOp.SYNC, None])
async def test_a_storage_that_hangs_or_fails_keeps_no_follower_out(testbed: Testbed, op: StorageOp | None) -> None:
    primary, follower, _ = await replicated(testbed)
    await (await primary.publisher()).store(frames=5)
    old = follower.broker.id
    testbed.faults.paths = old
    if op is None:
        testbed.faults.failing[StorageOp.APPEND] = "input/output error"
    gate = asyncio.Event() if op is None else testbed.faults.hold(op)
    follower.expire_lease()
    await testbed.until(lambda: follower.broker.id not in ("", old), patience_s=10)
    assert follower.inspect.memory.replicas.used == 0
    gate.set()
    await store_two(testbed, primary)
    assert await all_values(testbed, primary) == values(1, 5) + values(2, 2)
    assert not any(h.has_failed for h in testbed.hosts)


async def test_who_has_dropped_its_replicas_says_so_instead_of_holding_more(testbed: Testbed) -> None:
    primary, follower, _ = await replicated(testbed)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    await testbed.network.spawn(follower.owner, follower.inspect.followers.close())
    await publisher.send()
    await testbed.until(lambda: follower.inspect.memory.replicas.used == 0)
    await testbed.until(lambda: 1 in primary.inspect.view.segments[NAME])
    assert await open_segment(testbed, primary) >= 1
    assert follower.inspect.memory.replicas.used == 0


async def test_what_everybody_has_fsynced_is_not_written_again(testbed: Testbed) -> None:
    primary, follower, _ = await replicated(testbed)
    await (await primary.publisher()).store(frames=5)
    await testbed.until(lambda: follower.inspect.memory.replicas.used == 0)
    old = follower.broker.id
    follower.expire_lease()
    await testbed.until(lambda: follower.broker.id not in ("", old))
    assert {f.writer for f in testbed.files(FileKind.LOG)} == {primary.broker.id}


async def test_etcd_loses_all_leases_while_a_primary_still_trusts_its_own(testbed: Testbed) -> None:
    one, other = await testbed.cluster(2)
    await testbed.topic(one)
    primary = await testbed.primary(one)
    successor = other if primary is one else one
    await testbed.until(lambda: NAME in successor.inspect.view.topics)
    publisher = await primary.publisher()
    await publisher.store()
    primary.meta.is_cut_off = True  # the primary does not notice until its lease has expired by its own clock
    testbed.etcd.server.lose_leases()
    stored = 1
    while primary.session.alive():
        await publisher.store()
        stored += 1
        await asyncio.sleep(TTL_S / 50)
    assert stored > 10, "the lease lived on for a while"
    await testbed.until(lambda: 1 in successor.inspect.view.segments[NAME])
    end_offset = successor.inspect.view.segments[NAME][0].end_offset
    assert end_offset is not None
    assert end_offset >= stored, "acknowledged records lie beyond the end of the segment"


async def test_who_left_in_good_order_is_not_waited_for(testbed: Testbed) -> None:
    first = await testbed.start()
    await testbed.topic(first)
    await (await first.publisher()).store(frames=3)
    await first.stop()
    again = await testbed.start(address="broker-9:7777")
    began = testbed.loop.time()
    await testbed.until(lambda: 1 in again.inspect.view.segments.get(NAME, {}))
    assert testbed.loop.time() - began < TTL_S / 4
    assert again.inspect.view.segments[NAME][0].end_offset == 3


@pytest.mark.parametrize("turns", range(8))
def test_what_a_leader_began_ends_with_its_lease_as_it_is_deposed(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two events are this many turns of the loop apart: the second meets a leader that is already stopping."""

    async def stuck(*_: object) -> None:
        await asyncio.Event().wait()

    @story
    async def lose(testbed: Testbed) -> None:
        host = await testbed.single()
        monkeypatch.setattr(Sealer, "seal", stuck)
        leader, asking = host.inspect.leader, asyncio.create_task(host.api.call(SealSegment(NAME, 0)))
        await testbed.until(lambda: bool(leader.transitions.under_way))
        leader.election.step_down()
        for _ in range(turns):
            await asyncio.sleep(0)
        ending = asyncio.create_task(host.inspect.incarnation.end())
        await ending
        assert not leader.transitions.under_way
        await asyncio.gather(asking, return_exceptions=True)

    lose()
