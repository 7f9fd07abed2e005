"""Reads of a segment without a stream: memory and files joined, waits for many segments, and evicted reads."""

import asyncio
from dataclasses import replace

import pytest

from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.broker.serve.tail import Losses, Tail, TailState
from seaweedmq.codec.frame import split_frames
from seaweedmq.errors import NotFound, OutOfRange
from seaweedmq.model.config import KIB
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import DeleteTopic
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.logs.log_index import LogIndex
from tests.broker.testbed import CONFIG, NAME, Host, Publishing, Testbed

FILES = replace(CONFIG, log_roll_bytes=2 * KIB, maintenance_interval_s=1e4)
FRAME_BYTES_MAX = 400
"""Limit of the size of a frame of ``fill``."""


async def fill(publisher: Publishing, frames: int) -> None:
    for _ in range(frames):
        await publisher.store(count=2, size=50)


async def tail_of(host: Host, testbed: Testbed, position: int = 0, segment: int = 0) -> Tail:
    lookup = Lookup(host.inspect.view, host.inspect.segments, SealedProducers(testbed.store))
    found = await lookup.segment(NAME, segment)
    return Tail(
        lookup,
        testbed.store,
        LogIndex(),
        host.inspect.memory.reading,
        found,
        position,
        CONFIG.read_chunk_bytes,
        Losses(),
    )


async def read(tail: Tail, bytes_max: int = 1 << 20) -> list[int]:
    """Return the base offsets of the frames up to the current end."""
    bases: list[int] = []
    while await tail.poll() is TailState.READABLE:
        if not await tail.ready():
            continue
        expected = tail.next_bytes(bytes_max)
        taken = tail.take(bytes_max)
        assert taken is not None
        frames = list(split_frames(b"".join(taken.parts)))
        assert expected == sum(len(part) for part in taken.parts)
        assert expected <= bytes_max or len(frames) == 1
        assert frames[-1].header.end_offset == taken.end_offset == tail.position
        bases += [f.header.base_offset for f in frames]
    return bases


@pytest.mark.parametrize("bytes_max", [1, 2 * FRAME_BYTES_MAX, 1 << 20])
@pytest.mark.parametrize("place", ["memory", "log files", "all three"])
async def test_every_frame_is_read_once_wherever_it_lies(testbed: Testbed, place: str, bytes_max: int) -> None:
    config = FILES if place in ("memory", "log files") else replace(FILES, maintenance_interval_s=1.0, log_grace_s=1.0)
    host, publisher = await testbed.publishing(config)
    await fill(publisher, 20)
    if config is not FILES:
        await testbed.until(lambda: max((f.end_offset or 0 for f in testbed.files(FileKind.TABLE)), default=0) >= 20)
        await testbed.until(lambda: min(f.base_offset for f in testbed.files(FileKind.LOG)) > 9)
    if place != "memory":
        host.evict()
    await fill(publisher, 5)
    tail = await tail_of(host, testbed, 9)
    bases = await read(tail, bytes_max)
    assert bases[0] <= 9 < tail.position == 50
    assert bases == sorted(set(bases))
    assert bases[-5:] == [40, 42, 44, 46, 48]
    assert await tail.poll() is TailState.CAUGHT_UP
    assert not tail.reads_files
    assert host.inspect.memory.reading.used == 0


