"""Session, election and view, on every metadata store: the guarantees that brokers rely on during failures."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import low_watermarks_to_json, topic_to_json
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import AlreadyExists, Deposed, LeaseEnded
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.topic import LowWatermarks, Topic, TopicName
from seaweedmq.ports import Compare, Delete, Put, loop_s
from tests.support.meta import Backend, CuttableStore
from tests.support.segments import make_topic

TTL_S = 1.0
TAKEOVER_S = TTL_S + 1.0


def broker(name: str, address: str | None = None) -> BrokerInfo:
    return BrokerInfo(id=name, address=address or f"{name}:1", started_us=1, pid=1, version="0.1.0")


def topic(name: str) -> Topic:
    return replace(make_topic(uid=1), name=TopicName("t", name))


def put_topic(made: Topic) -> Put:
    return Put(keys.topic_key(made.name), topic_to_json(made))


class Candidate:
    """The coordination part of a broker."""

    def __init__(self, store: CuttableStore, name: str) -> None:
        self.name = name
        self.store = store
        self.session = Session(store, TTL_S, random.Random(name))
        self.election = Election(store, self.session, name, random.Random(name))
        self.campaign: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.session.open(broker(self.name))
        self.campaign = asyncio.create_task(self.election.run())

    async def stop(self) -> None:
        if self.campaign is not None:
            self.campaign.cancel()
            await asyncio.gather(self.campaign, return_exceptions=True)
        await self.session.close()


@contextlib.asynccontextmanager
async def candidates(backend: Backend, count: int) -> AsyncIterator[list[Candidate]]:
    started = [Candidate(backend.client(), f"b{n}") for n in range(count)]
    await asyncio.gather(*(one.start() for one in started))
    try:
        yield started
    finally:
        await asyncio.gather(*(one.stop() for one in started))


@contextlib.asynccontextmanager
async def mirrored(backend: Backend) -> AsyncIterator[ClusterView]:
    view = ClusterView(backend.client(), random.Random(1))
    running = asyncio.create_task(view.run())
    try:
        async with asyncio.timeout(5):
            await view.ready()
        yield view
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(holds: Callable[[], bool], view: ClusterView, within_s: float = 6.0) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await view.wait_change(view.changes)


async def leader_among(those: list[Candidate], within_s: float) -> Candidate:
    waits = {asyncio.create_task(one.election.wait_leading()): one for one in those}
    try:
        done, _ = await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        assert done, f"no candidate leads after {within_s} s"
        return waits[done.pop()]
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def leading(those: list[Candidate]) -> list[str]:
    return [one.name for one in those if one.election.revision is not None]


# --- session ---
async def test_a_broker_is_registered_as_long_as_it_lives(backend: Backend) -> None:
    store = backend.client()
    session = Session(store, TTL_S, random.Random(1))
    async with mirrored(backend) as view:
        await session.open(broker("b1", "h:1"))
        await until(lambda: "b1" in view.brokers, view)
        await asyncio.sleep(2 * TTL_S)
        assert session.alive()
        assert view.brokers == {"b1": broker("b1", "h:1")}
        await session.close()
        assert not session.alive()
        await until(lambda: not view.brokers, view, within_s=TTL_S / 2)
        assert await store.get(keys.address_key("h:1")) is None


async def test_a_registration_is_replaced_while_it_lasts_and_never_brought_back(backend: Backend) -> None:
    store = backend.client()
    session = Session(store, TTL_S, random.Random(1))
    async with mirrored(backend) as view:
        await session.open(broker("b1", "h:1"))
        await session.update(replace(broker("b1", "h:1"), draining=True))
        await until(lambda: "b1" in view.brokers and view.brokers["b1"].draining, view)
        await store.revoke_lease(session.lease)
        with pytest.raises(LeaseEnded, match="the lease of broker b1 has ended: register again"):
            await session.update(broker("b1", "h:1"))
        await session.close()
        with pytest.raises(LeaseEnded, match="the lease of broker b1 has ended: register again"):
            await session.update(broker("b1", "h:1"))
        await until(lambda: not view.brokers, view)
        assert await store.get(keys.broker_key("b1")) is None


async def test_the_time_for_which_a_machine_is_suspended_counts(backend: Backend) -> None:
    suspended_s = 0.0
    session = Session(backend.client(), TTL_S, random.Random(1), clock_s=lambda: loop_s() + suspended_s)
    await session.open(broker("b1", "h:1"))
    assert session.alive()
    assert 0 < session.remaining_s <= TTL_S
    suspended_s = TTL_S
    assert not session.alive()
    assert session.remaining_s <= 0
    await session.close()


async def test_two_brokers_with_one_address_are_refused_of_both_kinds(backend: Backend) -> None:
    sessions = [Session(backend.client(), TTL_S, random.Random(n)) for n in range(4)]
    first, second, third, fourth = sessions
    advertised = {"kafka_address": "localhost:9092"}
    await first.open(replace(broker("first", "h:1"), **advertised))
    with pytest.raises(AlreadyExists, match=r"h:1 is held by the running broker first"):
        await second.open(broker("second", "h:1"))
    with pytest.raises(AlreadyExists, match=r"localhost:9092 for Kafka clients is held by the running broker first"):
        await third.open(replace(broker("third", "h:2"), **advertised))
    assert [session.alive() for session in sessions] == [True, False, False, False]
    assert await backend.client().get(keys.address_key("h:2")) is None
    await first.close()
    await fourth.open(replace(broker("fourth", "h:2"), **advertised))
    assert fourth.alive()
    await fourth.close()


async def test_of_brokers_that_start_at_once_with_one_address_one_gets_it(backend: Backend) -> None:
    sessions = [Session(backend.client(), TTL_S, random.Random(n)) for n in range(4)]
    opened = await asyncio.gather(
        *(session.open(broker(f"b{n}", "h:1")) for n, session in enumerate(sessions)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in opened) == ["AlreadyExists"] * 3 + ["NoneType"]
    assert [session.alive() for session in sessions] == [outcome is None for outcome in opened]
    snapshot = await backend.client().list(keys.BROKERS)
    assert len(snapshot.entries) == 1, "a rejected broker is not registered"
    await asyncio.gather(*(session.close() for session in sessions))


async def test_a_restarted_broker_gets_its_address_when_the_old_lease_ends(backend: Backend) -> None:
    store = backend.client()
    old, new = Session(store, TTL_S, random.Random(1)), Session(backend.client(), TTL_S, random.Random(1))
    await old.open(broker("old", "h:1"))
    store.is_cut = True  # kill -9: the lease is neither renewed nor revoked
    await new.open(broker("new", "h:1"))
    assert new.alive()
    entry = await backend.client().get(keys.address_key("h:1"))
    assert entry.value == b"new"
    store.is_cut = False
    async with asyncio.timeout(TTL_S):
        await old.lost.wait()
    await old.close()
    await new.close()


async def test_a_session_outlives_an_etcd_that_restarts(backend: Backend) -> None:
    session = Session(backend.client(), TTL_S, random.Random(1))
    await session.open(broker("b1"))
    await backend.stop()
    await asyncio.sleep(1.5 * TTL_S)
    assert not session.alive(), "the lease may have ended"
    assert not session.lost.is_set(), "nor is its end certain"
    await backend.start()
    await asyncio.sleep(TTL_S)
    assert session.alive(), "the next renewal confirms it"
    await session.close()


async def test_a_session_that_was_silent_too_long_is_lost(backend: Backend) -> None:
    store = backend.client()
    session = Session(store, TTL_S, random.Random(1))
    await session.open(broker("b1"))
    await asyncio.sleep(1.2 * TTL_S)
    store.is_cut = True
    await asyncio.sleep(TTL_S)
    assert not session.alive()
    assert not session.lost.is_set()
    await asyncio.sleep(1.0)
    store.is_cut = False
    async with asyncio.timeout(TTL_S):
        await session.lost.wait()
    await session.close()


# --- election ---
async def test_exactly_one_of_many_leads_and_is_replaced_at_once_when_it_stops(backend: Backend) -> None:
    async with candidates(backend, 5) as those, mirrored(backend) as view:
        leader = await leader_among(those, 2.0)
        for _ in range(10):
            await asyncio.sleep(TTL_S / 4)
            assert leading(those) in ([leader.name], []), "late renewals show no leader, never two"
        async with asyncio.timeout(TTL_S):
            await leader.election.wait_leading()
        assert view.leader == leader.name
        rest = [one for one in those if one is not leader]
        await leader.stop()
        second = await leader_among(rest, TTL_S / 2)
        assert leading(those) == [second.name]


async def test_a_dead_leader_is_replaced_within_ttl_and_a_second(backend: Backend) -> None:
    async with candidates(backend, 3) as those:
        leader = await leader_among(those, 2.0)
        others = [one for one in those if one is not leader]
        revision = leader.election.revision
        assert revision is not None
        leader.store.is_cut = True
        successor = await leader_among(others, TAKEOVER_S)
        assert leading(those) == [successor.name], "the old leader knows that it does not lead"
        leader.store.is_cut = False
        with pytest.raises(Deposed):
            await leader.election.transact([], [Put("/seaweedmq/topics/x", b"")])
        assert await leader.store.get("/seaweedmq/topics/x") is None


async def test_a_leader_writes_only_while_it_holds_the_lock(backend: Backend) -> None:
    async with candidates(backend, 2) as those:
        leader = await leader_among(those, 2.0)
        other = next(one for one in those if one is not leader)
        key = "/seaweedmq/topics/t/x"
        absent = Compare(key, create_revision=0)
        assert await leader.election.transact([absent], [Put(key, b"1")]) is not None
        assert await leader.election.transact([absent], [Put(key, b"2")]) is None, "a compare of its own failed"
        with pytest.raises(Deposed, match="does not lead"):
            await other.election.transact([], [Put(key, b"3")])
        # The lock is deleted, and the leader does not know it yet.
        leader.store.is_deaf = True
        await other.store.transact([], [Delete(keys.LEADER)])
        assert leading([leader]) == [leader.name]
        with pytest.raises(Deposed, match="deposed"):
            await leader.election.transact([], [Put(key, b"4")])
        assert leading([leader]) == []
        entry = await other.store.get(key)
        assert entry.value == b"1"
        async with asyncio.timeout(2):
            await other.election.wait_leading()


async def test_a_leader_leads_on_after_etcd_restarted(backend: Backend) -> None:
    async with candidates(backend, 2) as those:
        leader = await leader_among(those, 2.0)
        revision = leader.election.revision
        await backend.stop()
        async with asyncio.timeout(2 * TTL_S):
            await leader.election.wait_not_leading()
        await backend.start()
        async with asyncio.timeout(2 * TTL_S):
            assert await leader.election.wait_leading() == revision
        assert leading(those) == [leader.name]


async def test_a_frozen_etcd_ends_with_one_leader_again(backend: Backend) -> None:
    async with candidates(backend, 3) as those:
        await leader_among(those, 2.0)
        backend.freeze()
        try:
            await asyncio.sleep(1.5 * TTL_S)
            assert leading(those) == [], "without etcd no candidate can know that it leads"
        finally:
            backend.thaw()
        living = [one for one in those if not one.session.lost.is_set()]
        async with asyncio.timeout(10):
            while not leading(those) and any(not one.session.lost.is_set() for one in living):
                await asyncio.sleep(0.05)
                assert len(leading(those)) <= 1


# --- view ---
async def test_a_view_follows_every_change(backend: Backend) -> None:
    store = backend.client()
    await store.transact([], [put_topic(topic("before"))])
    async with mirrored(backend) as view:
        assert list(view.topics) == [TopicName("t", "before")]
        seen = view.changes
        revision = await store.transact([], [put_topic(topic("after")), put_topic(topic("third"))])
        assert revision is not None
        async with asyncio.timeout(2):
            await view.wait_revision(revision)
            assert await view.wait_change(seen) == seen + 1
        assert view.topics == {one.name: one for one in map(topic, ("before", "after", "third"))}
        assert view.topic_revision(topic("after").name) == revision
        assert view.topic_revision(TopicName("t", "none")) == 0


async def test_a_view_shows_low_watermarks_as_part_of_their_topic_in_any_order(backend: Backend) -> None:
    store, made = backend.client(), topic("made")
    marks = LowWatermarks(name=made.name, uid=made.uid, offsets=(0, 7))
    await store.transact([], [Put(keys.low_watermarks_key(made.name), low_watermarks_to_json(marks))])
    async with mirrored(backend) as view:
        assert not view.topics
        await store.transact([], [put_topic(made)])
        await until(lambda: dict(view.topics) == {made.name: replace(made, low_watermarks=(0, 7))}, view)
        other = replace(marks, uid=made.uid + 1, offsets=(9,))
        revision = await store.transact([], [Put(keys.low_watermarks_key(made.name), low_watermarks_to_json(other))])
        await until(lambda: dict(view.topics) == {made.name: made}, view)
        assert view.low_watermarks_revision(made.name) == revision
        await store.transact([], [Put(keys.low_watermarks_key(made.name), low_watermarks_to_json(marks))])
        await until(lambda: view.topics[made.name].low_watermarks == (0, 7), view)
    async with mirrored(backend) as view:
        assert dict(view.topics) == {made.name: replace(made, low_watermarks=(0, 7))}
        await store.transact([], [Delete(keys.low_watermarks_key(made.name))])
        await until(lambda: dict(view.topics) == {made.name: made}, view)
        assert view.low_watermarks_revision(made.name) == 0


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_view_catches_up_after_etcd_was_frozen_or_away(backend: Backend, compacted: bool) -> None:
    writer = backend.client()
    reader = backend.client()
    view = ClusterView(reader, random.Random(1))
    running = asyncio.create_task(view.run())
    await writer.transact([], [put_topic(topic("old"))])
    await until(lambda: len(view.topics) == 1, view)
    backend.freeze()
    await asyncio.sleep(2.0)
    backend.thaw()
    await writer.transact([], [put_topic(topic("other"))])
    await until(lambda: len(view.topics) == 2, view)
    await backend.stop()
    await asyncio.sleep(0.3)
    reader.is_cut = True
    await backend.start()
    await writer.transact([], [put_topic(topic("new"))])
    gone = [Delete(keys.topic_key(topic(name).name)) for name in ("old", "other")]
    revision = await writer.transact([], gone)
    assert revision is not None
    if compacted:
        await backend.compact(revision)
    reader.is_cut = False
    await until(lambda: list(view.topics) == [TopicName("t", "new")], view)
    assert view.revision >= revision
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
