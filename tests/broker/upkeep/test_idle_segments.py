"""Idle open segments: retention and deletion also reach the newest log file."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.codec.logfile import decode_preamble
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import RaiseLowWatermark
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, value, values
from tests.doubles.memory_store import StorageOp

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "manually": {},
    "by age": {"retention_s": 60.0},
    "by size": {"retention_bytes": 1},
}
BRIEF = replace(CONFIG, partition_roll_age_s=60.0, log_grace_s=60.0)
GONE_S = 900.0
"""Time until the log is rolled and converted, and both grace periods end."""


def holding(testbed: Testbed, record: bytes) -> list[str]:
    """Return the files that hold a record, and all tables."""
    tables = [file.path for file in testbed.files(FileKind.TABLE)]
    return [path for path, file in testbed.store.files.items() if record in bytes(file.data)] + tables


async def idle_segment(testbed: Testbed, how: str, frames: int = 10, brokers: int = 1, **more: Any) -> Host:
    """Return the primary of a long idle segment whose records are deleted."""
    hosts = await testbed.several(brokers, BRIEF, partitions=1, **SETTINGS[how], **more)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    await publisher.store(frames=frames)
    if how == "manually":
        await primary.api.call(RaiseLowWatermark(NAME, {0: frames}))
    await publisher.stream.close()
    await asyncio.sleep(GONE_S)
    return primary


@pytest.mark.parametrize("how", SETTINGS)
async def test_the_last_records_go_and_the_segment_continues_from_one_empty_log(testbed: Testbed, how: str) -> None:
    host = await idle_segment(testbed, how)
    assert holding(testbed, value(1, 9)) == []
    (left,) = testbed.files(FileKind.LOG)
    assert (left.base_offset, left.writer) == (10, f"{host.broker.id}.synced")
    preamble, _ = decode_preamble(bytes(testbed.store.files[left.path].data))
    assert [segment.id for segment in preamble.lineage] == [0], "the only log file records its segment"
    created = testbed.faults.counts[StorageOp.CREATE]
    await asyncio.sleep(GONE_S)
    assert testbed.faults.counts[StorageOp.CREATE] == created, "an idle segment costs nothing"
    publisher = await host.publisher()
    assert publisher.next == 10, "the broker knows its producers"
    await publisher.store(frames=5)
    assert await (await host.subscriber()).until(5) == values(1, 5, 10)
    if how != "manually":
        await publisher.stream.close()
        await asyncio.sleep(GONE_S)
        assert holding(testbed, value(1, 14)) == []
        assert [log.base_offset for log in testbed.files(FileKind.LOG)] == [15]


@pytest.mark.parametrize("loss", ["process", "machine"])
async def test_a_successor_knows_the_end_and_the_producers_of_an_emptied_segment(testbed: Testbed, loss: str) -> None:
    primary = await idle_segment(testbed, "by age", brokers=2)
    primary.kill()
    if loss == "machine":
        testbed.store.crash()
    (other,) = [host for host in testbed.hosts if host is not primary]
    await testbed.until(lambda: len(other.inspect.view.segments[NAME]) == 2)
    sealed, successor = other.inspect.view.segments[NAME].values()
    assert (sealed.end_offset, successor.start_offset) == (10, 10)
    assert {producer.producer_id: producer.next_sequence for producer in sealed.sequences} == {1: 10}
    await testbed.until(lambda: not [path for path in testbed.store.files if path.endswith(".log")], patience_s=GONE_S)


async def test_records_that_are_wanted_keep_their_files(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing(BRIEF, partitions=1, retention_s=10 * GONE_S)
    await publisher.store(frames=10)
    await publisher.stream.close()
    await asyncio.sleep(GONE_S)
    assert [(log.base_offset, log.writer) for log in testbed.files(FileKind.LOG)] == [(0, host.broker.id)]
    assert len(testbed.files(FileKind.TABLE)) == 1


async def test_a_storage_that_fails_meanwhile_is_asked_again(testbed: Testbed) -> None:
    host = await testbed.single(BRIEF, partitions=1, **SETTINGS["by age"])
    await (await host.publisher()).store(frames=10)
    testbed.faults.failing[StorageOp.CREATE] = "input/output error"
    await asyncio.sleep(GONE_S)
    assert holding(testbed, value(1, 9))
    testbed.faults.failing.clear()
    await asyncio.sleep(GONE_S)
    assert holding(testbed, value(1, 9)) == []
