"""Leases that end before their time: of a follower, which first stores what it holds, or of everybody at once."""

import asyncio

import pytest

from seaweedmq.broker.leader.sealer import Sealer
from seaweedmq.model.calls import SealSegment
from seaweedmq.model.files import FileKind
from seaweedmq.storage.store.memory import StorageOp
from tests.broker.bed import NAME, TTL_S, Bed, Host, story, values
from tests.broker.segment.test_without_etcd import all_values, open_segment, replicated, store_two


def expire(bed: Bed, *hosts: Host) -> None:
    for host in hosts:
        assert host.inspect.term is not None
        bed.etcd.server.expire_lease(host.inspect.term.session.lease)


@story
async def test_the_machine_of_a_primary_and_the_lease_of_its_follower_are_lost_at_once(bed: Bed) -> None:
    primary, follower, _ = await replicated(bed, brokers=2)
    await (await primary.publisher()).store(frames=5)
    assert primary.inspect.segments[NAME, 0].log.flushed == 0
    expire(bed, primary, follower)
    primary.kill()
    bed.store.crash(writer=primary.broker.id)
    await bed.until(lambda: 1 in follower.inspect.view.segments[NAME])
    assert follower.inspect.view.segments[NAME][0].end_offset == 5
    await bed.start(address="broker-9:7777")
    await store_two(bed, follower)
    assert await all_values(bed, follower) == values(1, 5) + values(2, 2)


@pytest.mark.parametrize("op", [StorageOp.CREATE, StorageOp.APPEND, StorageOp.SYNC])
@story
async def test_a_storage_that_hangs_does_not_keep_a_follower_out_of_the_cluster(bed: Bed, op: StorageOp) -> None:
    primary, follower, _ = await replicated(bed)
    await (await primary.publisher()).store(frames=5)
    old = follower.broker.id
    bed.faults.paths = old
    gate = bed.faults.hold(op)
    expire(bed, follower)
    await bed.until(lambda: follower.broker.id not in ("", old), patience_s=10)
    assert follower.inspect.memory.replicas.used == 0
    gate.set()
    await store_two(bed, primary)
    assert await all_values(bed, primary) == values(1, 5) + values(2, 2)
    assert not any(h.has_failed for h in bed.hosts)


@story
async def test_a_storage_that_fails_does_not_either(bed: Bed) -> None:
    primary, follower, _ = await replicated(bed)
    await (await primary.publisher()).store(frames=5)
    old = follower.broker.id
    bed.faults.paths = old
    bed.faults.failing[StorageOp.APPEND] = "input/output error"
    expire(bed, follower)
    await bed.until(lambda: follower.broker.id not in ("", old), patience_s=10)
    await store_two(bed, primary)
    assert await all_values(bed, primary) == values(1, 5) + values(2, 2)


@story
async def test_who_has_dropped_its_replicas_says_so_instead_of_holding_more(bed: Bed) -> None:
    primary, follower, _ = await replicated(bed)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    assert follower.inspect.term is not None
    await bed.network.spawn(follower.owner, follower.inspect.followers.close())
    await publisher.send()
    await bed.until(lambda: follower.inspect.memory.replicas.used == 0)
    await bed.until(lambda: 1 in primary.inspect.view.segments[NAME])
    assert await open_segment(bed, primary) >= 1
    assert follower.inspect.memory.replicas.used == 0


@story
async def test_what_everybody_has_fsynced_is_not_written_again(bed: Bed) -> None:
    primary, follower, _ = await replicated(bed)
    await (await primary.publisher()).store(frames=5)
    await bed.until(lambda: follower.inspect.memory.replicas.used == 0)
    old = follower.broker.id
    expire(bed, follower)
    await bed.until(lambda: follower.broker.id not in ("", old))
    assert {f.writer for f in bed.files(FileKind.LOG)} == {primary.broker.id}


@story
async def test_etcd_loses_all_leases_while_a_primary_still_trusts_its_own(bed: Bed) -> None:
    one, other = await bed.cluster(2)
    await bed.topic(one)
    primary = await bed.primary(one)
    successor = other if primary is one else one
    await bed.until(lambda: NAME in successor.inspect.view.topics)
    publisher = await primary.publisher()
    await publisher.store()
    primary.meta.is_cut_off = True  # it does not hear of it until its lease has run out by its own clock
    bed.etcd.server.lose_leases()
    assert primary.inspect.term is not None
    stored = 1
    while primary.inspect.term.session.alive():
        await publisher.store()
        stored += 1
        await asyncio.sleep(TTL_S / 50)
    assert stored > 10, "the lease lived on for a while"
    await bed.until(lambda: 1 in successor.inspect.view.segments[NAME])
    end_offset = successor.inspect.view.segments[NAME][0].end_offset
    assert end_offset is not None
    assert end_offset >= stored, "acknowledged records lie beyond the end of the segment"


@story
async def test_who_left_in_good_order_is_not_waited_for(bed: Bed) -> None:
    first = await bed.start()
    await bed.topic(first)
    await (await first.publisher()).store(frames=3)
    await first.stop()
    again = await bed.start(address="broker-9:7777")
    began = bed.loop.time()
    await bed.until(lambda: 1 in again.inspect.view.segments.get(NAME, {}))
    assert bed.loop.time() - began < TTL_S / 4
    assert again.inspect.view.segments[NAME][0].end_offset == 3


@pytest.mark.parametrize("turns", range(8))
def test_what_a_leader_had_begun_ends_when_its_lease_is_lost_in_the_moment_it_is_deposed(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of one so many turns of the loop after the other: in between, it is ending already."""

    async def stuck(*_: object) -> None:
        await asyncio.Event().wait()

    @story
    async def lose(bed: Bed) -> None:
        (host,) = await bed.cluster(1)
        await bed.topic(host)
        monkeypatch.setattr(Sealer, "seal", stuck)
        leader, asking = host.inspect.leader, asyncio.create_task(host.api.call(SealSegment(NAME, 0)))
        await bed.until(lambda: bool(leader.succession.under_way))
        leader.election.step_down()
        for _ in range(turns):
            await asyncio.sleep(0)
        ending = asyncio.create_task(host.inspect.term.end())
        await ending
        assert not leader.succession.under_way
        await asyncio.gather(asking, return_exceptions=True)

    lose()
