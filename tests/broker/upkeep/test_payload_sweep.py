"""The daily sweep of payloads that no record names: by one broker a topic, and retried the next day."""

import asyncio

import pytest

from seaweedmq.broker.upkeep import payload_sweep
from seaweedmq.errors import StorageFailed
from seaweedmq.model.messages.calls import DeleteTopic
from tests.broker.testbed import NAME, Testbed
from tests.doubles.memory_store import MemorySegmentStore


async def test_one_broker_sweeps_each_topic_once_a_day(testbed: Testbed) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_sweep, "FIRST_S", 700.0)
        patch.setattr(payload_sweep, "INTERVAL_S", 1_000.0)
        host = await testbed.single()
        await testbed.start()
        await asyncio.sleep(650)
        assert testbed.store.blob_sweeps == []
        await asyncio.sleep(1_200)
        assert [name for name, _ in testbed.store.blob_sweeps] == [NAME]
        await asyncio.sleep(1_200)
        assert [name for name, _ in testbed.store.blob_sweeps] == [NAME, NAME]
        await host.api.call(DeleteTopic(NAME))
        await asyncio.sleep(700)
        assert len(testbed.store.blob_sweeps) == 2


async def test_a_failed_sweep_is_said_once_and_stops_nothing(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> int:
        testbed.store.blob_sweeps.append((NAME, 0))
        raise StorageFailed("blobs/test/topic/1 was not swept: a table is damaged: restore it from a copy")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_sweep, "FIRST_S", 0.0)
        patch.setattr(payload_sweep, "INTERVAL_S", 0.0)
        patch.setattr(MemorySegmentStore, "sweep_blobs", fails)
        host = await testbed.single()
        await asyncio.sleep(3_000)
        assert len(testbed.store.blob_sweeps) >= 3
        publisher = await host.publisher()
        await publisher.store()
    said = [record for record in caplog.records if "sweep of the payloads of test/topic" in record.getMessage()]
    assert len(said) == 1
