"""Consumer groups on real brokers, with members that are plain streams to any of the brokers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.groups.member_session import MemberSession
from seaweedmq.broker.groups.store import GroupStore
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_metadata import group_from_json
from seaweedmq.errors import (
    InvalidArgument,
    NotFound,
    ProtocolViolation,
    ResourceExhausted,
    SeaweedMQError,
    StaleMetadata,
)
from seaweedmq.model.group_record import SegmentOwner
from seaweedmq.model.messages.calls import DeleteGroup, DeleteTopic, DescribeGroup, ListGroups, ResetGroup, SplitSegment
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted, GroupOpen, GroupRequest, Ownership
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, Start, StartKind
from seaweedmq.model.topic import TopicName
from tests.broker.joining import GROUP, Joining, settled
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, story
from tests.sim.machines.loop import Owner, OwnerState
from tests.sim.machines.network import KEEPALIVE_TIMEOUT_S


async def filled(testbed: Testbed, brokers: int, segments: int, records: int = 10) -> list[Host]:
    hosts = await testbed.several(brokers, segments=segments)
    for number in range(segments):
        await testbed.publish(number, producer=number + 1, count=records)
    return hosts


def follower(testbed: Testbed) -> Host:
    return next(h for h in testbed.hosts if h.lives and h is not testbed.leader())


async def committed(host: Host, group: str = GROUP) -> dict[int, int | None]:
    description = await host.api.call(DescribeGroup(group))
    return {s.segment: s.committed for s in description.topics[0].segments}


# --- members come and go


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_member_lost_with_unread_records_counts_as_a_crash_and_its_old_commits_are_rejected(
    testbed: Testbed, is_restarted: bool
) -> None:
    (host,) = await filled(testbed, brokers=1, segments=1)
    lost = await Joining(testbed, "one").joined(host)
    await lost.until_owns(0)
    generation = lost.held[0].generation
    if is_restarted:
        owner = Joining(testbed, "one", incarnation=2)
    else:
        owner = Joining(testbed, "two")
        await lost.vanish()
    await owner.joined(host)
    await owner.until_owns(0)
    assert owner.held[0].crashes == 1
    refused = await owner.commit({0: 9}, generation)
    assert "was read in generation 1, which is over" in refused[0]
    refused = await owner.commit({0: 11})
    assert "lies beyond the end of segment 0, 10" in refused[0]
    assert await owner.commit({0: 3}) == {}
    assert await committed(host) == {0: 3}


async def test_a_member_that_hangs_loses_segments_in_the_end(testbed: Testbed) -> None:
    (host,) = await testbed.several(1, replace(CONFIG, group_revoke_timeout_s=30.0), segments=2)
    hangs = await Joining(testbed, "hangs").joined(host)
    await hangs.until_owns(0, 1)  # from here on it reads no assignment
    other = await Joining(testbed, "other").joined(host)
    await asyncio.sleep(25)
    assert other.owns == set()
    await testbed.until(lambda: len(other.owns) == 1, patience_s=10)


# --- the leader changes, etcd is away


async def test_a_new_leader_goes_on_where_the_old_one_was(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=3, segments=6)
    members = [await Joining(testbed, f"m-{n}").joined(h) for n, h in enumerate(hosts)]
    await settled(members, 6)
    before = [m.owns for m in members]
    mine = min(members[0].owns)
    assert await members[0].commit({mine: 4}) == {}
    old = testbed.leader()
    old.kill()
    for member in members:
        assert (await member.failure()) is not None
    await testbed.until(lambda: any(h.lives and h.inspect.leads for h in hosts))
    for member in members:
        await come_back(testbed, member)
    assert [m.owns for m in members] == before
    assert [m.let_go for m in members] == [[], [], []]
    assert members[0].held[mine].generation == 1
    assert (await committed(testbed.leader()))[mine] == 4


async def come_back(testbed: Testbed, member: Joining, host: Host | None = None) -> None:
    """Join as a client does: retry until an assignment arrives, ignoring retriable errors."""
    async with asyncio.timeout(60):
        while not await tried(member, host or follower(testbed)):  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.2)


async def tried(member: Joining, host: Host) -> bool:
    try:
        await member.joined(host)
    except SeaweedMQError as error:
        if not error.retryable:
            raise
        return False
    return True


async def test_a_frozen_leader_does_not_keep_members_that_came_through_others(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=3, segments=2)
    frozen = testbed.leader()
    member = await Joining(testbed, "one").joined(follower(testbed))
    await member.until_owns(0, 1)
    frozen.freeze()
    error = await member.failure()
    assert error is not None
    assert error.retryable
    await testbed.until(lambda: any(h is not frozen and h.inspect.leads for h in hosts))
    await come_back(testbed, member, next(h for h in hosts if h is not frozen))
    assert await member.commit({0: 5}) == {}
    frozen.thaw()
    await asyncio.sleep(10)
    assert await member.commit({0: 6}) == {}


async def test_commits_wait_while_etcd_is_away_for_a_moment_and_members_come_back_after_long(testbed: Testbed) -> None:
    (host,) = await filled(testbed, brokers=1, segments=1)
    member = await Joining(testbed, "one").joined(host)
    await member.until_owns(0)
    testbed.etcd.server.freeze()
    await member.send_commit({0: 7})
    await asyncio.sleep(0.5)
    assert not member.stream.replies
    testbed.etcd.server.thaw()
    assert await member.commit({0: 8}) == {}
    assert await committed(host) == {0: 8}
    testbed.etcd.server.freeze()
    await member.send_commit({0: 9})
    error = await member.failure()
    assert error is not None
    assert error.retryable
    testbed.etcd.server.thaw()
    await come_back(testbed, member, host)
    assert 0 in member.held
    assert (await committed(host))[0] in (8, 9)


@pytest.mark.parametrize("turns", range(-10, 5))
def test_members_hear_of_the_end_when_the_leader_is_deposed(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two events are this many turns of the loop apart, in either order: the second meets a coordinator that is
    already stopping."""

    @story
    async def tell(testbed: Testbed) -> None:
        (host,) = await filled(testbed, brokers=1, segments=1)
        member = await Joining(testbed, "one").joined(host)
        await member.until_owns(0)
        fails = asyncio.Event()

        async def write(*_: object) -> None:
            await fails.wait()
            raise StaleMetadata("the group continues at another leader")

        monkeypatch.setattr(GroupStore, "write", write)
        await member.send_commit({0: 1})
        await asyncio.sleep(1)
        first, second = fails.set, host.inspect.leader.election.step_down
        if turns < 0:
            first, second = second, first
        first()
        for _ in range(abs(turns)):
            await asyncio.sleep(0)
        second()
        error = await member.failure()
        assert error is not None
        assert error.retryable

    tell()


