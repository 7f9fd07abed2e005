"""One broker over an object store: acknowledgements, rolls, failures of the store, and the end by a fence."""

import asyncio
import random
from typing import Any

import pytest

from seaweedmq.core.segment.bundle_ledger import LedgerLimits
from seaweedmq.core.segment.bundling import BundleLimits
from seaweedmq.core.segment.segment_lifecycle import SegmentStage
from seaweedmq.errors import AlreadyExists, StaleMetadata, StorageFailed
from seaweedmq.model.config import KIB, MIB
from seaweedmq.storage.bundles.entries import SequenceEntries, begin_sequence
from tests.broker.bundles.bundling_broker import (
    BundlingBroker,
    Points,
    log_objects,
    make_objects,
    read_back,
    recovered,
)
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects, ObjectAnswer, ObjectOp, ObjectRequest
from tests.sim.machines.objects import SimObjectStore

SMALL = LedgerLimits(roll_bytes=2 * KIB, roll_age_s=2.0, pinned_bytes_max=8 * KIB, checkpoint_every=4, full_age_s=60.0)


async def started(broker: BundlingBroker, segments: int = 1) -> BundlingBroker:
    await broker.begin()
    for number in range(segments):
        broker.open(number)
    return broker


async def test_a_lone_record_is_acknowledged_by_one_put() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects))
    before = asyncio.get_running_loop().time()
    await broker.publish()
    await broker.acknowledged()
    assert asyncio.get_running_loop().time() - before < 0.01
    assert objects.bucket.applied[ObjectOp.CREATE] == 2, "entry 0 and one bundle"
    assert await read_back(objects.bucket) == broker.published
    await broker.stop()


async def test_an_idle_broker_sends_nothing() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects), 3)
    await broker.publish()
    await broker.acknowledged()
    await asyncio.sleep(700)
    before = dict(objects.bucket.applied)
    await asyncio.sleep(2_000)
    assert dict(objects.bucket.applied) == before
    await broker.stop()


async def test_many_segments_share_bundles() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects), 50)
    for _ in range(10):
        for number in range(50):
            await broker.publish(number)
        await asyncio.sleep(0.1)
    for number in range(50):
        await broker.acknowledged(number)
    assert objects.bucket.applied[ObjectOp.CREATE] <= 14
    assert await read_back(objects.bucket) == broker.published
    await broker.stop()


async def test_large_frames_go_into_log_objects_once_and_are_readable_when_flushed() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects))
    segment = broker.segments[0]
    for _ in range(24):
        await broker.publish(size=MIB)
    await broker.acknowledged()
    await broker.until(lambda: segment.log.readable >= 16)
    stored = sum(len(each.content) for each in objects.bucket.stored.values())
    assert stored < 25.1 * MIB, "each byte is stored once"
    assert segment.evict(1 << 30) >= 16 * MIB
    assert await read_back(objects.bucket) == broker.published
    await broker.stop()


async def test_rolls_make_frames_readable_and_let_bundles_be_deleted() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects, ledger=SMALL))
    segment = broker.segments[0]
    for _ in range(200):
        await broker.publish()
        await broker.acknowledged()
        assert segment.log.cache_start <= segment.log.readable <= segment.log.flushed
    await asyncio.sleep(5.0)
    assert segment.log.readable == segment.log.end == 200
    bases = [base for _, base, _ in log_objects(objects.bucket)]
    assert bases == sorted(set(bases))
    assert [file.base_offset for file in segment.files.sealed] == bases
    entries = await SequenceEntries(objects, "b-1").numbers()
    assert len(entries) < 60
    assert 0 not in entries
    assert await read_back(objects.bucket) == broker.published
    await broker.stop()


async def test_frames_that_no_log_object_has_stay_in_memory() -> None:
    broker = await started(BundlingBroker(make_objects()))
    segment = broker.segments[0]
    await broker.publish()
    await broker.acknowledged()
    assert segment.log.flushed == 1
    assert segment.evict(1 << 30) == 0
    segment.files.retire()
    await broker.until(lambda: segment.log.readable == 1)
    assert segment.evict(1 << 30) > 0
    await broker.stop()


async def test_small_frames_that_fill_the_memory_are_rolled() -> None:
    """Their overhead in memory is a multiple of their bytes, of which no limit of the ledger knows."""
    objects = make_objects()
    broker = await started(BundlingBroker(objects, memory_bytes=256 * KIB), 3)
    async with asyncio.timeout(300):
        for number in range(2_000):
            await broker.publish(number % 3)
    assert len(log_objects(objects.bucket)) < 60
    assert broker.context.budget.peak <= 256 * KIB
    for number in range(3):
        await broker.acknowledged(number)
    assert await read_back(objects.bucket) == broker.published
    await broker.stop()


