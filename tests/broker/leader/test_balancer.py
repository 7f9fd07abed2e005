"""Automatic resizing of topics: the leader carries out the balancer's decisions, and none while loads are unknown."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from seaweedmq.broker.leader.placement import Placement
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.calls import GetClusterStatus, Rebalance, SplitSegment
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, WHOLE_RING, covers_ring
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Scaling
from tests.broker.testbed import CONFIG, NAME, Host, Publishing, Testbed

QUICK = replace(
    CONFIG,
    load_report_interval_s=0.5,
    load_short_s=1.0,
    load_long_s=3.0,
    balance_interval_s=0.5,
    split_after_s=1.0,
    merge_after_s=5.0,
    segment_target_records_per_s=100.0,
)


def open_segments(testbed: Testbed) -> list[Segment]:
    host = next(h for h in testbed.hosts if h.lives and h.inspect.leads)
    found = sorted((s for s in host.inspect.view.segments[NAME].values() if s.is_open), key=lambda s: s.slots)
    assert covers_ring((s.slots for s in found), WHOLE_RING)
    return found


class Traffic:
    """Records for a whole topic: each segment gets its share of the ring, or all records have one key."""

    def __init__(self, testbed: Testbed, records_per_s: int, hot_slot: int | None = None) -> None:
        self.testbed = testbed
        self.records_per_s = records_per_s
        self.hot_slot = hot_slot
        self._streams: dict[int, Publishing] = {}
        self._owed: Counter[int] = Counter()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for host in self.testbed.hosts:
                for (_, number), owned in list(host.inspect.segments.items()) if host.lives else ():
                    if not owned.refusal:
                        with suppress(SeaweedMQError, EOFError, AssertionError):
                            await self._send(host, number, owned.segment)

    async def _send(self, host: Host, number: int, segment: Segment) -> None:
        stream = self._streams.get(number)
        if stream is None or stream.stream.ended:
            stream = self._streams[number] = await host.publisher(number + 1, segment=number)
        if self.hot_slot is not None:
            if self.hot_slot in segment.slots:
                bucket = (self.hot_slot - segment.slots.lo) * HISTOGRAM_BUCKETS // segment.slots.width
                count = self.records_per_s // 10
                histogram = tuple(count if n == bucket else 0 for n in range(HISTOGRAM_BUCKETS))
                await stream.send(count, slots=(self.hot_slot, self.hot_slot), histogram=histogram)
            return
        self._owed[number] += self.records_per_s * segment.slots.width // 10
        each = self._owed[number] // 65_536 // HISTOGRAM_BUCKETS
        if each:
            self._owed[number] -= each * HISTOGRAM_BUCKETS * 65_536
            slots = segment.slots.lo, segment.slots.hi - 1
            await stream.send(each * HISTOGRAM_BUCKETS, slots=slots, histogram=(each,) * HISTOGRAM_BUCKETS)


@asynccontextmanager
async def flood(testbed: Testbed, records_per_s: int, hot_slot: int | None = None) -> AsyncIterator[None]:
    sending = asyncio.create_task(Traffic(testbed, records_per_s, hot_slot).run())
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.wait({sending})


async def kinds(host: Host) -> Counter[str]:
    return Counter(d.kind for d in (await host.api.call(GetClusterStatus())).decisions)


async def test_a_topic_spreads_over_the_brokers_with_its_traffic_and_shrinks_again_afterwards(testbed: Testbed) -> None:
    hosts = await testbed.several(3, QUICK)
    async with flood(testbed, 1_200):
        await testbed.until(lambda: len(open_segments(testbed)) >= 6, patience_s=15)
        await asyncio.sleep(20)
        assert {s.primary for s in open_segments(testbed)} == {h.broker.id for h in hosts}
        settled = open_segments(testbed)
        await asyncio.sleep(60)
        assert open_segments(testbed) == settled, "steady traffic changes nothing"
    await testbed.until(lambda: len(open_segments(testbed)) == 1, patience_s=60)
    done = await kinds(hosts[0])
    assert done["split"] >= 5
    assert done["merge"] >= 5


async def test_a_flood_goes_on_being_answered_after_the_leader_has_died(testbed: Testbed) -> None:
    hosts = await testbed.several(4, QUICK, replicas=2)
    async with flood(testbed, 1_200):
        await testbed.until(lambda: len(open_segments(testbed)) >= 2, patience_s=15)
        testbed.leader().kill()
        await testbed.until(lambda: any(h.lives and h.inspect.leads for h in hosts))
        await testbed.until(lambda: len(open_segments(testbed)) >= 6, patience_s=20)
    await testbed.until(lambda: len(open_segments(testbed)) == 1, patience_s=90)


async def test_one_hot_key_is_told_in_the_status_and_not_cut_forever(testbed: Testbed) -> None:
    hosts = await testbed.several(3, QUICK)
    async with flood(testbed, 1_000, hot_slot=30_000):
        await asyncio.sleep(60)
        held = [d for d in (await hosts[1].api.call(GetClusterStatus())).decisions if d.kind == "hold"]
        assert len(held) == 1
        assert "one hot key, which cannot be split" in held[0].reason
        assert next(s for s in open_segments(testbed) if s.id == held[0].segments[0]).slots.width <= 16
        count = len(open_segments(testbed))
        await asyncio.sleep(30)
        assert len(open_segments(testbed)) <= count
    await testbed.until(lambda: len(open_segments(testbed)) == 1, patience_s=120)
    assert "hold" not in await kinds(hosts[1]), "it is no longer so"


async def test_nothing_is_merged_while_a_load_is_unknown(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = await testbed.several(3, QUICK)
    mute = next(h for h in hosts if h is not testbed.leader())
    report = Placement.report

    def deaf(placement: Placement, load: BrokerLoad) -> None:
        if load.broker != mute.broker.id:
            report(placement, load)

    monkeypatch.setattr(Placement, "report", deaf)
    for segment in range(3):
        await hosts[0].api.call(SplitSegment(NAME, segment, None))
    await asyncio.sleep(30)
    assert len(open_segments(testbed)) == 4
    with pytest.raises(Unavailable, match=f"broker {mute.address} has no recent load report"):
        await hosts[0].api.call(Rebalance())
    monkeypatch.undo()
    await testbed.until(lambda: len(open_segments(testbed)) == 1, patience_s=120)


async def test_a_new_broker_gets_its_share_when_somebody_asks_for_it(testbed: Testbed) -> None:
    slow = replace(QUICK, merge_after_s=3_600.0)
    hosts = await testbed.several(2, slow, segments=8, scaling=Scaling.FIXED)
    async with flood(testbed, 600):
        await asyncio.sleep(10)
        fresh = await testbed.start(slow)
        await asyncio.sleep(10)
        assert fresh.broker.id not in {s.primary for s in open_segments(testbed)}, "none is old enough"
        decisions = await hosts[0].api.call(Rebalance())
        assert decisions
        assert {d.kind for d in decisions} == {"move"}
        counts = Counter(s.primary for s in open_segments(testbed))
        assert counts[fresh.broker.id] >= 2
        assert await hosts[1].api.call(Rebalance()) == (), "it is even now"