# --- where a group begins, and what it has finished


async def test_a_group_that_begins_at_the_latest_misses_nothing_though_it_never_committed(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=2, segments=2, records=10)
    member = await Joining(testbed, "one", start=LATEST).joined(hosts[1])
    await member.until_owns(0, 1)
    assert {o.start for o in member.held.values()} == {Start(StartKind.OFFSET, 10)}
    await member.leave()
    await testbed.publish(0, producer=99, count=5)
    member = await Joining(testbed, "one", start=LATEST, incarnation=2).joined(hosts[0])
    await member.until_owns(0, 1)
    assert {o.start for o in member.held.values()} == {Start(StartKind.OFFSET, 10)}
    description = await hosts[0].api.call(DescribeGroup(GROUP))
    assert [(s.segment, s.lag_records) for s in description.topics[0].segments] == [(0, 5), (1, 0)]


async def test_commits_of_many_members_are_written_together(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=1, segments=20, records=1)
    members = [await Joining(testbed, f"m-{n}").join(hosts[0]) for n in range(20)]
    await settled(members, 20)
    before = testbed.etcd.server.revision
    for member in members:
        await member.send_commit(dict.fromkeys(member.held, 1))
    await testbed.until(lambda: all(m.stream.replies for m in members))
    assert set((await committed(hosts[0])).values()) == {1}
    assert testbed.etcd.server.revision - before <= 3


# --- administration


