"""Figures of a segment say where it begins after retention, and cost the storage little."""

import asyncio
from dataclasses import replace

from seaweedmq.broker.serve.start_offsets import FRESH_S, LISTING_WAIT_S_MAX
from seaweedmq.model.calls import AlterTopic, SealSegment, TopicStats
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import TopicChange
from seaweedmq.storage.store.memory import StorageOp
from tests.broker.bed import CONFIG, NAME, Bed, Host, story

QUICK = replace(CONFIG, log_roll_age_s=1.0, maintenance_interval_s=1.0, log_grace_s=2.0)


async def start_of(host: Host) -> int:
    (stats,) = await host.api.call(TopicStats(NAME))
    return stats.start_offset


@story
async def test_the_start_rises_as_retention_removes_files(bed: Bed) -> None:
    hosts = await bed.cluster(2, QUICK)
    await bed.topic(hosts[0], retention_s=20.0)
    publisher = await (await bed.primary(hosts[0])).publisher()
    for _ in range(4):
        await publisher.store(frames=2)
        await asyncio.sleep(5)
    assert await start_of(hosts[0]) == 0
    await bed.until(lambda: min(f.base_offset for f in bed.files(FileKind.TABLE)) > 0)
    await asyncio.sleep(FRESH_S)
    left = min(f.base_offset for kind in FileKind for f in bed.files(kind))
    assert left > 0
    assert {await start_of(host) for host in hosts} == {left}
    reader = await (await bed.primary(hosts[0])).subscriber()
    assert reader.ready.start_offset == left


@story
async def test_a_successor_begins_where_its_parent_ended(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    await bed.topic(host)
    await (await host.publisher()).store(frames=3)
    await host.api.call(SealSegment(NAME, 0))
    assert await start_of(host) == 3


@story
async def test_files_are_listed_once_and_with_retention_now_and_then(bed: Bed) -> None:
    (host,) = await bed.cluster(1, replace(CONFIG, maintenance_interval_s=1_000.0))
    await bed.topic(host, segments=4)
    bed.faults.counts.clear()
    for _ in range(10):
        await asyncio.gather(*(host.api.call(TopicStats(NAME)) for _ in range(5)))
        await asyncio.sleep(FRESH_S)
    assert bed.faults.counts[StorageOp.LIST] == 1
    await host.api.call(AlterTopic(NAME, TopicChange(retention_s=3_600.0)))
    for _ in range(5):
        await asyncio.gather(*(host.api.call(TopicStats(NAME)) for _ in range(5)))
        await asyncio.sleep(FRESH_S)
    assert bed.faults.counts[StorageOp.LIST] == 11, "with retention the files as well as what it removed"


@story
async def test_a_storage_that_hangs_or_fails_does_not_keep_figures_back(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    await bed.topic(host)
    await (await host.publisher()).store(frames=3)
    held = bed.faults.hold(StorageOp.LIST)
    began = bed.loop.time()
    (stats,) = await host.api.call(TopicStats(NAME))
    assert (stats.start_offset, stats.high_watermark) == (0, 3)
    assert bed.loop.time() - began < 2 * LISTING_WAIT_S_MAX
    starts, topic = host.broker.local.starts, host.inspect.view.topics[NAME]
    assert starts.known(topic) is None
    held.set()
    bed.faults.held.clear()
    await bed.until(lambda: starts.known(topic) == {})
    bed.faults.failing[StorageOp.LIST] = "input/output error"
    (stats,) = await host.api.call(TopicStats(NAME))
    assert (stats.start_offset, stats.high_watermark) == (0, 3)
