"""Compaction: the brokers that maintain a topic with this setting merge its small tables."""

import asyncio
from dataclasses import replace

import pytest

from seaweedmq.broker.upkeep import compaction
from seaweedmq.core.files.compaction import AUTO_TABLES_MIN
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import AlterTopic, SealSegment
from seaweedmq.model.topic import TopicChange
from seaweedmq.model.topic_settings import AUTO_COMPACT
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, values

QUICK = replace(CONFIG, log_grace_s=4.0, log_roll_age_s=2.0, maintenance_interval_s=1.0)
ON = ((AUTO_COMPACT, "true"),)


async def trickle(testbed: Testbed, host: Host, records: int) -> None:
    """Send a record every few seconds, so that each gets its own table."""
    publisher = await host.publisher()
    for _ in range(records):
        await publisher.store()
        await asyncio.sleep(5)


async def test_many_small_tables_become_few_and_every_record_is_read_once(testbed: Testbed) -> None:
    host = await testbed.single(QUICK, configs=ON)
    early = await host.subscriber()
    await trickle(testbed, host, 3 * AUTO_TABLES_MIN)
    tables = testbed.files(FileKind.TABLE)
    assert len(tables) < AUTO_TABLES_MIN
    assert tables[0].base_offset == 0
    await asyncio.sleep(60)
    assert not testbed.files(FileKind.LOG)[:-1]
    for reader in (early, await host.subscriber()):
        assert await reader.until(3 * AUTO_TABLES_MIN) == values(1, 3 * AUTO_TABLES_MIN)


async def test_without_the_setting_and_on_a_busy_broker_they_stay_and_are_merged_later(testbed: Testbed) -> None:
    host = await testbed.single(QUICK)
    await trickle(testbed, host, AUTO_TABLES_MIN + 1)
    await host.api.call(SealSegment(NAME, 0))
    await asyncio.sleep(20)
    assert len(testbed.files(FileKind.TABLE)) == AUTO_TABLES_MIN + 1
    host.cpu_share = 1.0
    await asyncio.sleep(2)
    await host.api.call(AlterTopic(NAME, TopicChange(configs=ON)))
    await asyncio.sleep(60)
    assert len(testbed.files(FileKind.TABLE)) == AUTO_TABLES_MIN + 1
    host.cpu_share = 0.0
    await asyncio.sleep(20)
    assert len(testbed.files(FileKind.TABLE)) == 1


async def test_damage_is_said_once_and_the_segment_is_left_alone_for_a_while(testbed: Testbed) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "DAMAGED_PAUSE_S", 300.0)
        host = await testbed.single(QUICK)
        await trickle(testbed, host, AUTO_TABLES_MIN)
        tables = testbed.files(FileKind.TABLE)
        broken = testbed.store.files[tables[3].path]
        broken.data[-20] ^= 1
        await host.api.call(AlterTopic(NAME, TopicChange(configs=ON)))
        await asyncio.sleep(100)
        broken.data[-20] ^= 1
        await asyncio.sleep(100)
        assert testbed.files(FileKind.TABLE) == tables
        await asyncio.sleep(200)
        assert len(testbed.files(FileKind.TABLE)) == 1
