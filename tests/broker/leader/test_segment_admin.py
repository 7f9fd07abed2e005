"""Manual split, merge, seal and move of segments, through any broker, while records arrive; their limit."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.leader.sealer import Sealer
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.errors import InvalidArgument, NotFound, SeaweedMQError, StaleMetadata, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import (
    Call,
    DeleteTopic,
    DescribeTopic,
    DrainBroker,
    GetClusterStatus,
    MergeSegments,
    MoveSegment,
    SealSegment,
    SplitSegment,
)
from seaweedmq.model.ring import WHOLE_RING, KeyRange, covers_ring
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Scaling
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, values
from tests.doubles.memory_store import StorageOp

HALF = 32_768


def by_id(description: TopicDescription) -> dict[int, Segment]:
    return {segment.id: segment for segment in description.segments}


def opened(description: TopicDescription) -> list[Segment]:
    found = sorted((s for s in description.segments if s.is_open), key=lambda s: s.slots)
    assert covers_ring((s.slots for s in found), WHOLE_RING)
    return found


def shape(description: TopicDescription) -> list[tuple[int, int, int]]:
    return [(s.id, s.slots.lo, s.slots.hi) for s in opened(description)]


async def read(testbed: Testbed, host: Host, segments: Sequence[int]) -> list[bytes]:
    got: list[bytes] = []
    for segment in segments:
        reader = await host.subscriber(segment=segment)
        await reader.ending()
        got += reader.values
    return got


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_split_segment_goes_on_in_two_that_begin_where_it_ended(testbed: Testbed, replicas: int) -> None:
    hosts = await testbed.cluster(3)
    (segment,) = opened(await testbed.topic(hosts[0], replicas=replicas))
    await testbed.publish(segment, frames=5)
    for n, host in enumerate(hosts):
        lowest = opened(await host.api.call(DescribeTopic(NAME)))[0]
        description = await host.api.call(SplitSegment(NAME, lowest.id, lowest.slots.hi // 2))
        assert len(opened(description)) == 2 + n
    segments = by_id(description)
    assert segments[0].successors == (1, 2)
    for child in (segments[1], segments[2]):
        assert (child.predecessors, child.start_offset, len(child.replicas)) == ((0,), 5, replicas)
        assert child.opened_us > segments[0].opened_us
    assert [s.slots.hi for s in opened(description)] == [8_192, 16_384, 32_768, 65_536]
    for n, child in enumerate(opened(description)):
        await testbed.publish(child, frames=2, producer=10 + n)
    assert await read(testbed, hosts[0], [0]) == values(1, 5)


async def test_neighbours_are_merged_into_one_that_begins_where_the_longer_one_ended(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    lower, upper = opened(await testbed.topic(hosts[0], segments=2))
    await testbed.publish(lower, frames=3)
    await testbed.publish(upper, frames=7, producer=2)
    description = await hosts[0].api.call(MergeSegments(NAME, 1, 0))
    assert shape(description) == [(2, 0, 65_536)]
    segments = by_id(description)
    assert (segments[2].predecessors, segments[2].start_offset) == ((0, 1), 7)
    assert [(segments[n].end_offset, segments[n].successors) for n in (0, 1)] == [(3, (2,)), (7, (2,))]
    await testbed.publish(segments[2], frames=1, producer=3)
    (decision,) = (await hosts[1].api.call(GetClusterStatus())).decisions
    assert (decision.topic, decision.kind, decision.segments) == (NAME, "merge", (0, 1))
    assert decision.reason == "manual request"
    assert 0 < decision.at_us <= testbed.wall_us()
    assert await read(testbed, hosts[1], [0, 1]) == values(1, 3) + values(2, 7)


async def test_a_segment_moves_to_the_brokers_that_are_named_and_the_rest_is_filled_up(testbed: Testbed) -> None:
    hosts = await testbed.cluster(4)
    (segment,) = opened(await testbed.topic(hosts[0], replicas=3))
    (spare,) = (h for h in hosts if h.broker.id not in segment.replicas)
    await testbed.publish(segment, frames=2)
    (moved,) = opened(await hosts[0].api.call(MoveSegment(NAME, 0, (spare.address, segment.replicas[2]))))
    assert moved.replicas[:2] == (spare.broker.id, segment.replicas[2])
    assert len(set(moved.replicas)) == 3
    assert (moved.start_offset, moved.slots) == (2, segment.slots)
    await testbed.publish(moved, frames=1)
    assert opened(await hosts[1].api.call(MoveSegment(NAME, 1, moved.replicas))) == [moved], "it is there already"
    (sealed,) = opened(await hosts[2].api.call(SealSegment(NAME, 1)))
    assert (sealed.id, sealed.predecessors, sealed.start_offset) == (2, (1,), 3)


async def test_without_a_slot_the_load_is_halved_and_without_load_the_range(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    (segment,) = opened(await testbed.topic(host))
    assert [s.slots.hi for s in opened(await host.api.call(SplitSegment(NAME, 0, None)))] == [HALF, 65_536]
    segment = opened(await host.api.call(DescribeTopic(NAME)))[0]
    publisher = await host.publisher(segment=1)
    for _ in range(40):  # all records are in the lowest sixteenth, which a cut separates
        await publisher.store(slots=(0, 9), count=10)
        await asyncio.sleep(0.1)
    width = segment.slots.width // 16
    lowest, *_ = opened(await host.api.call(SplitSegment(NAME, 1, None)))
    assert lowest.slots == KeyRange(0, width)


REFUSED: tuple[tuple[Call[object], type[SeaweedMQError], str], ...] = (
    (SplitSegment(NAME, 9, None), NotFound, "topic test/topic has no segment 9: see `seaweedmq segment list"),
    (SplitSegment(NAME, 0, None), StaleMetadata, "test/topic#0 is sealed: use segments 1, 2 instead"),
    (SplitSegment(NAME, 1, None), InvalidArgument, "has only slot 0"),
    (SplitSegment(NAME, 3, 65_536), InvalidArgument, "at slot 65536: choose from 2 to 8191"),
    (MergeSegments(NAME, 1, 4), InvalidArgument, "are not adjacent"),
    (MergeSegments(NAME, 1, 0), StaleMetadata, "test/topic#0 is sealed"),
    (MergeSegments(NAME, 1, 9), NotFound, "no segment 9"),
    (SealSegment(NAME, 0), StaleMetadata, "test/topic#0 is sealed"),
    (MoveSegment(NAME, 4, ("absent",)), NotFound, "there is no broker absent: the cluster has broker-0:7777, broker-1"),
    (MoveSegment(NAME, 4, ("broker-0:7777",) * 2), InvalidArgument, "named twice"),
)


async def test_what_can_not_be_done_is_said_in_one_sentence_and_changes_nothing(testbed: Testbed) -> None:
    hosts = await testbed.several(3, replicas=2, scaling=Scaling.FIXED)
    await hosts[0].api.call(SplitSegment(NAME, 0, 1))
    await hosts[0].api.call(SplitSegment(NAME, 2, 8_192))
    before = await hosts[0].api.call(DescribeTopic(NAME))
    assert shape(before) == [(1, 0, 1), (3, 1, 8_192), (4, 8_192, 65_536)]
    for host in hosts:
        for request, kind, sentence in REFUSED:
            with pytest.raises(kind, match=sentence):
                await host.api.call(request)
    assert await hosts[0].api.call(DescribeTopic(NAME)) == before


async def test_a_broker_that_is_leaving_or_suspected_gets_nothing(testbed: Testbed) -> None:
    hosts = await testbed.several(3)
    primary = await testbed.primary(hosts[0])
    leaving, other = (h for h in hosts if h is not primary)
    await hosts[0].api.call(DrainBroker(leaving.address))
    await testbed.until(lambda: leaving.broker.id in testbed.leader().inspect.leader.placement.draining)
    with pytest.raises(InvalidArgument, match=f"broker {leaving.address} is being drained"):
        await hosts[0].api.call(MoveSegment(NAME, 0, (leaving.address,)))
    testbed.leader().inspect.leader.placement.suspect(other.broker.id)
    with pytest.raises(Unavailable, match="is suspected, as another broker could not reach it"):
        await hosts[0].api.call(MoveSegment(NAME, 0, (other.broker.id,)))
    assert [s.id for s in opened(await hosts[0].api.call(DescribeTopic(NAME)))] == [0]


async def test_changes_of_one_segment_do_not_mix_and_those_of_several_go_together(testbed: Testbed) -> None:
    hosts = await testbed.several(2, segments=4)
    wishes = [SplitSegment(NAME, 1), MergeSegments(NAME, 0, 1), MergeSegments(NAME, 1, 2), SealSegment(NAME, 1)]
    results = await asyncio.gather(
        *(hosts[n % 2].api.call(wish) for n, wish in enumerate(wishes)), return_exceptions=True
    )
    done = [r for r in results if isinstance(r, TopicDescription)]
    assert len(done) == 1
    assert all(isinstance(r, TopicDescription | Unavailable | StaleMetadata) for r in results), results
    after = opened(await testbed.leader().api.call(DescribeTopic(NAME)))
    assert len(after) in (3, 4, 5)
    await asyncio.gather(*(hosts[n % 2].api.call(SplitSegment(NAME, s.id, None)) for n, s in enumerate(after)))
    halves = opened(await testbed.leader().api.call(DescribeTopic(NAME)))
    assert sorted(s.predecessors for s in halves) == sorted((s.id,) for s in after for _ in range(2))


async def test_a_half_merge_is_undone_by_plain_successors(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = await testbed.cluster(2)
    lower, _ = opened(await testbed.topic(hosts[0], segments=2))
    await testbed.publish(lower, frames=3)
    seal = OpenSegment.seal

    async def stuck(owned: OpenSegment) -> object:
        if owned.segment.id == 1:
            raise Unavailable("the seal is stuck")
        return await seal(owned)

    monkeypatch.setattr(OpenSegment, "seal", stuck)
    with pytest.raises(Unavailable, match="test/topic#1 cannot be sealed yet, as a live replica does not answer"):
        await hosts[0].api.call(MergeSegments(NAME, 0, 1))
    await testbed.until(lambda: 2 in testbed.leader().inspect.view.segments[NAME], patience_s=1)
    description = await testbed.leader().api.call(DescribeTopic(NAME))
    assert shape(description) == [(2, 0, HALF), (1, HALF, 65_536)]
    assert by_id(description)[2].start_offset == 3
    monkeypatch.undo()
    assert shape(await hosts[1].api.call(MergeSegments(NAME, 2, 1))) == [(3, 0, 65_536)]


@pytest.mark.parametrize("delay_s", [0.0005, 0.001, 0.002, 0.004, 0.008])
async def test_a_leader_that_dies_amid_a_merge_leaves_a_whole_topic(testbed: Testbed, delay_s: float) -> None:
    hosts = await testbed.cluster(4)
    parts = opened(await testbed.topic(hosts[0], segments=2, replicas=2))
    for n, segment in enumerate(parts):
        await testbed.publish(segment, frames=3, producer=n + 1)
    leader = testbed.leader()
    merging = asyncio.create_task(leader.api.call(MergeSegments(NAME, 0, 1)))
    await asyncio.sleep(delay_s)
    leader.kill()
    await asyncio.wait({merging})
    if not merging.cancelled():
        merging.exception()
    other = next(h for h in hosts if h.lives)

    def settled() -> bool:
        found = [s for s in other.inspect.view.segments[NAME].values() if s.is_open]
        return covers_ring((s.slots for s in found), WHOLE_RING) and all(
            leader.broker.id not in s.replicas and s.key in h.inspect.segments
            for s in found
            for h in hosts
            if h.broker.id == s.primary
        )

    await testbed.until(settled)
    await asyncio.sleep(5)  # until the sealed primaries have requested successors
    await testbed.until(settled)
    for n, segment in enumerate(opened(await other.api.call(DescribeTopic(NAME)))):
        await testbed.publish(segment, frames=1, producer=30 + n)
        description = await other.api.call(SealSegment(NAME, segment.id))
    got = await read(testbed, other, [s.id for s in description.segments if not s.is_open])
    assert [v for v in got if v.startswith(b"1:")] == values(1, 3)
    assert [v for v in got if not v.startswith((b"1:", b"3"))] == values(2, 3)


async def test_a_caller_that_goes_away_does_not_leave_a_segment_sealed(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    leader = testbed.leader()
    held = testbed.faults.hold(StorageOp.SYNC)
    await (await (await testbed.primary(hosts[0])).publisher()).send()
    splitting = asyncio.create_task(leader.broker.api.call(SplitSegment(NAME, 0, None)))
    await asyncio.sleep(0.05)
    splitting.cancel()
    await asyncio.sleep(0.05)
    held.set()
    testbed.faults.held.clear()
    await testbed.until(lambda: 2 in leader.inspect.view.segments[NAME], patience_s=1)


async def test_a_topic_recreated_meanwhile_is_left_alone(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = await testbed.several(2)
    await testbed.publish(frames=3)
    seal, anew = Sealer.seal, asyncio.Event()

    async def slowly(sealer: Sealer, *args: Any) -> Any:
        result = await seal(sealer, *args)
        await anew.wait()
        return result

    monkeypatch.setattr(Sealer, "seal", slowly)
    splitting = asyncio.create_task(hosts[0].api.call(SplitSegment(NAME, 0, None)))
    await asyncio.sleep(0.1)
    await hosts[0].api.call(DeleteTopic(NAME))
    await testbed.topic(hosts[0])
    anew.set()
    with pytest.raises(NotFound, match="was deleted and recreated"):
        await splitting
    (segment,) = opened(await hosts[0].api.call(DescribeTopic(NAME)))
    assert (segment.id, segment.start_offset) == (0, 0)
    await testbed.publish(segment, frames=1)


LIMIT = 3
FULL = replace(CONFIG, open_segments_max=LIMIT)


def open_segments(host: Host) -> list[Segment]:
    return [s for s in host.inspect.view.segments[NAME].values() if s.is_open]


async def full_cluster(testbed: Testbed, brokers: int = 3) -> list[Host]:
    hosts = await testbed.several(brokers, FULL, segments=LIMIT * brokers)
    await testbed.until(lambda: [len(h.inspect.segments) for h in hosts] == [LIMIT] * brokers)
    return hosts


async def test_what_a_dead_broker_had_is_served_though_the_others_are_at_their_limit(testbed: Testbed) -> None:
    hosts = await full_cluster(testbed)
    hosts[0].kill()
    left = hosts[1:]
    await testbed.until(lambda: sum(len(h.inspect.segments) for h in left) == 9)
    assert sorted(len(h.inspect.segments) for h in left) == [4, 5]
    for segment in open_segments(left[0]):
        await testbed.publish(segment)


async def test_in_a_full_cluster_a_segment_can_be_sealed_but_neither_split_nor_moved(testbed: Testbed) -> None:
    hosts = await full_cluster(testbed)
    segment = min(open_segments(hosts[0]), key=lambda s: s.id)
    full = next(h for h in hosts if h.broker.id != segment.primary)
    with pytest.raises(InvalidArgument, match=r"no room for the halves of .*: 3 brokers may have 3 open segments each"):
        await hosts[0].api.call(SplitSegment(NAME, segment.id, None))
    with pytest.raises(InvalidArgument, match="is at its limit of open segments"):
        await hosts[0].api.call(MoveSegment(NAME, segment.id, (full.address,)))
    description = await hosts[0].api.call(SealSegment(NAME, segment.id))
    successor = next(s for s in description.segments if s.predecessors == (segment.id,))
    assert successor.primary == segment.primary, "no other broker has room"
    lower, upper = sorted((s for s in description.segments if s.is_open), key=lambda s: s.slots.lo)[:2]
    await hosts[0].api.call(MergeSegments(NAME, lower.id, upper.id))
    await testbed.until(lambda: len(open_segments(hosts[0])) == 8)
    last = max(open_segments(hosts[0]), key=lambda s: s.id)
    await hosts[0].api.call(SplitSegment(NAME, last.id, None))
    await testbed.until(lambda: [len(h.inspect.segments) for h in hosts] == [LIMIT] * 3)


async def test_the_balancer_holds_a_split_for_want_of_room_and_says_so(testbed: Testbed) -> None:
    config = replace(FULL, open_segments_max=1, segment_target_bytes_per_s=1_000, balance_interval_s=1.0)
    host, publisher = await testbed.publishing(config)
    for n in range(400):
        await publisher.store(size=300, slots=(n % 64 * 1024, n % 64 * 1024))
    leader = host.inspect.leader
    await testbed.until(lambda: leader.balancing.holds)
    (hold,) = leader.balancing.holds.values()
    assert hold.kind == "hold"
    assert "no room for two: 1 brokers may have 1 open segments each" in hold.reason
    assert len(open_segments(host)) == 1