async def test_a_group_is_reset_only_without_members_unless_forced(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=2, segments=2)
    member = await Joining(testbed, "one").joined(hosts[0])
    await member.until_owns(0, 1)
    assert await member.commit({0: 10, 1: 4}) == {}
    with pytest.raises(InvalidArgument, match="has members \\(one\\): stop them first, or force"):
        await hosts[1].api.call(ResetGroup(GROUP, NAME, EARLIEST, False))
    description = await hosts[1].api.call(ResetGroup(GROUP, NAME, EARLIEST, True))
    assert [s.lag_records for s in description.topics[0].segments] == [10, 10]
    await member.until(lambda: len(member.let_go) == 2 and len(member.held) == 2)
    assert {o.start for o in member.held.values()} == {EARLIEST}
    await member.leave()
    description = await hosts[1].api.call(ResetGroup(GROUP, NAME, LATEST, False))
    assert [(s.committed, s.lag_records) for s in description.topics[0].segments] == [(10, 0), (10, 0)]
    description = await hosts[1].api.call(ResetGroup(GROUP, NAME, Start(StartKind.OFFSET, 7), False))
    assert description.topics[0].start == Start(StartKind.OFFSET, 7)
    await member.joined(hosts[0])
    await member.until_owns(0, 1)
    assert {o.start for o in member.held.values()} == {Start(StartKind.OFFSET, 7)}


async def test_a_group_is_deleted_with_all_its_offsets_and_a_topic_with_its_groups(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=2, segments=2)
    member = await Joining(testbed, "one").joined(hosts[0])
    await member.until_owns(0, 1)
    assert await member.commit({0: 10}) == {}
    with pytest.raises(InvalidArgument, match="has members"):
        await hosts[1].api.call(DeleteGroup(GROUP, False))
    await hosts[1].api.call(DeleteGroup(GROUP, True))
    assert isinstance(await member.failure(), NotFound)
    assert await hosts[0].api.call(ListGroups()) == ()
    assert (await hosts[0].meta.list("/seaweedmq-groups/")).entries == ()
    with pytest.raises(NotFound, match="there is no group billing: see `seaweedmq group list`"):
        await hosts[0].api.call(DescribeGroup(GROUP))
    member = await Joining(testbed, "one", incarnation=2).joined(hosts[1])
    await member.until_owns(0, 1)
    assert member.held[0].start == EARLIEST
    assert await member.commit({0: 10}) == {}
    await hosts[0].api.call(DeleteTopic(NAME))
    assert isinstance(await member.failure(), NotFound)
    assert await hosts[0].api.call(ListGroups()) == ()
    assert (await hosts[0].meta.list("/seaweedmq-groups/")).entries == ()
    await testbed.topic(hosts[0], segments=1)
    again = await Joining(testbed, "one").joined(hosts[0])
    await again.until_owns(0)
    assert again.held[0].start == EARLIEST


async def test_a_group_reads_several_topics(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=2, segments=2)
    other = TopicName("test", "other")
    await testbed.topic(hosts[0], other, segments=1)
    one = await Joining(testbed, "one").joined(hosts[0])
    two = await Joining(testbed, "two", name=other).joined(hosts[0])
    await one.until_owns(0, 1)
    await two.until_owns(0)
    description = await hosts[1].api.call(DescribeGroup(GROUP))
    assert [(t.topic, [m.id for m in t.members]) for t in description.topics] == [(other, ["two"]), (NAME, ["one"])]
    assert description.topics[1].members[0].segments == (0, 1)
    assert description.topics[1].members[0].connected
    listed = await hosts[1].api.call(ListGroups())
    assert sorted((s.group, s.topic, s.members) for s in listed) == [(GROUP, other, 1), (GROUP, NAME, 1)]


async def test_unknown_groups_and_bad_names_are_refused(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=1, segments=1)
    api = hosts[0].api
    for call in (
        api.call(DescribeGroup("absent")),
        api.call(ResetGroup("absent", NAME, EARLIEST, False)),
        api.call(DeleteGroup("absent", False)),
    ):
        with pytest.raises(NotFound, match="there is no group absent"):
            await call
    with pytest.raises(InvalidArgument, match=r"group '\.\./x' is not allowed"):
        await api.call(DescribeGroup("../x"))
    for bad in (Joining(testbed, "a b"), Joining(testbed, "one", start=Start(StartKind.TIME, -1))):
        await bad.join(hosts[0])
        assert isinstance(await bad.failure(), InvalidArgument)
    stranger = await Joining(testbed, "one", name=TopicName("test", "nothing")).join(hosts[0])
    assert isinstance(await stranger.failure(), NotFound)
    one = await Joining(testbed, "one").joined(hosts[0])
    with pytest.raises(NotFound, match="does not read test/nothing"):
        await api.call(ResetGroup(GROUP, TopicName("test", "nothing"), EARLIEST, False))
    await one.until_owns(0)
    one.number = -1
    await one.send_commit({0: 1})
    assert isinstance(await one.failure(), ProtocolViolation)


