"""Moves and replacements of segments: only those that must move, and none left half done when a leader dies."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.broker.leader.repairer import RECOVERIES_AT_ONCE, Repairer
from seaweedmq.broker.leader.sealer import Sealer
from seaweedmq.broker.leader.transition_runner import Transition
from seaweedmq.core.lineage.repair import Repair
from seaweedmq.errors import Deposed, NotFound
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.calls import DrainBroker, Fence, ReportSuspicions, Seal, SealSegment
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from tests.broker.testbed import CONFIG, NAME, Host, Testbed
from tests.support.segments import make_segment


def open_segments(host: Host) -> dict[int, Segment]:
    return {s.id: s for s in host.inspect.view.segments.get(NAME, {}).values() if s.is_open}


async def replicated(testbed: Testbed, brokers: int, segments: int) -> list[Host]:
    """Create a topic with two replicas whose followers all hold records."""
    hosts = await testbed.several(brokers, segments=segments, replicas=2)
    await testbed.until(lambda: all(len(open_segments(h)) == segments for h in hosts))
    for number in range(segments):
        await testbed.publish(number, producer=number + 1)
    return hosts


async def test_draining_a_broker_moves_its_segments_once_and_no_others(testbed: Testbed) -> None:
    hosts = await replicated(testbed, brokers=4, segments=8)
    leaving = next(h for h in hosts if h is not testbed.leader())
    before = open_segments(testbed.leader())
    left = leaving.broker.id
    await testbed.leader().api.call(DrainBroker(leaving.address))
    await asyncio.sleep(10)
    after = open_segments(testbed.leader())
    stayed = {number for number, segment in before.items() if left not in segment.replicas}
    assert stayed
    assert stayed <= after.keys()
    assert all(left not in segment.replicas for segment in after.values())
    assert max(after) < 8 + len(before.keys() - stayed), "a segment moved twice"


async def test_a_segment_that_a_dead_leader_sealed_or_fenced_gets_its_successor_from_the_next(testbed: Testbed) -> None:
    hosts = await replicated(testbed, brokers=3, segments=3)
    segments = open_segments(hosts[0])
    primary = await testbed.primary(hosts[0])
    await primary.api.call(Seal(testbed.ref(segments[0])))
    await testbed.until(lambda: 3 in open_segments(hosts[0]), patience_s=10)
    assert {1, 2} <= open_segments(hosts[0]).keys(), "no broker was at fault"
    follower = next(h for h in hosts if h.broker.id == segments[1].replicas[1])
    await follower.api.call(Fence(testbed.ref(segments[1], segments[1].epoch + 1)))
    lo = segments[1].slots.lo
    await (await (await testbed.primary(hosts[0], segment=1)).publisher(producer=9, segment=1)).send(slots=(lo, lo))
    await testbed.until(lambda: 4 in open_segments(hosts[0]), patience_s=20)


async def test_brokers_that_keep_suspecting_each_other_do_not_keep_their_segments_closed(testbed: Testbed) -> None:
    hosts = await replicated(testbed, brokers=2, segments=2)
    leader = testbed.leader()
    before = open_segments(leader)
    for _ in range(10):
        for segment in open_segments(leader).values():
            for suspect in segment.replicas if segment.id in before else ():
                await leader.broker.api.call(
                    ReportSuspicions(refs=(testbed.ref(segment),), suspect=suspect, reason="a test reports it")
                )
        await asyncio.sleep(1)
    assert not before.keys() & open_segments(leader).keys()
    assert not any(h.has_failed for h in hosts)
    await testbed.until(lambda: all(len(s.replicas) == 2 for s in open_segments(leader).values()))
    for number in open_segments(leader):
        await testbed.publish(number, producer=number + 1)


async def test_a_segment_that_hangs_holds_none_up(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = await replicated(testbed, brokers=3, segments=2)
    leader, seal, hanging = testbed.leader(), Sealer.seal, asyncio.Event()
    stuck, other = (open_segments(leader)[number] for number in (0, 1))

    async def never(sealer: Sealer, topic: Topic, segment: Segment, *args: Any) -> Any:
        if segment.id == stuck.id:
            await hanging.wait()
        return await seal(sealer, topic, segment, *args)

    monkeypatch.setattr(Sealer, "seal", never)
    for segment in (stuck, other):
        await leader.broker.api.call(
            ReportSuspicions(refs=(testbed.ref(segment),), suspect="", reason="a test reports it")
        )
        await asyncio.sleep(1)
    assert set(open_segments(hosts[0])) == {stuck.id, 2}
    hanging.set()
    await testbed.until(lambda: set(open_segments(hosts[0])) == {2, 3}, patience_s=5)


async def test_a_fresh_broker_is_not_buried_under_all_that_is_new(testbed: Testbed) -> None:
    hosts = await testbed.several(4, replace(CONFIG, load_report_interval_s=1_000.0), segments=8)
    placement = testbed.leader().inspect.leader.placement
    fresh, *busy = sorted(h.broker.id for h in hosts)
    for broker, cpu_share in [(fresh, 0.0), *((b, 0.9) for b in busy)]:
        load = BrokerLoad(broker=broker, cpu_share=cpu_share, memory_bytes=0, buffered_bytes=0)
        placement.report(load)
    placed: list[str] = []
    for number in range(20):  # one call each: no report has the earlier placements
        description = await testbed.topic(hosts[0], TopicName("test", f"new-{number}"))
        placed += [s.primary for s in description.segments]
    assert 2 <= placed.count(fresh) <= 12


async def test_neither_a_stranger_nor_a_follower_that_forgot_a_segment_says_that_it_is_empty(testbed: Testbed) -> None:
    hosts = await replicated(testbed, brokers=3, segments=1)
    (segment,) = open_segments(hosts[0]).values()
    follower = next(h for h in hosts if h.broker.id == segment.replicas[1])
    stranger = next(h for h in hosts if h.broker.id not in segment.replicas)
    with pytest.raises(NotFound, match="not a follower of this segment"):
        await stranger.api.call(Fence(testbed.ref(segment, segment.epoch + 1)))
    await testbed.publish()
    await hosts[0].api.call(SealSegment(segment.topic, segment.id))
    await testbed.until(lambda: not follower.inspect.view.segments[NAME][0].is_open)
    await testbed.until(lambda: all(key.segment != 0 for key in follower.inspect.followers.replicas))
    with pytest.raises(Deposed, match="already sealed: reload the metadata"):
        await follower.api.call(Fence(testbed.ref(segment, segment.epoch + 1)))
    assert all(key.segment != 0 for key in follower.inspect.followers.replicas)


class Slow:
    """A succession that takes some time."""

    def __init__(self) -> None:
        self.most = self.now = 0

    async def carry_out_here(self, _: Transition) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1


@pytest.mark.parametrize(("live", "most"), [({"a", "b"}, 40), ({"b"}, 40), (set(), RECOVERIES_AT_ONCE)])
async def test_only_segments_of_which_no_replica_lives_are_replaced_a_few_at_a_time(live: set[str], most: int) -> None:
    """Only a segment without a living replica is recovered from files; elsewhere a follower has all records."""
    view = SimpleNamespace(brokers=dict.fromkeys(live))
    metadata = SimpleNamespace(view=view, is_open=lambda _: True)
    repairs = Repairer(metadata=cast(Any, metadata), placement=cast(Any, SimpleNamespace()))
    transitions = Slow()
    segments = [replace(make_segment(), id=number, replicas=("a", "b")) for number in range(40)]
    lost = [Repair(segment=segment, reason="lost", healthy_replicas=()) for segment in segments]
    await asyncio.gather(*(repairs.carry_out(cast(Any, transitions), repair) for repair in lost))
    assert transitions.most == most
