"""The memory budget, rates, and what happens when more comes in than may be held."""

import asyncio
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.broker.budget import MemoryBudget
from seaweedmq.codec.frame import split_frames, stamp
from seaweedmq.core.segment_log import LogEntry
from seaweedmq.errors import ResourceExhausted, StorageFailed
from seaweedmq.model.config import KIB
from seaweedmq.model.topic import Durability
from seaweedmq.storage.memory import StorageOp
from tests.broker.bed import CONFIG, Bed, frame, story, values


class Cache:
    """Holds so many bytes that may be evicted."""

    def __init__(self, size: int) -> None:
        self.size = size

    def evict(self, bytes_wanted: int) -> int:
        freed = min(self.size, bytes_wanted)
        self.size -= freed
        return freed


async def test_a_taker_waits_until_somebody_gives() -> None:
    budget = MemoryBudget(10)
    await budget.take(8)
    waiting = asyncio.create_task(budget.take(5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    budget.give(2)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    budget.give(1)
    await waiting
    assert budget.used == 10


async def test_the_longest_untouched_cache_gives_way_before_anybody_waits() -> None:
    budget = MemoryBudget(10)
    first, second = Cache(4), Cache(4)
    for cache in (first, second):
        await budget.take(4)
        budget.touch(cache)
    budget.touch(first)
    await budget.take(5)
    assert (budget.used, first.size, second.size) == (10, 4, 1)


async def test_a_forgotten_cache_is_left_alone() -> None:
    budget = MemoryBudget(10)
    cache = Cache(4)
    await budget.take(4)
    budget.touch(cache)
    budget.forget(cache)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await budget.take(7)
    assert (budget.used, cache.size) == (4, 4)


async def test_more_than_the_whole_budget_is_refused_with_the_remedy() -> None:
    with pytest.raises(ResourceExhausted, match=r"11 bytes is above .* 10 bytes: raise memory_bytes_max"):
        await MemoryBudget(10).take(11)


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_the_limit_holds_whatever_comes_and_everybody_is_served(sizes: list[int]) -> None:
    async def play() -> None:
        budget = MemoryBudget(50)

        async def user(size: int) -> None:
            await budget.take(size)
            assert budget.used <= budget.limit
            await asyncio.sleep(0)
            budget.give(size)

        async with asyncio.timeout(10):
            await asyncio.gather(*map(user, sizes))
        assert budget.used == 0

    asyncio.run(play())


@pytest.mark.parametrize("durability", Durability)
@story
async def test_memory_stays_within_the_budget_with_many_segments_at_any_rate(bed: Bed, durability: Durability) -> None:
    (host,) = await bed.cluster(1, replace(CONFIG, segment_buffer_bytes_max=32 * KIB))
    budget = host.broker._budget
    budget.limit = 140_000
    await bed.topic(host, segments=20, durability=durability)
    publishers = [await host.publisher(n, segment=n) for n in range(20)]
    held = bed.faults.hold(StorageOp.APPEND)
    most = 0
    for round_ in range(40):
        for n, publisher in enumerate(publishers):
            slot = n * 65536 // 20 + 10
            await publisher.send(4, size=300, slots=(slot, slot))
        await asyncio.sleep(0.02)
        most = max(most, budget.used)
        assert budget.used <= budget.limit
        assert budget.used == sum(s.log.cached_bytes for s in host.broker._owned.values())
        if round_ == 20:
            held.set()
    assert most > 120_000
    for publisher in publishers:
        assert len(await publisher.acks(40)) == 40
    assert budget.used <= budget.limit


@story
async def test_a_publisher_that_waits_for_memory_hears_that_the_storage_fails(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    host.broker._budget.limit = 6_000
    await bed.topic(host)
    full, waiting = await host.publisher(1), await host.publisher(2)
    bed.faults.failing[StorageOp.APPEND] = "no space left on device"
    bed.faults.hold(StorageOp.APPEND)
    await full.send(4, size=1_000)
    await bed.until(lambda: host.broker._budget.used > 4_000)
    await waiting.send(4, size=1_000)
    await asyncio.sleep(0.1)
    bed.faults.held.pop(StorageOp.APPEND).set()
    assert isinstance(await waiting.stream.failure(), StorageFailed)
    assert isinstance(await full.stream.failure(), StorageFailed)
    bed.faults.failing.clear()
    await bed.until(lambda: not next(iter(host.broker._owned.values())).failure)
    again = await host.publisher(2)
    await again.store(frames=2)
    reader = await host.subscriber()
    got = await reader.until(6)
    assert [v for v in got if v.startswith(b"2:")] == values(2, 2)
    assert host.broker._budget.used == sum(s.log.cached_bytes for s in host.broker._owned.values())


@story
async def test_memory_of_a_frame_that_is_refused_after_waiting_is_given_back(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    await bed.topic(host)
    publisher = await host.publisher()
    await publisher.store()
    (segment,) = host.broker._owned.values()
    budget = host.broker._budget
    before, limit = budget.used, budget.limit
    budget.limit = before
    segment.log.evict = lambda wanted: 0  # type: ignore[method-assign]
    waiting = asyncio.create_task(segment.admit(100))
    await asyncio.sleep(0.1)
    segment._write_failure = StorageFailed("no space left on device")
    budget.limit = limit
    budget.give(0)
    with pytest.raises(StorageFailed):
        await waiting
    assert budget.used == before
    segment._write_failure = None


def test_frames_of_one_record_take_no_more_memory_than_they_are_counted_with() -> None:
    data, count = frame(), 20_000
    entries: list[LogEntry] = []
    tracemalloc.start()
    try:
        for base in range(2**40, 2**40 + count):
            (got,) = split_frames(bytes(bytearray(data)), verify=False)
            entries.append(LogEntry(base, base + 1, base, stamp(got.header_bytes, base), got.payload))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= 1.2 * sum(e.memory_bytes for e in entries)


@story
async def test_one_slow_segment_does_not_hold_up_the_others(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    await bed.topic(host, segments=2)
    slow, quick = await host.publisher(1, segment=0), await host.publisher(2, segment=1)
    bed.faults.paths = "/00000000/"
    held = bed.faults.hold(StorageOp.APPEND)
    for _ in range(5):
        await slow.send()
    for _ in range(20):
        await quick.store(slots=(40_000, 40_000))
    assert await slow.quiet(0)
    held.set()
    await slow.acks(5)