async def test_nothing_that_is_not_committed_is_read(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing()
    await fill(publisher, 1)
    tail = await tail_of(host, testbed, 2)
    await publisher.send(3)
    log = host.inspect.segments[NAME, 0].log
    while log.committed == 2:
        assert await tail.poll() is TailState.CAUGHT_UP
        await tail.change()
    assert await read(tail) == [2]


async def test_one_wait_serves_many_segments_until_there_is_enough(testbed: Testbed) -> None:
    """A long poll ends with enough bytes from any of the segments, or at its timeout."""
    host = await testbed.single(segments=3)
    publishers = [await host.publisher(n + 1, segment=n) for n in range(3)]
    tails = [await tail_of(host, testbed, segment=n) for n in range(3)]

    async def poll(bytes_min: int, wait_s_max: float) -> int:
        time_up = Signal()
        timer = testbed.loop.call_later(wait_s_max, time_up.fire)
        until = testbed.loop.time() + wait_s_max
        while True:
            found = 0
            for tail in tails:
                if await tail.poll() is TailState.READABLE and await tail.ready():
                    found += tail.next_bytes(1 << 20)
            if found >= bytes_min or testbed.loop.time() >= until:
                timer.cancel()
                return found
            await tails[0].change(*(tail.changed for tail in tails[1:]), time_up)

    began = testbed.loop.time()
    assert await poll(1, 5.0) == 0
    assert testbed.loop.time() == pytest.approx(began + 5)
    polling = asyncio.create_task(poll(3 * FRAME_BYTES_MAX // 2, 60.0))
    for n, publisher in ((2, publishers[2]), (0, publishers[0])):
        await asyncio.sleep(1)
        assert not polling.done()
        await publisher.store(count=2, size=50, slots=(n * 21_846, n * 21_846))
    assert await polling > 3 * FRAME_BYTES_MAX // 2
    assert [tail.position for tail in tails] == [0, 0, 0], "what is looked at is not taken"


async def test_a_turn_that_is_offered_goes_to_who_needs_it_and_what_it_held_is_read_again(testbed: Testbed) -> None:
    host = await testbed.single(FILES)
    await fill(await host.publisher(), 20)
    host.evict()
    reading = host.inspect.memory.reading
    idle = await tail_of(host, testbed)
    assert await idle.poll() is TailState.READABLE
    assert await idle.ready()
    assert idle.take(1) is not None
    assert idle.reads_files
    reading.limit = reading.used
    busy = await tail_of(host, testbed)
    waiting = asyncio.create_task(read(busy))
    await asyncio.sleep(1)
    assert not waiting.done(), "it is not offered yet"
    idle.offer()
    assert await waiting == list(range(0, 40, 2))
    idle.keep()
    assert idle.take(1) is None
    assert await read(idle) == list(range(2, 40, 2))
    assert reading.used == 0


async def test_what_leaves_memory_between_ready_and_take_is_read_from_files(testbed: Testbed) -> None:
    host = await testbed.single(FILES)
    await fill(await host.publisher(), 3)
    tail = await tail_of(host, testbed)
    assert await tail.poll() is TailState.READABLE
    assert await tail.ready()
    assert not tail.reads_files
    host.evict()
    assert tail.take(1) is None
    assert await read(tail) == [0, 2, 4]


@pytest.mark.parametrize("reading", [False, True])
async def test_a_deleted_topic_gives_nothing_more_though_its_name_is_taken(testbed: Testbed, reading: bool) -> None:
    host = await testbed.single(FILES)
    await fill(await host.publisher(), 3)
    host.evict()
    tail = await tail_of(host, testbed)
    if reading:
        await tail.poll()
        assert await tail.ready()
    await host.api.call(DeleteTopic(NAME))
    await testbed.topic(host)
    await fill(await host.publisher(2), 3)
    with pytest.raises(NotFound, match="topic test/topic was deleted"):
        tail.take(1) if reading else await tail.poll()
    await tail.close()
    assert host.inspect.memory.reading.used == 0


async def test_what_retention_removed_is_named(testbed: Testbed) -> None:
    host = await testbed.single(FILES, retention_s=3600.0)
    await fill(await host.publisher(), 20)
    host.evict()
    first, *_ = testbed.files(FileKind.LOG)
    await testbed.store.delete([first])
    tail = await tail_of(host, testbed)
    assert await tail.poll() is TailState.READABLE
    with pytest.raises(OutOfRange, match="offset 0 was removed by retention, the lowest retained is"):
        await tail.ready()
    await tail.close()
    assert host.inspect.memory.reading.used == 0