async def test_a_sealed_segment_is_in_log_objects_only() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects), 2)
    for _ in range(5):
        await broker.publish(0)
        await broker.publish(1)
    sealed = await broker.segments[0].seal()
    assert sealed.end_offset == 5
    assert (0, 0, 5) in log_objects(objects.bucket)
    await broker.segments[0].close(StaleMetadata("sealed"))
    assert (await broker.segments[1].seal()).end_offset == 5
    assert await read_back(objects.bucket) == broker.published
    await broker.stop()


async def test_a_segment_closed_before_its_roll_is_rolled_from_memory() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects))
    for _ in range(3):
        await broker.publish()
    await broker.acknowledged()
    await broker.segments[0].close(StaleMetadata("sealed by others"))
    await asyncio.sleep(1.5)
    assert log_objects(objects.bucket) == [(0, 0, 3)]
    await broker.stop()


async def test_recovery_has_the_producers() -> None:
    objects = make_objects()
    broker = await started(BundlingBroker(objects, ledger=SMALL))
    for number in range(60):
        await broker.publish(producer=1 + number % 7)
        await broker.acknowledged()
    await broker.stop()
    found = await recovered(objects)
    assert found is not None
    (segment,) = found.values()
    states = {state.producer_id: state.next_sequence for state in segment.producers}
    assert states == {1 + n: 60 // 7 + (n < 60 % 7) for n in range(7)}


class Outage:
    """A carrier whose store is down while ``is_down``."""

    def __init__(self) -> None:
        self.bucket = MemoryBucket(lambda: 0)
        self.is_down = False
        self.sent = 0

    async def __call__(self, request: ObjectRequest) -> ObjectAnswer:
        await asyncio.sleep(0.01)
        self.sent += 1
        if self.is_down:
            await asyncio.sleep(0.5)
            raise StorageFailed("cannot create b: the store limits requests (503 SlowDown); raise the limit, or retry")
        return self.bucket.apply(request)


async def test_a_store_that_is_down_for_a_minute_holds_publishers_up_and_writing_resumes() -> None:
    outage = Outage()
    broker = await started(BundlingBroker(MemoryObjects(outage.bucket, "b-1", outage)), 2)
    await broker.publish()
    await broker.publish(1)
    await broker.acknowledged()
    outage.is_down = True
    end = await broker.publish()
    segment = broker.segments[0]
    await broker.until(lambda: segment.failure)
    with pytest.raises(StorageFailed, match="raise the limit"):
        await segment.admit(100)
    sent = outage.sent
    await asyncio.sleep(60)
    assert segment.log.committed == end - 1
    assert 10 <= outage.sent - sent <= 200, "it is retried, after pauses"
    outage.is_down = False
    before = asyncio.get_running_loop().time()
    await broker.acknowledged()
    assert asyncio.get_running_loop().time() - before < 3.0
    assert segment.failure is None
    await broker.publish()
    await broker.acknowledged()
    assert await read_back(outage.bucket) == broker.published
    await broker.stop()


async def test_a_slow_put_is_sent_twice() -> None:
    bucket = MemoryBucket(lambda: 0)
    slow: list[ObjectRequest] = []

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        if request.op is ObjectOp.CREATE and request.key.endswith("1") and not slow:
            slow.append(request)
            await asyncio.sleep(2.0)
        await asyncio.sleep(0.02)
        return bucket.apply(request)

    broker = await started(BundlingBroker(MemoryObjects(bucket, "b-1", carry)))
    before = asyncio.get_running_loop().time()
    await broker.publish()
    await broker.acknowledged()
    assert 0.3 < asyncio.get_running_loop().time() - before < 0.4
    await asyncio.sleep(5)
    assert not broker.has_rejoined, "the late answer is to the broker's own bundle"
    assert await read_back(bucket) == broker.published
    await broker.stop()


async def test_an_id_with_a_sequence_is_not_taken() -> None:
    objects = make_objects()
    await begin_sequence(SequenceEntries(objects, "b-1"), rng=random.Random(1), wall_us=0)
    with pytest.raises(AlreadyExists, match="take another one"):
        await begin_sequence(SequenceEntries(objects, "b-1"), rng=random.Random(2), wall_us=0)


async def test_a_fenced_writer_acknowledges_nothing_and_rejoins() -> None:
    bucket = MemoryBucket(lambda: 0)
    gate = asyncio.Event()
    gate.set()

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        await asyncio.sleep(0.01)
        await gate.wait()
        return bucket.apply(request)

    broker = await started(BundlingBroker(MemoryObjects(bucket, "b-1", carry)), 2)
    await broker.publish()
    await broker.acknowledged()
    gate.clear()
    await broker.publish()
    await broker.publish(1)
    await asyncio.sleep(1)
    assert {n: len(each) for n, each in (await read_back(bucket)).items()} == {0: 1}
    gate.set()
    await broker.until(lambda: broker.has_rejoined)
    await asyncio.sleep(1)
    assert (broker.segments[0].log.committed, broker.segments[1].log.committed) == (1, 0)
    for segment in broker.segments.values():
        assert segment.stage is SegmentStage.FENCED
        with pytest.raises(StaleMetadata):
            await segment.admit(1)
        with pytest.raises(StaleMetadata):
            await segment.seal()
    await broker.stop()


async def a_busy_story(broker: BundlingBroker) -> None:
    """Publish small and large frames into three segments, with rolls and checkpoints."""
    rng = random.Random(5)
    for step in range(60):
        for number in range(3):
            if rng.random() < 0.6:
                await broker.publish(number, size=rng.choice((50, 500)), producer=rng.randint(1, 3))
        await asyncio.sleep(0.04 + 0.1 * (step % 3))


BUSY = BundleLimits(bundle_bytes=4 * KIB, direct_bytes=2 * KIB, log_bytes=4 * KIB)


async def play(stop_at: int) -> int:
    bucket = MemoryBucket(lambda: 0)
    stopped = asyncio.Event()
    points = Points(bucket, stop_at, stopped.set)
    broker = await started(BundlingBroker(MemoryObjects(bucket, "b-1", points), cuts=BUSY, ledger=SMALL), 3)
    publishing = asyncio.create_task(a_busy_story(broker))
    ending = asyncio.create_task(stopped.wait())
    await asyncio.wait({publishing, ending}, return_when=asyncio.FIRST_COMPLETED)
    if not stopped.is_set():
        await asyncio.sleep(3)
    acknowledged = {number: segment.log.committed for number, segment in broker.segments.items()}
    publishing.cancel()
    ending.cancel()
    await broker.stop()
    found = await read_back(bucket)
    for number, payloads in broker.published.items():
        held = found.get(number, [])
        assert len(held) >= acknowledged[number]
        assert held == payloads[: len(held)]
    assert await read_back(bucket, by="another leader") == found
    return points.passed


@pytest.mark.parametrize("part", range(8))
async def test_a_broker_killed_at_any_point_of_its_requests_loses_nothing_acknowledged(part: int) -> None:
    total = await play(1 << 30)
    assert total > 100
    for stop_at in range(3 + part, total, 8):
        await play(stop_at)


@pytest.mark.parametrize("seed", range(20))
async def test_requests_that_are_late_doubled_or_lost_cost_no_acknowledged_frame(seed: int) -> None:
    rng = random.Random(seed)
    store = SimObjectStore(MemoryBucket(lambda: 0), rng)
    broker = await started(BundlingBroker(store.client("b-1"), cuts=BUSY, ledger=SMALL), 3)
    faults = store.faults
    faults.latency_s_max = 0.2
    faults.lost_share, faults.unanswered_share, faults.late_share, faults.twice_share = 0.1, 0.1, 0.1, 0.2
    with_failures = asyncio.create_task(a_busy_story(broker))
    results: Any = await asyncio.gather(asyncio.wait_for(with_failures, 60), return_exceptions=True)
    assert all(result is None or isinstance(result, StorageFailed) for result in results), results
    await asyncio.sleep(rng.random())
    if seed % 2:
        faults.calm()
        for number in range(3):
            await broker.acknowledged(number, patience_s=200)
    acknowledged = {number: segment.log.committed for number, segment in broker.segments.items()}
    await broker.stop()
    faults.calm()
    found = await read_back(store.bucket)
    async with asyncio.timeout(300):
        await store.settled.wait()
    assert await read_back(store.bucket, by="another leader") == found
    for number, payloads in broker.published.items():
        held = found.get(number, [])
        assert len(held) >= acknowledged[number]
        assert held == payloads[: len(held)]
