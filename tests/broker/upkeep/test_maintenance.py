"""File maintenance: its cost, and its behavior when clocks are wrong."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.codec.paths import table_path
from seaweedmq.core.lineage import topology
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.config import KIB
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import AlterTopic, SealSegment
from seaweedmq.model.topic import Scaling, Topic, TopicChange
from tests.broker.testbed import CONFIG, NAME, Host, Testbed
from tests.doubles.memory_converter import MemoryTableConverter
from tests.doubles.memory_store import StorageOp

HOUR_S = 3_600.0
YEAR_S = 365 * 24 * HOUR_S
QUICK = replace(CONFIG, log_grace_s=4.0, log_roll_age_s=2.0, maintenance_interval_s=1.0)


async def test_the_files_of_many_segments_are_looked_after_in_one_listing(testbed: Testbed) -> None:
    await testbed.single(segments=32, scaling=Scaling.FIXED)
    listed_before = testbed.faults.counts[StorageOp.LIST]
    await asyncio.sleep(HOUR_S / 4)
    looks = HOUR_S / 4 / max(CONFIG.maintenance_interval_s, CONFIG.log_grace_s / 4)
    assert 1 <= testbed.faults.counts[StorageOp.LIST] - listed_before <= looks + 1


async def two_tables(testbed: Testbed, host: Host, pause_s: float = HOUR_S / 20) -> None:
    """Make two tables of records with this pause after each."""
    publisher = await host.publisher()
    for count in (1, 2):
        await publisher.store()
        await testbed.until(lambda count=count: len(testbed.files(FileKind.TABLE)) == count)
        await asyncio.sleep(pause_s)


async def test_what_is_in_files_leaves_memory_after_a_while_and_is_read_from_there(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(replace(CONFIG, cache_age_s=60.0))
    await publisher.store(frames=5, size=1_000)
    memory = host.inspect.memory.logs
    await asyncio.sleep(50)
    assert memory.used > 5_000, "who reads a little later need not open files"
    await publisher.store(size=1_000)
    await asyncio.sleep(20)
    assert 1_000 < memory.used < 3_000, "the last one is young"
    assert len(await (await host.subscriber()).until(6)) == 6
    await asyncio.sleep(60)
    assert memory.used == host.inspect.segments[NAME, 0].log.cached_bytes == 0
    assert len(await (await host.subscriber()).until(6)) == 6


@pytest.mark.parametrize("ahead_s", [-YEAR_S, -10.0, 10.0, YEAR_S])
async def test_conversion_and_listings_go_on_whatever_the_clock_does(testbed: Testbed, ahead_s: float) -> None:
    host, publisher = await testbed.publishing(QUICK, retention_s=HOUR_S)
    for count in (1, 2):
        await publisher.store()
        await testbed.until(lambda count=count: len(testbed.files(FileKind.TABLE)) == count)
        host.ahead_s = ahead_s
    before = testbed.faults.counts[StorageOp.LIST]
    await asyncio.sleep(10)
    assert testbed.faults.counts[StorageOp.LIST] >= before + 5


async def test_partitions_have_an_age_of_their_own_and_a_topic_may_set_both_bounds(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(replace(QUICK, partition_roll_age_s=40.0), partitions=1)
    await publisher.store()
    await asyncio.sleep(30)
    assert not testbed.files(FileKind.TABLE)
    await asyncio.sleep(15)
    assert len(testbed.files(FileKind.TABLE)) == 1
    await host.api.call(AlterTopic(NAME, TopicChange(configs=(("segment.ms", "5000"),))))
    await publisher.store()
    await asyncio.sleep(10)
    assert len(testbed.files(FileKind.TABLE)) == 2
    await host.api.call(AlterTopic(NAME, TopicChange(configs=(("segment.bytes", str(64 * KIB)),))))
    await publisher.store(frames=20, size=8 * KIB)
    await asyncio.sleep(5)
    assert len(testbed.files(FileKind.TABLE)) >= 3


@pytest.mark.parametrize("bounds", [{}, {"conversion_delay_s_max": 20.0}, {"conversion_backlog_bytes_max": 100}])
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_a_busy_broker_converts_later_or_at_a_bound(
    testbed: Testbed, bounds: dict[str, Any], is_sealed: bool
) -> None:
    (host,) = await testbed.cluster(1, replace(QUICK, **bounds))
    host.cpu_share = 1.0
    await testbed.topic(host)
    await (await host.publisher()).store()
    if is_sealed:
        await host.api.call(SealSegment(NAME, 0))
    await asyncio.sleep(15)
    assert len(testbed.files(FileKind.TABLE)) == ("conversion_backlog_bytes_max" in bounds)
    await asyncio.sleep(10)
    assert len(testbed.files(FileKind.TABLE)) == bool(bounds)
    host.cpu_share = 0.0
    await asyncio.sleep(5)
    assert len(testbed.files(FileKind.TABLE)) == 1


async def test_others_are_told_of_tables_that_another_brokers_worker_made_and_told_nobody_of(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    async def reconcile(converter: MemoryTableConverter, topic: Topic) -> bool:
        told.append(len(testbed.files(FileKind.TABLE)))
        return True

    monkeypatch.setattr(MemoryTableConverter, "reconcile", reconcile)
    host = await testbed.single(QUICK)
    await two_tables(testbed, host)
    await asyncio.sleep(HOUR_S / 60)
    told.clear()
    first, _ = testbed.files(FileKind.TABLE)
    content = await (await testbed.store.open(first)).read(0, first.size_bytes)
    await testbed.store.put_file(table_path(NAME, first.segment, 2, 3), content)
    await asyncio.sleep(HOUR_S / 60)
    assert told == [3]


async def test_others_are_told_of_tables_that_came_and_went_and_told_again_when_that_failed(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    outcomes: list[bool | SeaweedMQError] = []

    async def reconcile(converter: MemoryTableConverter, topic: Topic) -> bool:
        told.append(len(testbed.files(FileKind.TABLE)))
        outcome = outcomes.pop(0) if outcomes else True
        if isinstance(outcome, SeaweedMQError):
            raise outcome
        return outcome

    monkeypatch.setattr(MemoryTableConverter, "reconcile", reconcile)
    host = await testbed.single(QUICK, retention_s=HOUR_S / 6)
    await asyncio.sleep(30)
    assert told == [], "without tables there is nothing to tell"
    await two_tables(testbed, host)
    assert told == [1, 2]
    await asyncio.sleep(HOUR_S / 60)
    assert told == [1, 2], "nor again while nothing changes"
    outcomes += [Unavailable("the table worker died"), False]
    await asyncio.sleep(HOUR_S / 12)
    assert [f.base_offset for f in testbed.files(FileKind.TABLE)] == [1]
    assert told == [1, 2, 1, 1, 1]


async def kept(testbed: Testbed, after_s: float) -> list[int]:
    await asyncio.sleep(after_s)
    return [f.base_offset for f in testbed.files(FileKind.TABLE)]


@pytest.mark.parametrize("all_clocks", [True, False])
async def test_a_machine_that_is_a_year_ahead_for_a_while_deletes_nothing(testbed: Testbed, all_clocks: bool) -> None:
    """The storage is on the same machine, or has its own clock."""
    host = await testbed.single(QUICK, retention_s=60.0)
    await two_tables(testbed, host, pause_s=15)
    await host.api.call(SealSegment(NAME, 0))
    host.ahead_s, testbed.storage_ahead_s = YEAR_S, YEAR_S if all_clocks else 0.0
    assert await kept(testbed, 20) == [0, 1]
    testbed.storage_ahead_s = host.ahead_s = 0.0
    assert await kept(testbed, 8) == [0, 1]
    assert await kept(testbed, 12) == [1]
    assert await kept(testbed, 20) == []


async def test_a_broker_that_begins_while_its_clock_is_ahead_deletes_nothing(testbed: Testbed) -> None:
    host = await testbed.single(QUICK, retention_s=60.0)
    await two_tables(testbed, host, pause_s=15)
    await host.stop()
    testbed.ahead_s = testbed.storage_ahead_s = YEAR_S
    host = await testbed.start(QUICK)
    assert await kept(testbed, 20) == [0, 1]
    testbed.storage_ahead_s = host.ahead_s = 0.0
    assert await kept(testbed, 38) == [0, 1], "it has not been there for a minute"
    assert await kept(testbed, 20) == []


async def test_a_broker_that_takes_a_topic_over_watches_it_before_it_deletes(testbed: Testbed) -> None:
    """A clock that was a year behind dated tables whose appearance the broker has not seen."""
    await testbed.cluster(2, QUICK)
    await testbed.topic(testbed.leader(), retention_s=60.0)
    await asyncio.sleep(70)
    testbed.storage_ahead_s = -YEAR_S
    keeper = await testbed.primary(testbed.leader())
    await two_tables(testbed, keeper, pause_s=15)
    testbed.storage_ahead_s = 0.0
    await asyncio.sleep(10)
    await keeper.stop()
    assert await kept(testbed, 50) == [0, 1]
    assert await kept(testbed, 30) == []


async def test_logs_of_producers_stay_whatever_the_clock(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "SEALED_SEQUENCES_MAX", 1)
    host = await testbed.single(replace(QUICK, producer_idle_s=100.0))
    for producer in (1, 2):
        await (await host.publisher(producer)).store()
    host.ahead_s = -YEAR_S
    await host.api.call(SealSegment(NAME, 0))
    host.ahead_s = 0.0
    await asyncio.sleep(90)
    assert testbed.files(FileKind.LOG)
    await asyncio.sleep(20)
    assert not testbed.files(FileKind.LOG)
