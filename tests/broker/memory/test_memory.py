"""The memory budget, rates, and admission when more arrives than the budget holds."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.broker.memory.broker_memory import STREAM_BYTES, StreamMemory
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.sending import Sending
from seaweedmq.codec.frame import HEADER_BYTES, split_frames, split_payload, stamp
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import DeadlineExceeded, ResourceExhausted, StorageFailed
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.messages.calls import MoveSegment
from seaweedmq.model.messages.frames import (
    LARGE_MESSAGE_BYTES,
    PIECE_BYTES,
    SENT_PIECE_BYTES,
    SMALL_MESSAGE_BYTES,
    FrameHead,
)
from seaweedmq.model.messages.publish import PublishFrames
from seaweedmq.model.messages.subscribe import EARLIEST, SubscribeOpen
from seaweedmq.model.topic import Durability
from tests.broker.testbed import CONFIG, NAME, Testbed, frame, story, values
from tests.doubles.memory_store import StorageOp


class Cache:
    """A cache with this many evictable bytes."""

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
async def test_memory_stays_within_the_budget_with_many_segments_at_any_rate(
    testbed: Testbed, durability: Durability
) -> None:
    (host,) = await testbed.cluster(1, replace(CONFIG, segment_buffer_bytes_max=32 * KIB))
    budget = host.inspect.memory.logs
    budget.limit = 140_000
    await testbed.topic(host, segments=20, durability=durability)
    publishers = [await host.publisher(n + 1, segment=n) for n in range(20)]
    held = testbed.faults.hold(StorageOp.APPEND)
    most = 0
    for round_ in range(40):
        for n, publisher in enumerate(publishers):
            slot = n * 65536 // 20 + 10
            await publisher.send(4, size=300, slots=(slot, slot))
        await asyncio.sleep(0.02)
        most = max(most, budget.used)
        assert budget.used <= budget.limit
        assert budget.used == sum(s.log.cached_bytes for s in host.inspect.segments.values())
        if round_ == 20:
            held.set()
    assert most > 120_000
    for publisher in publishers:
        assert len(await publisher.acks(40)) == 40
    assert budget.used <= budget.limit


@story
async def test_a_publisher_that_waits_for_memory_hears_that_the_storage_fails(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    host.inspect.memory.logs.limit = 6_000
    await testbed.topic(host)
    full, waiting = await host.publisher(1), await host.publisher(2)
    testbed.faults.failing[StorageOp.APPEND] = "no space left on device"
    testbed.faults.hold(StorageOp.APPEND)
    await full.send(4, size=1_000)
    await testbed.until(lambda: host.inspect.memory.logs.used > 4_000)
    await waiting.send(4, size=1_000)
    await asyncio.sleep(0.1)
    testbed.faults.held.pop(StorageOp.APPEND).set()
    assert isinstance(await waiting.stream.failure(), StorageFailed)
    assert isinstance(await full.stream.failure(), StorageFailed)
    testbed.faults.failing.clear()
    await testbed.until(lambda: not next(iter(host.inspect.segments.values())).failure)
    again = await host.publisher(2)
    await again.store(frames=2)
    reader = await host.subscriber()
    got = await reader.until(6)
    assert [v for v in got if v.startswith(b"2:")] == values(2, 2)
    assert host.inspect.memory.logs.used == sum(s.log.cached_bytes for s in host.inspect.segments.values())


@story
async def test_memory_of_a_frame_that_is_refused_after_waiting_is_given_back(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    await testbed.topic(host)
    publisher = await host.publisher()
    await publisher.store()
    (segment,) = host.inspect.segments.values()
    budget = host.inspect.memory.logs
    write = testbed.faults.hold(StorageOp.APPEND)
    await publisher.send()
    await testbed.until(lambda: segment.log.unwritten_bytes)
    before, limit = budget.used, budget.limit
    budget.limit = before
    segment.log.evict = lambda wanted: 0  # type: ignore[method-assign]
    waiting = asyncio.create_task(segment.admit(100))
    await testbed.until(lambda: budget.waiting)
    testbed.faults.failing[StorageOp.APPEND] = "no space left on device"
    write.set()
    await testbed.until(lambda: segment.failure)
    budget.limit = limit
    budget.give(0)
    with pytest.raises(StorageFailed):
        await waiting
    assert budget.used == before


def test_frames_of_one_record_take_no_more_memory_than_they_are_counted_with() -> None:
    data, count = frame(), 20_000
    entries: list[LogEntry] = []
    tracemalloc.start()
    try:
        for base in range(2**40, 2**40 + count):
            (got,) = split_frames(bytes(bytearray(data)), verify=False)
            entries.append(LogEntry(base, base + 1, got.header.encoding, stamp(got.header_bytes, base), got.payload))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= 1.2 * sum(e.memory_bytes for e in entries)


@story
async def test_one_slow_segment_does_not_hold_up_the_others(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    await testbed.topic(host, segments=2)
    slow, quick = await host.publisher(1, segment=0), await host.publisher(2, segment=1)
    testbed.faults.paths = "/00000000/"
    held = testbed.faults.hold(StorageOp.APPEND)
    for _ in range(5):
        await slow.send()
    for _ in range(20):
        await quick.store(slots=(40_000, 40_000))
    assert await slow.quiet(0)
    held.set()
    await slow.acks(5)


async def test_a_large_taker_is_not_overtaken_by_small_ones() -> None:
    budget = MemoryBudget(10)
    await budget.take(6)
    large = asyncio.create_task(budget.take(9))
    await asyncio.sleep(0)
    small = asyncio.create_task(budget.take(1))
    await asyncio.sleep(0)
    assert not small.done()
    assert not budget.take_now(1)
    budget.give(6)
    await asyncio.gather(large, small)
    assert (budget.used, budget.peak) == (10, 10)


async def test_who_stops_waiting_lets_the_next_one_through() -> None:
    budget = MemoryBudget(10)
    await budget.take(6)
    large, small = asyncio.create_task(budget.take(9)), asyncio.create_task(budget.take(1))
    await asyncio.sleep(0)
    assert budget.waiting == 2
    large.cancel()
    await small
    assert (budget.used, budget.waiting) == (7, 0)


LARGE = replace(CONFIG, frame_bytes_max=4 * MIB, segment_buffer_bytes_max=16 * MIB)


def in_pieces(data: bytes, piece_bytes: int = PIECE_BYTES) -> list[FrameHead | PublishFrames]:
    pieces = split_payload(data[HEADER_BYTES:], piece_bytes)
    return [FrameHead(data[:HEADER_BYTES]), *(PublishFrames(piece) for piece in pieces)]


@pytest.mark.parametrize("size", [3_000, 300_000, 3_000_000])
@pytest.mark.parametrize("piece_bytes", [PIECE_BYTES, 64 * KIB])
@story
async def test_a_large_frame_comes_in_pieces_and_is_stored_as_it_was(
    testbed: Testbed, size: int, piece_bytes: int
) -> None:
    (host,) = await testbed.cluster(1, LARGE)
    await testbed.topic(host)
    publisher = await host.publisher()
    for request in in_pieces(publisher.frame(size=size), piece_bytes):
        await publisher.stream.send(request)
    await publisher.acks(1)
    await publisher.store()
    reader = await host.subscriber(credit=16 * MIB)
    got = await reader.until(2)
    assert len(got[0]) >= size - 1 > len(got[1])
    await publisher.stream.close()
    await testbed.until(lambda: host.inspect.memory.intake.used == 0)


@pytest.mark.parametrize("is_in_memory", [True, False])
@story
async def test_a_large_frame_is_sent_in_pieces_to_a_subscriber_that_takes_them(
    testbed: Testbed, is_in_memory: bool
) -> None:
    (host,) = await testbed.cluster(1, LARGE)
    await testbed.topic(host)
    publisher = await host.publisher()
    await publisher.store()
    for request in in_pieces(publisher.frame(size=3_000_000)):
        await publisher.stream.send(request)
    await publisher.acks(1)
    await publisher.store()
    log = host.inspect.segments[NAME, 0].log
    await testbed.until(lambda: log.flushed == log.end)
    if not is_in_memory:
        host.inspect.memory.logs.give(log.evict(1 << 30))
    reader = await host.subscriber(credit=16 * MIB, takes_pieces=True)
    old = await host.subscriber(credit=16 * MIB)
    assert await reader.until(log.end) == await old.until(log.end)
    assert max(reader.messages_bytes) == SENT_PIECE_BYTES
    assert max(old.messages_bytes) > 2_900_000
    await testbed.until(lambda: host.inspect.memory.sending.used == 0)


@story
async def test_the_payload_of_a_large_frame_is_not_taken_in_before_there_is_memory(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1, LARGE)
    await testbed.topic(host)
    publisher = await host.publisher()
    await host.inspect.memory.logs.take(taken := host.inspect.memory.logs.limit - 1_000_000)
    head, *pieces = in_pieces(publisher.frame(size=3_000_000))
    await publisher.stream.send(head)
    for piece in pieces:
        await publisher.stream.send(piece)
    assert await publisher.quiet(5)
    standing = host.inspect.memory.intake.used
    assert standing == 2 * LARGE_MESSAGE_BYTES, "what is set aside for the stream, and no piece"
    host.inspect.memory.logs.give(taken)
    await publisher.acks(1)


@story
async def test_many_publishers_get_small_messages_and_one_that_ignores_it_is_refused(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1, LARGE)
    await testbed.topic(host)
    host.inspect.memory.intake.limit = 13 * MIB
    first, second, third = [await host.publisher(n) for n in (1, 2, 3)]
    limits = [p.ready.message_bytes_max for p in (first, second, third)]
    assert limits == [LARGE_MESSAGE_BYTES, LARGE_MESSAGE_BYTES, SMALL_MESSAGE_BYTES]
    await first.store(size=100_000)
    await third.send(size=100_000)
    assert "send larger frames as head and pieces" in str(await third.stream.failure())
    await first.stream.close()
    await testbed.until(lambda: host.inspect.memory.intake.used == 2 * LARGE_MESSAGE_BYTES)
    again = await host.publisher(4)
    assert again.ready.message_bytes_max == LARGE_MESSAGE_BYTES


@story
async def test_a_publisher_that_stops_in_the_middle_of_a_frame_gives_the_memory_back(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1, LARGE)
    await testbed.topic(host)
    publisher = await host.publisher()
    for request in in_pieces(publisher.frame(size=3_000_000))[:-1]:
        await publisher.stream.send(request)
    await testbed.until(lambda: host.inspect.memory.logs.used > 3_000_000)
    assert isinstance(await publisher.stream.failure(), DeadlineExceeded)
    assert host.inspect.memory.logs.used == host.inspect.memory.intake.used == 0


@pytest.mark.parametrize(("cut", "text"), [(1, "pieces of"), (0, "not followed by its payload")])
@story
async def test_what_is_not_the_payload_of_an_announced_frame_is_refused(testbed: Testbed, cut: int, text: str) -> None:
    (host,) = await testbed.cluster(1, LARGE)
    await testbed.topic(host)
    publisher = await host.publisher()
    data = publisher.frame(size=300_000)
    head = in_pieces(data)[0]
    await publisher.stream.send(head)
    await publisher.stream.send(PublishFrames(data[HEADER_BYTES : HEADER_BYTES + 1_000]) if cut else head)
    assert text in str(await publisher.stream.failure())
    assert host.inspect.memory.logs.used == 0


@story
async def test_subscribers_without_credit_hold_nothing_that_others_need(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    await testbed.topic(host)
    publisher = await host.publisher()
    await publisher.store(frames=40, size=3_000)
    log = host.inspect.segments[NAME, 0].log
    await testbed.until(lambda: log.flushed == 40)
    host.inspect.memory.logs.give(log.evict(1 << 30))
    reading = host.inspect.memory.reading
    reading.limit = 60_000  # one turn
    paused = [await host.subscriber(credit=1) for _ in range(20)]
    for reader in paused:
        await reader.until(1)
    busy = await host.subscriber()
    assert len(await busy.until(40)) == 40
    assert reading.peak <= reading.limit
    for reader in paused:
        await reader.credit(1 << 20)
        assert len(await reader.until(40)) == 40
    await testbed.until(lambda: reading.used == 0)


@pytest.mark.parametrize("place", ["memory", "log files"])
@story
async def test_subscribers_that_never_read_hold_a_bounded_part_and_keep_nobody_from_reading(
    testbed: Testbed, place: str
) -> None:
    (host,) = await testbed.cluster(1, replace(LARGE, read_chunk_bytes=256 * KIB))
    await testbed.topic(host)
    publisher = await host.publisher()
    await publisher.store(frames=30, size=200_000)
    memory = host.inspect.memory
    if place == "log files":
        log = host.inspect.segments[NAME, 0].log
        await testbed.until(lambda: log.flushed == 30)
        memory.logs.give(log.evict(1 << 30))
    memory.sending.limit = 2 * MIB
    memory.reading.limit = 4 * MIB
    deaf = []
    for _ in range(12):
        stream = host.api.subscribe(asked(SubscribeOpen(topic=NAME, segment=0, start=EARLIEST, credit_bytes=200 * MIB)))
        await anext(stream)
        deaf.append(stream)
    await asyncio.sleep(5)
    assert sum(b.used for b in memory.budgets) <= sum(b.limit for b in memory.budgets)
    busy = await host.subscriber(credit=100 * MIB)
    assert len(await busy.until(30)) == 30
    for stream in deaf:
        await stream.aclose()
    log = host.inspect.segments[NAME, 0].log
    await testbed.until(lambda: memory.sending.used == memory.reading.used == memory.logs.used - log.cached_bytes == 0)
    assert memory.sending.peak <= memory.sending.limit


@story
async def test_what_has_stalled_is_charged_to_the_logs_as_soon_as_they_have_room(testbed: Testbed) -> None:
    logs, budget = MemoryBudget(8 * MIB), MemoryBudget(1 * MIB)
    sending = Sending(budget, logs)
    await logs.take(logs.limit)
    size = sending.take_now(512 * KIB)
    assert size == budget.used == 1 * MIB
    with sending.writing(size):
        await asyncio.sleep(5)
        assert budget.used == size, "the storage is slow, the logs have no room"
        logs.give(logs.limit)
        await asyncio.sleep(2)
        assert (budget.used, logs.used) == (0, size)
    await asyncio.sleep(5)
    assert budget.used == logs.used == 0


@story
async def test_a_stream_does_not_wait_for_ever_for_memory_that_a_storage_that_fails_never_frees(
    testbed: Testbed,
) -> None:
    logs = MemoryBudget(2 * STREAM_BYTES)
    streams = StreamMemory(logs, MemoryBudget(0), 0)
    await logs.take(2 * STREAM_BYTES)
    for _ in range(3):
        began = testbed.loop.time()
        with pytest.raises(
            ResourceExhausted, match=r"unflushed frames.* check whether its storage is full.* and retry"
        ) as e:
            async with asyncio.timeout(60), streams.lent():
                pass
        assert e.value.retryable
        assert testbed.loop.time() - began < 11
    assert (logs.limit, logs.used, logs.waiting) == (2 * STREAM_BYTES, 2 * STREAM_BYTES, 0)
    logs.give(2 * STREAM_BYTES)
    async with streams.lent():
        assert logs.limit == STREAM_BYTES
    assert (logs.limit, logs.used) == (2 * STREAM_BYTES, 0)


async def asked(opening: SubscribeOpen) -> AsyncIterator[SubscribeOpen]:
    yield opening
    await asyncio.Event().wait()


@story
async def test_brokers_that_follow_each_other_with_tiny_budgets_wait_for_nothing_in_a_circle(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2, replace(LARGE, replica_timeout_s=20.0))
    for host in hosts:
        for budget in host.inspect.memory.budgets:
            budget.limit = 1 * MIB
    await testbed.topic(hosts[0], segments=4, replicas=2)
    ids = [host.broker.id for host in hosts]
    for n in range(4):
        description = await hosts[0].api.call(MoveSegment(NAME, n, (ids[n % 2], ids[1 - n % 2])))
    opened = sorted((s for s in description.segments if s.is_open), key=lambda s: s.slots.lo)
    primaries = [await testbed.primary(hosts[0], segment=s.id) for s in opened]
    assert primaries == hosts * 2
    served = list(zip(opened, primaries, strict=True))
    publishers = [await primary.publisher(n + 1, segment=s.id) for n, (s, primary) in enumerate(served)]
    readers = [await primary.subscriber(credit=100 * MIB, segment=s.id) for s, primary in served]
    for n, publisher in enumerate(publishers):
        slot = n * 65536 // 4 + 10
        for _ in range(12):
            for request in in_pieces(publisher.frame(size=300_000, slots=(slot, slot))):
                await publisher.stream.send(request)
    for publisher, reader in zip(publishers, readers, strict=True):
        await publisher.acks(12)
        await reader.until(12)
    for host in hosts:
        assert all(budget.peak <= budget.limit for budget in host.inspect.memory.budgets)