async def test_there_is_room_for_so_many_groups_and_members(testbed: Testbed) -> None:
    hosts = await testbed.several(1, replace(CONFIG, groups_max=2, group_members_max=2))
    await Joining(testbed, "one").joined(hosts[0], "g-1")
    await Joining(testbed, "two").joined(hosts[0], "g-1")
    third = await Joining(testbed, "three").join(hosts[0], "g-1")
    assert isinstance(await third.failure(), ResourceExhausted)
    await Joining(testbed, "one").joined(hosts[0], "g-2")
    third = await Joining(testbed, "one").join(hosts[0], "g-3")
    assert isinstance(await third.failure(), ResourceExhausted)


async def test_groups_beyond_the_memory_of_the_leader_are_rejected_until_others_end(testbed: Testbed) -> None:
    hosts = await filled(testbed, 1, segments=2)
    memory = testbed.leader().inspect.leader.groups.memory
    one = await Joining(testbed, "one").joined(hosts[0], "g-1")
    await one.until_owns(0, 1)
    memory.bytes_max = memory.used
    for member, group in (("two", "g-1"), ("one", "g-2")):
        rejected = await Joining(testbed, member).join(hosts[0], group)
        error = await rejected.failure()
        assert isinstance(error, ResourceExhausted)
        assert "raise memory_bytes_max" in str(error)
    assert await one.commit({}) == {}
    await one.send_commit({0: 1})
    assert isinstance(await one.failure(), ResourceExhausted), "its first commit, which would be kept"
    await one.joined(hosts[0], "g-1")
    await one.leave()
    left = memory.used
    await testbed.until(lambda: memory.used < left)
    await hosts[0].api.call(DeleteGroup("g-1", force=True))
    await testbed.until(lambda: memory.used == 0)
    await Joining(testbed, "one").joined(hosts[0], "g-2")
    await hosts[0].api.call(DeleteGroup("g-2", True))
    await Joining(testbed, "one").joined(hosts[0], "g-3")


# --- segments split and merge


async def test_a_reset_goes_back_before_a_split(testbed: Testbed) -> None:
    hosts = await filled(testbed, brokers=2, segments=1)
    member = await Joining(testbed, "one").joined(hosts[0])
    await member.until_owns(0)
    await hosts[0].api.call(SplitSegment(NAME, 0, 1_000))
    assert await member.commit({0: 10}) == {}
    await member.until_owns(1, 2)
    await hosts[0].api.call(ResetGroup(GROUP, NAME, EARLIEST, True))
    await member.until_owns(0)
    assert member.held[0].start == EARLIEST
    assert await member.commit({0: 10}) == {}
    await member.until_owns(1, 2)


# --- members that stand still -----------------------------------------------------------------------------------------


class Reading:
    """A real client in its own process, as a member that takes a record every 0.2 s."""

    def __init__(self, testbed: Testbed, name: str) -> None:
        self.testbed = testbed
        self.name = name
        self.owner = Owner(name)
        self.got: list[tuple[float, int]] = []
        """Time and offset of each record."""
        self._task = testbed.network.spawn(self.owner, self._run())

    async def _run(self) -> None:
        client = await self.testbed.client(self.owner)
        async with client, client.subscriber(str(NAME), group=GROUP, start="earliest", member=self.name) as subscriber:
            async for message in subscriber:
                self.got.append((self.testbed.loop.time(), message.offset))
                await asyncio.sleep(0.2)
                message.ack()

    def offsets(self, since_s: float = 0.0) -> list[int]:
        return [offset for at_s, offset in self.got if at_s >= since_s]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@pytest.mark.parametrize("frozen_s", [0.5, KEEPALIVE_TIMEOUT_S, 4.0, 12.0, 30.0])
