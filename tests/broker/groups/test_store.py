"""Group records in etcd: written in small transactions, by one leader at a time, also when replies are lost."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from seaweedmq.broker.groups.store import GroupName, GroupStore
from seaweedmq.codec.state import keys
from seaweedmq.errors import (
    Conflict,
    LeaseEnded,
    OutOfRange,
    ResourceExhausted,
    SeaweedMQError,
    StaleMetadata,
    Unavailable,
)
from seaweedmq.model.group_record import CommittedOffset, GroupRecord, MemberRecord, SegmentOwner
from seaweedmq.model.messages.calls import DeleteTopic
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.ports import Delete, Put
from tests.broker.test_etcd_refuses import KINDS, refuse
from tests.broker.testbed import NAME, Host, Testbed

GROUP = GroupName(NAME, "billing")


def record(generation: int = 0) -> GroupRecord:
    return GroupRecord(
        topic_uid=7,
        start=EARLIEST,
        horizon=1,
        generation=generation,
        members={"one": MemberRecord(incarnation=1, client="host")},
        owners={0: SegmentOwner("one", generation)},
        crashes={},
    )


def at(offset: int, **deliveries: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, deliveries={int(o[1:]): n for o, n in deliveries.items()}, at_us=1)


def store_of(host: Host) -> GroupStore:
    leader = host.inspect.leader

    async def record(revision: int, changes: Sequence[Put | Delete]) -> None:
        await leader.groups.stores.journal.record(revision, changes)  # a broker that does not lead has no groups

    return GroupStore(host.meta, leader.election, GROUP, random.Random(1), record)


async def created(host: Host, committed: dict[int, CommittedOffset]) -> GroupStore:
    store = store_of(host)
    await store.create(record(), committed, host.inspect.view.topic_revision(NAME))
    return store


async def test_what_is_written_is_read_by_the_next(testbed: Testbed) -> None:
    host = await testbed.single()
    assert await store_of(host).load() is None
    store = await created(host, {0: at(5)})
    assert await store_of(host).load() == (record(), {0: at(5)})
    await store.write(record(1), {0: at(6, _8=2), 1: at(1)})
    await store.write(None, {1: None})
    assert await store_of(host).load() == (record(1), {0: at(6, _8=2)})
    await store.delete()
    assert await store_of(host).load() is None
    assert (await host.meta.list(keys.GROUPS_ROOT)).entries == ()


async def test_many_offsets_take_several_transactions_and_going_back_to_the_start_one(testbed: Testbed) -> None:
    host = await testbed.single()
    many = {number: at(number) for number in range(250)}
    store = await created(host, many)
    assert await store_of(host).load() == (record(), many)
    more = {number: at(number + 1, **{f"_{number + o}": 1 for o in range(1, 900)}) for number in range(250)}
    await store.write(record(1), more)
    assert await store_of(host).load() == (record(1), more)
    before = testbed.etcd.server.revision
    await store.write(record(2), dict.fromkeys(many))
    assert testbed.etcd.server.revision == before + 1
    assert await store_of(host).load() == (record(2), {})
    await store.write(record(3), {0: at(1)})
    assert await store_of(host).load() == (record(3), {0: at(1)})


async def test_answers_that_are_lost_do_no_harm(testbed: Testbed) -> None:
    host = await testbed.single()
    store = await created(host, {})
    for n in range(1, 40):
        testbed.etcd.lost_share = 0.4
        await store.write(record(n) if n % 3 else None, {n % 5: at(n)})
        testbed.etcd.lost_share = 0
        stored = await store_of(host).load()
        assert stored is not None
        assert stored[1][n % 5] == at(n)
        assert stored[0].generation == (n if n % 3 else n - 1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_a_passing_refusal_is_retried_another_ends_it(testbed: Testbed, kind: type[SeaweedMQError]) -> None:
    host = await testbed.single()
    store = await created(host, {})
    end = refuse(host, kind("no"), ("transact",))
    testbed.loop.call_later(5.0, end)
    if kind in (Unavailable, ResourceExhausted, OutOfRange):  # the last one is a reply to reads only
        await store.write(record(1), {0: at(1)})
        assert await store_of(host).load() == (record(1), {0: at(1)})
        return
    with pytest.raises(StaleMetadata if kind is LeaseEnded else kind):
        await store.write(record(1), {0: at(1)})
    await asyncio.sleep(10)
    assert not host.has_failed


async def test_who_does_not_lead_or_know_what_was_written_meanwhile_writes_nothing(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    host = testbed.leader()
    store = await created(host, {0: at(5)})
    other = store_of(host)
    await other.load()
    await other.write(None, {0: at(7)})
    with pytest.raises(Conflict):
        await store.write(None, {0: at(6)})
    await other.write(record(1), {})
    with pytest.raises(Conflict):
        await store.write(None, {1: at(1)})
    with pytest.raises(Conflict):
        await created(host, {})
    assert await store_of(host).load() == (record(1), {0: at(7)})
    deposed = store_of(next(h for h in hosts if h is not host))
    await deposed.load()
    with pytest.raises(StaleMetadata, match="continues at another leader"):
        await deposed.write(None, {0: at(8)})
    await other.write(None, {0: at(9)})
    revision = host.inspect.view.topic_revision(NAME)
    await host.api.call(DeleteTopic(NAME))
    with pytest.raises(Conflict):
        await store_of(host).create(record(), {}, revision)
    assert await store_of(host).load() is None
