"""The subscribe stream: its start, its credit, and how it joins memory, log files and tables."""

import asyncio
from dataclasses import replace

import pytest

from seaweedmq.errors import NotFound, OutOfRange, ProtocolViolation, StaleMetadata
from seaweedmq.model.config import KIB
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import DeleteTopic
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, Start, StartKind, SubscribeCredit, SubscribeOpen
from seaweedmq.model.topic import Durability, TopicName
from tests.broker.testbed import CONFIG, NAME, WALL_START_US, Publishing, Streaming, Testbed, values

SMALL_FILES = replace(CONFIG, log_roll_bytes=2 * KIB, maintenance_interval_s=1.0, log_grace_s=1.0)
FRAME_BYTES = 1_400
"""Approximate size of the frames of ``fill``."""


async def fill(publisher: Publishing, frames: int) -> None:
    """Send this many frames of 10 records each, a second apart."""
    for _ in range(frames):
        at = WALL_START_US + (publisher.next // 10) * 1_000_000
        await publisher.store(count=10, size=100, timestamp=at)


async def tabled(testbed: Testbed, records: int) -> None:
    await testbed.until(lambda: max((f.end_offset or 0 for f in testbed.files(FileKind.TABLE)), default=0) >= records)


async def only_tabled(testbed: Testbed, records: int) -> None:
    """Wait until this many records are in tables, and half of them are in no log."""
    await tabled(testbed, records)
    await testbed.until(lambda: min(f.base_offset for f in testbed.files(FileKind.LOG)) >= records // 2)


def sequences(got: list[bytes]) -> list[int]:
    return [int(v.split()[0].split(b":")[1]) for v in got]


STARTS = (
    (EARLIEST, 0), (Start(StartKind.OFFSET, 0), 0), (Start(StartKind.OFFSET, 57), 57),
    (Start(StartKind.OFFSET, 60), 60), (Start(StartKind.TIME, WALL_START_US - 5), 0),
    (Start(StartKind.TIME, WALL_START_US + 3_000_000), 30), (Start(StartKind.TIME, WALL_START_US + 3_000_001), 40),
    (Start(StartKind.TIME, WALL_START_US + 10**12), 120), (Start(StartKind.OFFSET, 120), 120), (LATEST, 120),
)  # fmt: skip


@pytest.mark.parametrize("place", ["memory", "log files", "all three"])
async def test_subscribers_begin_where_they_asked_to(testbed: Testbed, place: str) -> None:
    config = {"memory": CONFIG, "log files": replace(SMALL_FILES, maintenance_interval_s=1e4)}.get(place, SMALL_FILES)
    host, publisher = await testbed.publishing(config)
    await fill(publisher, 8)
    if place == "all three":
        await only_tabled(testbed, 60)
    if place != "memory":
        host.evict()
    await fill(publisher, 4)
    readers = [(start, first, await host.subscriber(start)) for start, first in STARTS]
    for start, first, reader in readers:
        assert (reader.ready.start_offset, reader.ready.high_watermark) == (first, 120), start
    await fill(publisher, 1)
    for start, first, reader in readers:
        assert sequences(await reader.until(130 - first)) == list(range(first, 130)), start


OPEN = SubscribeOpen(topic=NAME, segment=0, start=EARLIEST, credit_bytes=1)
REFUSED = (
    (SubscribeCredit(5), ProtocolViolation, "does not begin with SubscribeOpen"),
    (replace(OPEN, credit_bytes=0), ProtocolViolation, "credit of 0 bytes"),
    (replace(OPEN, credit_bytes=1 << 40), ProtocolViolation, "grant 1 to"),
    (replace(OPEN, start=Start(StartKind.OFFSET, -1)), OutOfRange, "holds offsets 0 to 3, not -1: start within them"),
    (replace(OPEN, start=Start(StartKind.OFFSET, 4)), OutOfRange, "holds offsets 0 to 3, not 4: start within them"),
    (replace(OPEN, topic=TopicName("no", "such")), NotFound, "there is no topic no/such"),
    (replace(OPEN, segment=3), NotFound, "has no segment 3"),
)


async def test_openings_and_credits_that_make_no_sense_are_refused(testbed: Testbed) -> None:
    primary, other = await testbed.pair(2)
    await (await primary.publisher()).store(frames=3)
    for opening, kind, sentence in REFUSED:
        stream = Streaming(testbed, primary.api.subscribe)
        await stream.send(opening)
        error = await stream.failure()
        assert isinstance(error, kind), (opening, error)
        assert sentence in str(error)
    with pytest.raises(StaleMetadata, match=f"at {primary.address}, not by this one"):
        await other.subscriber()
    for credit in (0, -5):
        reader = await primary.subscriber()
        await reader.credit(credit)
        assert isinstance(await reader.stream.failure(), ProtocolViolation), credit


@pytest.mark.parametrize("from_files", [False, True])
async def test_no_frame_is_sent_without_credit_and_at_most_one_beyond_it(testbed: Testbed, from_files: bool) -> None:
    host = await testbed.single(replace(SMALL_FILES, read_chunk_bytes=16 * KIB, maintenance_interval_s=1e4))
    await fill(await host.publisher(), 30)
    if from_files:
        host.evict()
    given = 3_000
    reader = await host.subscriber(credit=given)
    for more in (1, 1, 5_000, 100, 2_000, 10_000):
        await asyncio.sleep(1)
        before = reader.received_bytes
        reader.take()
        assert reader.received_bytes < given + FRAME_BYTES
        assert reader.received_bytes >= given or reader.received_bytes == before
        given += more
        await reader.credit(more)
    await reader.credit(1 << 20)
    assert len(await reader.until(300)) == 300


async def test_a_credit_below_one_frame_does_not_stall(testbed: Testbed) -> None:
    host = await testbed.single()
    await fill(await host.publisher(), 5)
    reader = await host.subscriber(credit=1)
    for frames in range(1, 6):
        await reader.until(10 * frames)
        await asyncio.sleep(1)
        reader.take()
        assert len(reader.values) == 10 * frames
        await reader.credit(FRAME_BYTES)
    last = await host.subscriber(credit=1)
    await last.stream.half_close()
    assert "no credit left" in str(await last.stream.failure())


async def test_a_slow_subscriber_costs_no_memory_and_misses_nothing(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1, SMALL_FILES)
    host.inspect.memory.logs.limit = 20_000
    await testbed.topic(host)
    publisher = await host.publisher()
    reader = await host.subscriber(credit=2_000)
    await fill(publisher, 60)
    assert host.inspect.memory.logs.used <= 20_000
    await reader.credit(1 << 20)
    assert sequences(await reader.until(600)) == list(range(600))


@pytest.mark.parametrize("durability", Durability)
async def test_a_subscriber_sees_no_gap_or_repeat_while_files_become_tables(
    testbed: Testbed, durability: Durability
) -> None:
    config = replace(SMALL_FILES, log_grace_s=2.0, log_roll_age_s=3.0, read_chunk_bytes=1 * KIB)
    (host,) = await testbed.cluster(1, config)
    host.inspect.memory.logs.limit = 6_000
    await testbed.topic(host, durability=durability)
    publisher = await host.publisher()
    fast, slow = await host.subscriber(), await host.subscriber(credit=1_000)
    late = []
    for round_ in range(60):
        await fill(publisher, 2)
        await asyncio.sleep(0.3)
        fast.take()
        slow.take()
        await slow.credit(1_000)
        if round_ % 15 == 14:
            late.append(await host.subscriber())
    await slow.credit(1 << 20)
    for reader in (fast, slow, *late):
        assert sequences(await reader.until(1_200)) == list(range(1_200))
    assert len(testbed.files(FileKind.TABLE)) > 5
    assert testbed.files(FileKind.LOG)[0].base_offset > 0


async def test_a_sealed_segment_ends_with_its_successors_on_every_broker(testbed: Testbed) -> None:
    hosts = await testbed.several(3)
    primary = await testbed.primary(hosts[0])
    await (await primary.publisher()).store(frames=5)
    primary.kill()
    others = [h for h in hosts if h is not primary]
    await testbed.until(lambda: all(1 in h.inspect.view.segments[NAME] for h in others))
    for other in others:
        reader = await other.subscriber()
        end = await reader.ending()
        assert (end.end_offset, end.successors) == (5, (1,))
        assert reader.values == values(1, 5)
        beyond = await other.subscriber(Start(StartKind.OFFSET, 99))
        assert (await beyond.ending()).end_offset == 5


async def test_a_subscriber_of_a_broker_that_stops_gets_everything_first(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    reader = await primary.subscriber()
    await publisher.store(frames=5)
    await primary.stop()
    await testbed.until(lambda: reader.stream.ended)
    reader.take()
    assert reader.values == values(1, 5)


@pytest.mark.parametrize("reading", ["waiting for records", "waiting for credit", "reading files"])
async def test_deleting_a_topic_ends_its_streams(testbed: Testbed, reading: str) -> None:
    host, publisher = await testbed.publishing(SMALL_FILES)
    await fill(publisher, 20)
    if reading == "reading files":
        host.evict()
    reader = await host.subscriber(credit=1_000 if reading != "waiting for records" else 1 << 20)
    await asyncio.sleep(1)
    await host.api.call(DeleteTopic(NAME))
    await reader.credit(1 << 20)
    assert isinstance(await reader.stream.failure(), NotFound)
    assert isinstance(await publisher.stream.failure(), NotFound)
    assert not host.has_failed
    assert host.inspect.memory.logs.used == 0


async def test_a_stream_does_not_go_over_to_a_new_topic_of_the_same_name(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(SMALL_FILES)
    await fill(publisher, 20)
    idle, stuck = await host.subscriber(), await host.subscriber(credit=1)
    await idle.until(200)
    await tabled(testbed, 100)
    await host.api.call(DeleteTopic(NAME))
    await testbed.topic(host)
    await (await host.publisher(2)).store(frames=60)
    await stuck.credit(1 << 20)
    for reader in (idle, stuck):
        assert isinstance(await reader.stream.failure(), NotFound)
        reader.take()
        assert not any(v.startswith(b"2:") for v in reader.values)
    assert isinstance(await publisher.stream.failure(), NotFound)
    host.evict()
    assert await (await host.subscriber()).until(60) == values(2, 60)