async def test_a_member_that_stood_still_hands_out_nothing_of_others(testbed: Testbed, frozen_s: float) -> None:
    hosts = await filled(testbed, brokers=2, segments=1, records=200)
    first = Reading(testbed, "first")
    await testbed.until(lambda: len(first.got) >= 3)
    second = Reading(testbed, "second")
    await asyncio.sleep(1)
    assert second.got == []
    first.owner.state = OwnerState.FROZEN
    await asyncio.sleep(min(frozen_s, KEEPALIVE_TIMEOUT_S))
    if frozen_s > KEEPALIVE_TIMEOUT_S:
        testbed.network.break_streams_of(first.owner)
        await asyncio.sleep(frozen_s - KEEPALIVE_TIMEOUT_S)
    given_away = bool(second.got)
    testbed.loop.thaw(first.owner)
    thawed_s = testbed.loop.time()
    await testbed.until(lambda: len(first.offsets() + second.offsets()) >= 230 or thawed_s + 50 < testbed.loop.time())
    assert given_away == (frozen_s >= KEEPALIVE_TIMEOUT_S + CONFIG.group_session_timeout_s)
    assert not set(first.offsets(thawed_s)) & set(second.offsets())
    assert set(first.offsets() + second.offsets()) == set(range(200))
    assert (await hosts[0].api.call(DescribeGroup(GROUP))).topics[0].members
    await first.stop()
    await second.stop()


async def test_what_a_member_was_never_told_of_is_not_waited_for(testbed: Testbed) -> None:
    """The member reads nothing from its stream while it gets segments, and again after another member has joined."""
    (host,) = await filled(testbed, brokers=1, segments=2)
    over = asyncio.Event()

    async def requests() -> AsyncIterator[GroupRequest]:
        yield GroupOpen(group=GROUP, topic=NAME, member="slow", incarnation=1, start=EARLIEST, client="a test", held={})
        await over.wait()

    replies = host.broker.api.join_group(requests())
    first = await anext(replies)
    assert isinstance(first, GroupAssignment)
    assert not first.owned
    await testbed.until(lambda: len(owners(testbed)) == 2)
    other = await Joining(testbed, "other").joined(host)
    await testbed.until(lambda: other.owns)
    last = await anext(replies)
    assert isinstance(last, GroupAssignment)
    assert {o.segment for o in last.owned} == {0, 1} - other.owns
    over.set()
    await replies.aclose()  # type: ignore[attr-defined]


def owners(testbed: Testbed) -> dict[int, SegmentOwner]:
    entry = testbed.etcd.server.get(keys.group_key(NAME, GROUP))
    return {} if entry is None else dict(group_from_json(entry.value).owners)


def assigned(*ownerships: tuple[int, int]) -> GroupAssignment:
    """Return an assignment of segments, each as a pair of segment id and generation."""
    owned = (
        Ownership(segment=segment, generation=generation, start=EARLIEST, deliveries={}, crashes=0)
        for segment, generation in ownerships
    )
    return GroupAssignment(generation=9, owned=tuple(owned))


async def sent(session: MemberSession) -> Any:
    reading = asyncio.create_task(asyncio.sleep(3600))
    replies = session.replies(reading)
    reply = await anext(replies)
    await replies.aclose()
    return reply


async def test_of_assignments_only_the_latest_is_sent_and_what_was_in_the_others_alone_is_named() -> None:
    session = MemberSession(1, "m", {})
    assert session.enqueue(assigned((2, 2), (3, 4))) == {}
    assert session.enqueue(assigned((2, 2), (5, 5))) == {3: 4}
    assert session.enqueue(assigned((2, 2))) == {5: 5}
    assert await sent(session) == assigned((2, 2))


async def test_what_was_sent_or_held_is_the_members_to_release() -> None:
    session = MemberSession(1, "m", {0: 1})
    assert session.enqueue(assigned((0, 1), (1, 1))) == {}
    assert session.enqueue(assigned((1, 1))) == {}, "it said that it holds it"
    await sent(session)
    assert session.enqueue(assigned((2, 2))) == {}
    await sent(session)
    assert session.enqueue(assigned((2, 2), (3, 3))) == {}
    assert session.enqueue(assigned()) == {3: 3}


async def test_a_segment_of_a_later_generation_is_another_ownership() -> None:
    session = MemberSession(1, "m", {0: 1})
    session.enqueue(assigned((0, 7)))
    assert session.enqueue(assigned()) == {0: 7}


async def test_answers_are_all_sent() -> None:
    session = MemberSession(1, "m", {})
    for number in (1, 2):
        await session.expect(number)
        assert session.enqueue(GroupCommitted(number, {})) == {}
    assert [await sent(session), await sent(session)] == [GroupCommitted(1, {}), GroupCommitted(2, {})]
