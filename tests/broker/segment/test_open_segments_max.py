"""The limit of open segments: it rejects what adds segments; replacements are served in any case."""

from dataclasses import replace

import pytest

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.calls import MergeSegments, MoveSegment, SealSegment, SplitSegment
from seaweedmq.model.segment import Segment
from tests.broker.testbed import CONFIG, NAME, Host, Testbed

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


async def test_what_is_replaced_goes_where_there_is_room(testbed: Testbed) -> None:
    hosts = await full_cluster(testbed)
    roomy = await testbed.start(FULL)
    hosts[0].kill()
    await testbed.until(lambda: len(roomy.inspect.segments) == LIMIT)
    assert [len(h.inspect.segments) for h in hosts[1:]] == [LIMIT, LIMIT]


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
