"""A full storage: due removals need no free byte, and brokers start and serve what is there."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.errors import StorageFailed
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import AlterTopic, DeleteTopic, RaiseLowWatermark, SealSegment
from seaweedmq.model.topic import TopicChange
from seaweedmq.model.topic_settings import configs_of
from tests.broker.testbed import NAME, Host, Testbed, values
from tests.broker.upkeep.test_maintenance import HOUR_S, QUICK, YEAR_S, two_tables
from tests.doubles.memory_store import StorageOp

FULL = "No space left on device"
TAKES_SPACE = (StorageOp.CHECK, StorageOp.CREATE, StorageOp.APPEND, StorageOp.PUT)


def fill(testbed: Testbed) -> None:
    testbed.faults.failing = dict.fromkeys(TAKES_SPACE, FULL)


async def topic_of_two_tables(testbed: Testbed, **settings: Any) -> Host:
    (host,) = await testbed.cluster(1, replace(QUICK, partition_roll_age_s=2.0))
    await testbed.topic(host, **settings)
    await two_tables(testbed, host)
    return host


async def test_retention_makes_room_and_records_its_removals_once_it_can(testbed: Testbed) -> None:
    """Until then the topic's retention explains the removal; afterwards the record does, although retention is off."""
    host = await topic_of_two_tables(testbed, retention_s=HOUR_S / 6)
    uid = host.inspect.view.topics[NAME].uid
    fill(testbed)
    host.ahead_s = YEAR_S
    await asyncio.sleep(60)
    assert len(testbed.files(FileKind.TABLE)) == 2, "a clock that is ahead deletes nothing"
    host.ahead_s = 0.0
    await asyncio.sleep(HOUR_S / 3 - 60)
    assert [table.base_offset for table in testbed.files(FileKind.TABLE)] == [1]
    assert await testbed.store.removed(NAME, uid) == {}
    assert await (await host.subscriber()).until(1) == values(1, 2)[1:]
    await host.api.call(AlterTopic(NAME, TopicChange(retention_s=0.0)))
    await testbed.until(lambda: not host.inspect.view.topics[NAME].expires)
    testbed.faults.failing.clear()
    await asyncio.sleep(60)
    assert await testbed.store.removed(NAME, uid) == {0: 1}
    assert await (await host.subscriber()).until(1) == values(1, 2)[1:]


async def test_deleted_records_and_topics_make_room(testbed: Testbed) -> None:
    host = await topic_of_two_tables(testbed, partitions=1)
    fill(testbed)
    await host.api.call(RaiseLowWatermark(NAME, {0: 1}))
    await asyncio.sleep(60)
    assert 0 not in [table.base_offset for table in testbed.files(FileKind.TABLE)]
    await host.api.call(DeleteTopic(NAME))
    assert not testbed.files(FileKind.LOG) + testbed.files(FileKind.TABLE)


async def test_brokers_start_and_serve_and_publishers_continue_once_there_is_room(testbed: Testbed) -> None:
    hosts = await testbed.several(2, replace(QUICK, lease_ttl_s=2.0))
    primary = await testbed.primary(hosts[0])
    await (await primary.publisher()).store(frames=3)
    fill(testbed)
    primary.kill()
    third = await testbed.start(QUICK)
    assert not third.has_failed
    await testbed.until(lambda: len(third.inspect.view.segments[NAME]) == 2)
    assert await (await third.subscriber()).until(3) == values(1, 3)
    successor = next(segment for segment in third.inspect.view.segments[NAME].values() if segment.is_open)
    host = next(host for host in testbed.hosts if host.broker.id == successor.primary)
    publisher = await host.publisher(producer=2, segment=successor.id, segment_epoch=successor.epoch)
    await publisher.send()
    with pytest.raises(StorageFailed, match=FULL):
        await publisher.acks()
    testbed.faults.failing.clear()
    await testbed.until(lambda: not host.inspect.segments[NAME, successor.id].failure)
    await (await host.publisher(producer=2, segment=successor.id, segment_epoch=successor.epoch)).store()


@pytest.mark.parametrize("op", [StorageOp.LIST, StorageOp.READ, StorageOp.PUT])
async def test_a_trouble_that_lasts_is_logged_once(
    testbed: Testbed, op: StorageOp, caplog: pytest.LogCaptureFixture
) -> None:
    host = await topic_of_two_tables(testbed, configs=configs_of({"seaweedmq.auto.compact": "true"}))
    await (await host.publisher(producer=2)).store(frames=3)
    await host.api.call(SealSegment(NAME, 0))
    testbed.faults.failing = {op: "input/output error"}
    caplog.clear()
    await asyncio.sleep(60)
    said = Counter(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert [text for text, times in said.items() if times > 1] == []
    assert said.total() < 10
    assert not host.has_failed
