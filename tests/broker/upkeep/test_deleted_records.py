"""Rewrites of tables with deleted and living records: one for each step of the low watermark."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.upkeep import deleted_records
from seaweedmq.errors import Corrupt, StorageFailed, Unavailable
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.calls import RaiseLowWatermark
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, values
from tests.doubles.memory_converter import MemoryTableConverter

BRIEF = replace(CONFIG, partition_roll_age_s=20.0, log_grace_s=20.0, maintenance_interval_s=1.0)
REWRITTEN_S = 200.0
"""Time until a log is rolled and converted, its grace period ends, and then that of the low watermark."""


def tables(testbed: Testbed) -> list[tuple[int, int | None]]:
    return [(file.base_offset, file.end_offset) for file in testbed.files(FileKind.TABLE)]


async def partition(testbed: Testbed, records: int = 20) -> Host:
    host, publisher = await testbed.publishing(BRIEF, partitions=1)
    await publisher.store(frames=records)
    await publisher.stream.close()
    return host


@pytest.fixture
def rewrites(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the low watermarks of the rewrites that brokers request."""
    asked: list[int] = []
    compact = MemoryTableConverter.compact

    async def noted(
        converter: Any, topic: Any, tables: Sequence[SegmentFile], *, low_watermark: int = 0
    ) -> list[SegmentFile]:
        asked.append(low_watermark)
        return await compact(converter, topic, tables, low_watermark=low_watermark)

    monkeypatch.setattr(MemoryTableConverter, "compact", noted)
    return asked


async def test_deleted_records_leave_the_table_of_an_idle_segment_once(testbed: Testbed, rewrites: list[int]) -> None:
    host = await partition(testbed)
    await host.api.call(RaiseLowWatermark(NAME, {0: 7}))
    await asyncio.sleep(REWRITTEN_S)
    assert tables(testbed) == [(7, 20)]
    assert not any(b"1:6" in bytes(file.data) for file in testbed.store.files.values())
    await asyncio.sleep(REWRITTEN_S)
    assert rewrites == [7], "once"
    assert await (await host.subscriber()).until(13) == values(1, 13, 7)
    rewrites.clear()
    for before in range(8, 16):
        await host.api.call(RaiseLowWatermark(NAME, {0: before}))
        await asyncio.sleep(4)
    assert 1 <= len(rewrites) <= 3, "many steps cost a rewrite each grace period"
    await asyncio.sleep(60)
    assert tables(testbed) == [(15, 20)]
    assert await (await host.subscriber()).until(5) == values(1, 5, 15)


@pytest.mark.parametrize("error", [Unavailable("another one"), StorageFailed("full"), Corrupt("damaged")])
async def test_a_rewrite_that_fails_leaves_the_table_and_is_made_later(testbed: Testbed, error: Exception) -> None:
    failing = True
    compact = MemoryTableConverter.compact

    async def refuse(converter: Any, *args: Any, **more: Any) -> list[SegmentFile]:
        if failing:
            raise error
        return await compact(converter, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deleted_records, "DAMAGED_PAUSE_S", 200.0)
        patch.setattr(MemoryTableConverter, "compact", refuse)
        host = await partition(testbed)
        await host.api.call(RaiseLowWatermark(NAME, {0: 7}))
        await asyncio.sleep(REWRITTEN_S)
        assert tables(testbed) == [(0, 20)]
        assert await (await host.subscriber()).until(13) == values(1, 13, 7)
        failing = False
        await asyncio.sleep(300)
        assert tables(testbed) == [(7, 20)]


async def test_an_original_that_a_killed_process_left_goes(testbed: Testbed) -> None:
    host = await partition(testbed)
    await host.api.call(RaiseLowWatermark(NAME, {0: 7}))
    original: dict[str, Any] = {}

    def keep() -> bool:
        original.update(
            {f.path: testbed.store.files[f.path] for f in testbed.files(FileKind.TABLE) if f.base_offset == 0}
        )
        return tables(testbed) == [(7, 20)]

    await testbed.until(keep, 400)
    testbed.store.files.update(original)
    await asyncio.sleep(REWRITTEN_S)
    assert tables(testbed) == [(7, 20)]
    assert await (await host.subscriber()).until(13) == values(1, 13, 7)
