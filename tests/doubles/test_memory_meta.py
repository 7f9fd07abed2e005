"""The hooks of the store in memory, and what session, election and view make of the trouble they cause."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import deletion_to_json, segment_to_json, topic_to_json
from seaweedmq.coordination import session
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import AlreadyExists, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Deletion, Topic, TopicName
from seaweedmq.ports import Changes, Delete, Put
from tests.doubles.memory_meta import MemoryMetaServer, MemoryMetaStore
from tests.support.segments import NAME as ORDERS
from tests.support.segments import make_segment, make_topic

INFO = BrokerInfo(id="b1", address="h:1", started_us=0, pid=1, version="0")


def segment(number: int, epoch: int = 1) -> Segment:
    return replace(make_segment(), id=number, epoch=epoch)


def put_segment(value: Segment) -> Put:
    return Put(keys.segment_key(value.topic, value.id), segment_to_json(value))


@pytest.fixture
def server() -> MemoryMetaServer:
    return MemoryMetaServer()


@pytest.fixture
def store(server: MemoryMetaServer) -> MemoryMetaStore:
    return MemoryMetaStore(server, timeout_s=0.1)


@pytest.fixture
async def view(store: MemoryMetaStore) -> AsyncIterator[ClusterView]:
    view = ClusterView(store, random.Random(1))
    running = asyncio.create_task(view.run())
    await view.ready()
    yield view
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def until(holds: Callable[[], bool], view: ClusterView) -> None:
    async with asyncio.timeout(3):
        while not holds():
            await view.wait_change(view.changes)


async def test_registration_and_campaign_survive_lost_answers(store: MemoryMetaStore) -> None:
    session = Session(store, 0.5, random.Random(1))
    store.lose_answers(2)
    await session.open(INFO)
    assert await store.get(keys.broker_key("b1")) is not None
    election = Election(store, session, "b1", random.Random(1))
    store.lose_answers(2)
    running = asyncio.create_task(election.run())
    async with asyncio.timeout(1):
        revision = await election.wait_leading()
    lock = await store.get(keys.LEADER)
    assert lock.create_revision == revision
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await session.close()
    assert await store.get(keys.LEADER) is None


async def test_failing_to_open_leaves_nothing_behind(server: MemoryMetaServer, store: MemoryMetaStore) -> None:
    session = Session(store, 0.2, random.Random(1))
    store.lose_answers(99)
    with pytest.raises(Unavailable):
        await session.open(INFO)
    assert server.list("/").entries == ()
    assert not session.alive()


async def test_an_etcd_that_never_stays_is_no_reason_to_wait_for_an_address_for_ever(
    server: MemoryMetaServer, store: MemoryMetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ADDRESS_WAIT_EXTRA_S", 0.2)
    holder, other = Session(store, 1.0, random.Random(1)), Session(MemoryMetaStore(server), 0.2, random.Random(1))
    await holder.open(INFO)

    async def come_and_go() -> None:
        while True:
            await asyncio.sleep(0.25)
            server.stop()
            await asyncio.sleep(0.01)
            server.start()

    coming = asyncio.create_task(come_and_go())
    async with asyncio.timeout(5):
        with pytest.raises(AlreadyExists, match="held by the running broker b1"):
            await other.open(replace(INFO, id="b2"))
    coming.cancel()
    await holder.close()


@pytest.mark.parametrize("is_lost", [True, False])
async def test_the_end_of_a_session_ends_the_campaign(
    server: MemoryMetaServer, store: MemoryMetaStore, is_lost: bool
) -> None:
    session = Session(store, 0.2 if is_lost else 0.5, random.Random(1))
    await session.open(INFO)
    election = Election(store, session, "b1", random.Random(1))
    running = asyncio.create_task(election.run())
    await election.wait_leading()
    async with asyncio.timeout(1):
        if is_lost:
            server.expire_lease(session.lease)
            await election.wait_not_leading()
            await session.lost.wait()
        else:
            await session.close()
        await running
    assert await store.get(keys.LEADER) is None, "a lock without a lease would never be free again"
    await session.close()


async def test_a_compaction_between_list_and_watch_is_survived(server: MemoryMetaServer) -> None:
    class Racing(MemoryMetaStore):
        watches = 0

        async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
            self.watches += 1
            if self.watches == 1:
                for epoch in (1, 2, 3):
                    server.transact([], [put_segment(segment(1, epoch))])
                server.compact(server.revision)
            async for changes in super().watch(prefix, from_revision):
                yield changes

    racing = Racing(server)
    view = ClusterView(racing, random.Random(1))
    running = asyncio.create_task(view.run())
    await until(lambda: 1 in view.segments.get(ORDERS, {}), view)
    assert view.segments[ORDERS][1].epoch == 3
    assert racing.watches == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_is_unreadable_is_left_out(
    store: MemoryMetaStore, view: ClusterView, caplog: pytest.LogCaptureFixture
) -> None:
    bad = keys.segment_key(ORDERS, 2)
    strangers = [
        Put(bad, b"{}"),
        Put(keys.segment_key(ORDERS, 3), segment_to_json(segment(4))),
        Put(keys.ROOT + "unknown", b"?"),
        Put(keys.SEGMENTS + "garbage", b"?"),
    ]
    revision = await store.transact([], [*strangers, put_segment(segment(1))])
    assert revision is not None
    await view.wait_revision(revision)
    assert list(view.segments[ORDERS]) == [1]
    assert bad in caplog.text
    assert view.segment_revision(SegmentId(ORDERS, 2)) == 0
    await store.transact([], [Delete(put.key) for put in strangers])
    last = await store.transact([], [Put(keys.segment_key(ORDERS, 1), b"now unreadable too")])
    assert last is not None
    await view.wait_revision(last)
    assert view.segments == {}


async def test_a_deleted_topic_is_known_until_its_files_are_gone(store: MemoryMetaStore, view: ClusterView) -> None:
    deletion = Deletion(name=ORDERS, uid=7)
    await store.transact([], [Put(keys.deletion_key(ORDERS), deletion_to_json(deletion))])
    await until(lambda: dict(view.deletions) == {ORDERS: deletion}, view)
    await store.transact([], [Delete(keys.deletion_key(ORDERS))])
    await until(lambda: not view.deletions, view)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("delete"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("topic"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("drop"), st.just(0), st.just(0)),
        st.tuples(st.just("cut"), st.just(0), st.just(0)),
        st.tuples(st.just("compact"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(STEPS)
def test_after_any_trouble_the_view_is_what_the_store_holds(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(_follow_through(steps))


async def _follow_through(steps: list[tuple[str, int, int]]) -> None:
    server = MemoryMetaServer()
    store = MemoryMetaStore(server, timeout_s=0.001)
    view = ClusterView(store, random.Random(1))
    running = asyncio.create_task(view.run())
    segments: dict[int, Segment] = {}
    topics: dict[TopicName, Topic] = {}
    for kind, number, epoch in steps:
        match kind:
            case "put":
                segments[number] = segment(number, epoch)
                server.transact([], [put_segment(segments[number])])
            case "delete":
                segments.pop(number, None)
                server.transact([], [Delete(keys.segment_key(ORDERS, number))])
            case "topic":
                made = replace(make_topic(), name=TopicName("shop", f"t{number}"))
                topics[made.name] = made
                server.transact([], [Put(keys.topic_key(made.name), topic_to_json(made))])
            case "drop":
                segments.clear()
                server.transact([], [Delete(keys.segments_prefix(ORDERS), prefix=True)])
            case "cut":
                server.stop()
                await asyncio.sleep(0)
                server.start()
            case "compact" if server.revision > server.compacted_revision:
                server.compact(server.revision)
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await view.wait_revision(server.revision)
    assert view.segments == ({ORDERS: segments} if segments else {})
    assert view.topics == topics
    for number in segments:
        entry = server.get(keys.segment_key(ORDERS, number))
        assert view.segment_revision(SegmentId(ORDERS, number)) == entry.mod_revision
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_lease_that_nobody_renews_any_more_counts_as_lost(store: MemoryMetaStore) -> None:
    session = Session(store, 1.0, random.Random(1))
    await session.open(INFO)
    (keeping,) = (task for task in asyncio.all_tasks() if task.get_name() == f"lease of {INFO.id}")
    keeping.cancel()
    async with asyncio.timeout(1):
        await session.lost.wait()
    assert not session.alive()
    await session.close()
