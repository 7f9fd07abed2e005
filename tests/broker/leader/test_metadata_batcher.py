"""Metadata changes of many topics share etcd transactions, and each succeeds or fails on its own."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from seaweedmq.broker.leader.metadata_batcher import MetadataBatcher
from seaweedmq.codec.state import keys
from seaweedmq.core.lineage.topology import MetadataChange, SegmentEnd, succeed
from seaweedmq.errors import Conflict, InvalidArgument, NotFound, ResourceExhausted, SeaweedMQError, Unavailable
from seaweedmq.model.messages.calls import CreateTopics
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName, TopicSpec
from seaweedmq.ports import Compare, Delete, Put
from tests.broker.testbed import Host, Testbed

NAMES = [TopicName("test", f"topic-{number:02}") for number in range(30)]
SEGMENTS = 4


class Watched:
    """Counter of the transactions that change segments, which may interfere with them."""

    def __init__(
        self, testbed: Testbed, interfere: Callable[[int, Sequence[Put | Delete]], None] = lambda _, __: None
    ) -> None:
        self.sizes: list[int] = []
        self._interfere = interfere
        self._transact = testbed.etcd.server.transact
        testbed.etcd.server.transact = self  # type: ignore[assignment,method-assign]

    def __call__(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        if any(change.key.startswith(keys.SEGMENTS) for change in then):
            self.sizes.append(len(then))
            self._interfere(len(self.sizes), then)
        return self._transact(compares, then)


async def topics(testbed: Testbed, brokers: int = 2, replicas: int = 1) -> list[Host]:
    hosts = await testbed.cluster(brokers)
    specs = tuple(TopicSpec(name=name, segments=SEGMENTS, replicas=replicas) for name in NAMES)
    await testbed.leader().api.call(CreateTopics(specs))
    await testbed.until(lambda: all(set(NAMES) <= h.inspect.view.topics.keys() for h in hosts))
    return hosts


def plan(segment: Segment, topic: Topic) -> MetadataChange:
    """Seal the segment and open a successor of the same range."""
    ended = SegmentEnd(segment=segment, end_offset=0, epoch=segment.epoch, sequences=())
    return succeed(topic, [ended], ranges=[segment.slots], placement=[segment.replicas], now_us=1)


async def write_all(testbed: Testbed, host: Host, segments: Sequence[Segment]) -> list[BaseException | None]:
    """Change each segment concurrently, in the leader's process."""
    commit = MetadataBatcher(host.inspect.leader.metadata)

    async def write() -> list[BaseException | None]:
        return await asyncio.gather(
            *(commit.write(segment.topic, [segment], partial(plan, segment)) for segment in segments),
            return_exceptions=True,
        )

    return await testbed.network.spawn(host.owner, write())


def all_segments(host: Host) -> list[Segment]:
    return [segment for name in NAMES for segment in host.inspect.view.open_of(name).values()]


async def test_many_changes_are_few_transactions_and_each_fails_alone(testbed: Testbed) -> None:
    await topics(testbed)
    leader = testbed.leader()
    before = all_segments(leader)
    watched = Watched(testbed)
    assert await write_all(testbed, leader, before) == [None] * len(before)
    assert len(watched.sizes) <= 5, "of 120 changes of 30 topics, with nine writes each"
    assert max(watched.sizes) <= 100
    for name in NAMES:
        segments = leader.inspect.view.segments[name]
        assert [s.id for s in segments.values() if s.is_open] == [4, 5, 6, 7]
        assert sorted(s.successors for s in segments.values() if not s.is_open) == [(4,), (5,), (6,), (7,)]

    stale = NAMES[7]

    def alter(number: int, _: Sequence[Put | Delete]) -> None:
        if number == 1:  # at the last moment, unknown to the leader; the first transaction has all changes
            topic = testbed.etcd.server.get(keys.topic_key(stale))
            assert topic is not None
            testbed.etcd.server.transact([], [Put(topic.key, topic.value)])

    first = all_segments(leader)[::SEGMENTS]
    Watched(testbed, alter)
    results = await write_all(testbed, leader, first)
    assert [type(result) for result in results if result is not None] == [Conflict]
    assert isinstance(results[NAMES.index(stale)], Conflict)

    segments = all_segments(leader)[:SEGMENTS]
    large = keys.segment_key(segments[2].topic, segments[2].id)

    def refuse(_: int, then: Sequence[Put | Delete]) -> None:
        if any(change.key == large for change in then):
            raise InvalidArgument("etcd refused the request: request is too large")

    Watched(testbed, refuse)
    results = await write_all(testbed, leader, segments)
    assert [type(result) for result in results] == [type(None), type(None), InvalidArgument, type(None)]


