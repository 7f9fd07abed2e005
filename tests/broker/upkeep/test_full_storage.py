"""A full storage: what is due goes without a byte written first, and brokers start and serve what is there."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.errors import StorageFailed
from seaweedmq.model.calls import AlterTopic, DeleteTopic, RaiseLowWatermark, SealSegment
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import TopicChange
from seaweedmq.model.topic_settings import configs_of
from seaweedmq.storage.store.memory import StorageOp
from tests.broker.bed import NAME, Bed, Host, story, values
from tests.broker.upkeep.test_maintenance import HOUR_S, QUICK, YEAR_S, two_tables

FULL = "No space left on device"
TAKES_SPACE = (StorageOp.CHECK, StorageOp.CREATE, StorageOp.APPEND, StorageOp.PUT)


def fill(bed: Bed) -> None:
    bed.faults.failing = dict.fromkeys(TAKES_SPACE, FULL)


async def topic_of_two_tables(bed: Bed, **settings: Any) -> Host:
    (host,) = await bed.cluster(1, replace(QUICK, partition_roll_age_s=2.0))
    await bed.topic(host, **settings)
    await two_tables(bed, host)
    return host


@story
async def test_retention_makes_room(bed: Bed) -> None:
    await topic_of_two_tables(bed, retention_s=HOUR_S / 6)
    fill(bed)
    await asyncio.sleep(HOUR_S / 3)
    assert 0 not in [table.base_offset for table in bed.files(FileKind.TABLE)]


@story
async def test_a_removal_that_could_not_be_recorded_is_recorded_once_there_is_room(bed: Bed) -> None:
    """Until then retention explains it; afterwards it is explained although retention is off."""
    host = await topic_of_two_tables(bed, retention_s=HOUR_S / 6)
    uid = host.inspect.view.topics[NAME].uid
    fill(bed)
    await asyncio.sleep(HOUR_S / 3)
    assert [table.base_offset for table in bed.files(FileKind.TABLE)] == [1]
    assert await bed.store.removed(NAME, uid) == {}
    assert await (await host.subscriber()).until(1) == values(1, 2)[1:]
    await host.api.call(AlterTopic(NAME, TopicChange(retention_s=0.0)))
    await bed.until(lambda: not host.inspect.view.topics[NAME].expires)
    bed.faults.failing.clear()
    await asyncio.sleep(60)
    assert await bed.store.removed(NAME, uid) == {0: 1}
    assert await (await host.subscriber()).until(1) == values(1, 2)[1:]


@story
async def test_a_clock_that_is_ahead_deletes_nothing(bed: Bed) -> None:
    host = await topic_of_two_tables(bed, retention_s=HOUR_S / 6)
    fill(bed)
    host.ahead_s = YEAR_S
    await asyncio.sleep(60)
    assert len(bed.files(FileKind.TABLE)) == 2


@story
async def test_deleted_records_and_topics_make_room(bed: Bed) -> None:
    host = await topic_of_two_tables(bed, partitions=1)
    fill(bed)
    await host.api.call(RaiseLowWatermark(NAME, {0: 1}))
    await asyncio.sleep(60)
    assert 0 not in [table.base_offset for table in bed.files(FileKind.TABLE)]
    await host.api.call(DeleteTopic(NAME))
    assert not bed.files(FileKind.LOG) + bed.files(FileKind.TABLE)


@story
async def test_brokers_start_and_serve_what_is_there_and_publishers_continue_once_there_is_room(bed: Bed) -> None:
    hosts = await bed.cluster(2, replace(QUICK, lease_ttl_s=2.0))
    await bed.topic(hosts[0])
    primary = await bed.primary(hosts[0])
    await (await primary.publisher()).store(frames=3)
    fill(bed)
    primary.kill()
    third = await bed.start(QUICK)
    assert not third.has_failed
    await bed.until(lambda: len(third.inspect.view.segments[NAME]) == 2)
    assert await (await third.subscriber()).until(3) == values(1, 3)
    successor = next(segment for segment in third.inspect.view.segments[NAME].values() if segment.is_open)
    host = next(host for host in bed.hosts if host.broker.id == successor.primary)
    publisher = await host.publisher(producer=2, segment=successor.id, segment_epoch=successor.epoch)
    await publisher.send()
    with pytest.raises(StorageFailed, match=FULL):
        await publisher.acks()
    bed.faults.failing.clear()
    await bed.until(lambda: not host.inspect.segments[NAME, successor.id].failure)
    await (await host.publisher(producer=2, segment=successor.id, segment_epoch=successor.epoch)).store()


@pytest.mark.parametrize("op", [StorageOp.LIST, StorageOp.READ, StorageOp.PUT])
@story
async def test_a_trouble_that_lasts_is_logged_once_and_not_at_every_attempt(
    bed: Bed, op: StorageOp, caplog: pytest.LogCaptureFixture
) -> None:
    host = await topic_of_two_tables(bed, configs=configs_of({"seaweedmq.auto.compact": "true"}))
    publisher = await host.publisher(producer=2)
    await publisher.store(frames=3)
    await host.api.call(SealSegment(NAME, 0))
    bed.faults.failing = {op: "input/output error"}
    caplog.clear()
    await asyncio.sleep(60)
    said = Counter(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert [text for text, times in said.items() if times > 1] == []
    assert said.total() < 10
    assert not host.has_failed