async def test_what_its_plan_refuses_is_refused_alone(testbed: Testbed) -> None:
    await topics(testbed)
    leader = testbed.leader()
    commit = MetadataBatcher(leader.inspect.leader.metadata)
    segments = all_segments(leader)[:3]

    def refuse(_: Topic) -> MetadataChange:
        raise Unavailable("not now")

    async def write() -> list[BaseException | None]:
        return await asyncio.gather(
            commit.write(segments[0].topic, [segments[0]], partial(plan, segments[0])),
            commit.write(segments[1].topic, [segments[1]], refuse),
            commit.write(TopicName("test", "none"), [], refuse),
            commit.write(segments[2].topic, [segments[2]], lambda _: None),
            return_exceptions=True,
        )

    done, refused, unknown, nothing = await testbed.network.spawn(leader.owner, write())
    assert done is None
    assert nothing is None
    assert str(refused) == "not now"
    assert isinstance(unknown, NotFound)
    open_now = leader.inspect.view.open_of(segments[0].topic)
    assert set(open_now) == {1, 2, 3, 4}


@pytest.mark.parametrize("keys_max", [40, 9, 3])
async def test_an_etcd_that_takes_less_gets_less(testbed: Testbed, keys_max: int) -> None:
    await topics(testbed)
    leader = testbed.leader()

    def refuse(_: int, then: Sequence[Put | Delete]) -> None:
        if len(then) > keys_max:
            raise InvalidArgument("etcd refused the request: too many operations in txn request")

    watched = Watched(testbed, refuse)
    segments = all_segments(leader)
    assert await write_all(testbed, leader, segments) == [None] * len(segments)
    refused = [size for size in watched.sizes if size > keys_max]
    assert len(refused) <= 6, "it remembers what etcd takes"


async def test_an_etcd_without_space_gets_transactions_as_large_as_ever_once_it_has_some(testbed: Testbed) -> None:
    await topics(testbed)
    leader = testbed.leader()

    def refuse(number: int, _: Sequence[Put | Delete]) -> None:
        if number == 1:
            raise ResourceExhausted("etcd has used up its quota of space")

    watched = Watched(testbed, refuse)
    results = await write_all(testbed, leader, all_segments(leader))
    assert {type(result) for result in results} == {type(None), ResourceExhausted}
    assert len(watched.sizes) <= 5, "of 120 changes of 30 topics, with nine writes each"


async def test_who_goes_away_leaves_the_others_to_the_next(testbed: Testbed) -> None:
    await topics(testbed)
    leader = testbed.leader()
    commit = MetadataBatcher(leader.inspect.leader.metadata)
    segments = all_segments(leader)[:SEGMENTS]

    async def write() -> list[BaseException | None]:
        writing = [
            asyncio.create_task(commit.write(segment.topic, [segment], partial(plan, segment))) for segment in segments
        ]
        await asyncio.sleep(0.0005)  # the first caller has sent a transaction with all changes
        writing[0].cancel()
        return await asyncio.gather(*writing, return_exceptions=True)

    gone, *others = await testbed.network.spawn(leader.owner, write())
    assert isinstance(gone, asyncio.CancelledError)
    assert all(result is None or isinstance(result, Conflict) for result in others), "it may have happened"
    view = leader.inspect.view
    await testbed.until(lambda: len(view.open_of(NAMES[0])) == SEGMENTS)


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_a_leader_that_dies_amid_transitions_leaves_none_undone(testbed: Testbed, after: int) -> None:
    hosts = await topics(testbed, brokers=4, replicas=2)
    leader = testbed.leader()
    victim = next(h for h in hosts if h is not leader)
    publishers = {}
    for name in NAMES[::3]:
        primary = await testbed.primary(leader, name)
        publishers[name] = await primary.publisher(name=name)
        await publishers[name].store(frames=3)

    def die(number: int, _: Sequence[Put | Delete]) -> None:
        if number == after:
            leader.kill()

    watched = Watched(testbed, die)
    victim.kill()
    await testbed.until(lambda: not leader.lives, patience_s=20)
    left = [h for h in hosts if h.lives]
    alive = {h.broker.id for h in left}

    def is_whole() -> bool:
        return all(
            len(h.inspect.view.open_of(name)) == SEGMENTS
            and all(alive >= set(s.replicas) for s in h.inspect.view.open_of(name).values())
            for h in left
            for name in NAMES
        )

    await testbed.until(is_whole, patience_s=30)
    view = left[0].inspect.view
    sealed = [s for name in NAMES for s in view.segments[name].values() if not s.is_open]
    assert len(watched.sizes) < len(sealed) / 3, watched.sizes
    for name in NAMES[::3]:
        first = view.segments[name][0]
        assert first.is_open or first.end_offset == 3, "what was acknowledged is below the end of what was sealed"
    assert not any(h.has_failed for h in left)


async def test_a_leader_that_was_deposed_changes_nothing(testbed: Testbed) -> None:
    hosts = await topics(testbed, brokers=3)
    old = testbed.leader()
    segments = all_segments(old)[:2]
    old.freeze()
    await testbed.until(lambda: any(h.inspect.leads for h in hosts if h is not old))
    old.thaw()
    results = await write_all(testbed, old, segments)
    assert all(isinstance(result, SeaweedMQError) for result in results)
    leader = testbed.leader().inspect
    repaired = {(d.topic, number) for d in leader.leader.transitions.decisions for number in d.segments}
    changed = {(s.topic, s.id) for s in segments if leader.view.segment(s.key) != s}
    assert changed <= repaired, "only the new leader changed any of them"
    assert not old.inspect.leader.transitions.decisions
