"""Low storage space: records are rejected early; reads, groups and deletions continue; it recovers by itself."""

import asyncio
import logging

import pytest

from seaweedmq.broker.upkeep import storage_space
from seaweedmq.broker.upkeep.storage_space import PAUSE_S_MAX, PAUSE_S_MIN, SpaceGuard
from seaweedmq.errors import StorageFailed, StorageFull
from seaweedmq.model.config import MIB
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import StorageSpace
from tests.broker.testbed import NAME, Testbed
from tests.doubles.memory_store import MemorySegmentStore
from tests.kafka.in_process_client import batch, in_process_clients, records_of

LEAST = 100 * MIB
GROUPS = TopicName("kafka", "__consumer_offsets")
ORDERS = TopicName("kafka", "orders")


def free(free_bytes: int) -> StorageSpace:
    return StorageSpace(free_bytes, 1 << 50)


def test_records_are_refused_below_the_minimum_and_taken_again_above_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    space = SpaceGuard(LEAST, GROUPS)
    space.check(NAME)
    space.measured(free(LEAST))
    space.check(NAME)
    space.measured(free(LEAST - 1))
    with pytest.raises(
        StorageFull, match=r"less than 104,857,600 bytes free.*storage_free_bytes_min.*free space on it"
    ):
        space.check(NAME)
    space.check(GROUPS)
    space.measured(free(LEAST))
    with pytest.raises(StorageFull):
        space.check(NAME)
    space.measured(free(2 * LEAST))
    space.check(NAME)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "records rejected",
        "records accepted again",
    ]


def test_the_closer_to_the_minimum_the_sooner_it_is_measured_again() -> None:
    space = SpaceGuard(LEAST, GROUPS)
    assert space.measured(free(LEAST + 1_000_000_000_000)) == PAUSE_S_MAX
    assert space.measured(free(LEAST + 2_000_000_000)) == 2.0
    assert space.measured(free(LEAST + 1)) == PAUSE_S_MIN
    assert space.measured(free(0)) == pytest.approx(0.105, rel=0.01)
    space = SpaceGuard(LEAST, GROUPS)
    space.measured(StorageSpace(6 * MIB, 100 * MIB))
    space.check(NAME)
    space.measured(StorageSpace(4 * MIB, 100 * MIB))
    with pytest.raises(StorageFull, match="less than 5,242,880 bytes free"):  # a twentieth of a small storage
        space.check(NAME)


async def test_a_storage_that_cannot_be_measured_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_space, "PAUSE_S_MAX", 0.0)
    answers: list[StorageSpace | StorageFailed | None] = [StorageFailed("it is gone"), None]
    measured = asyncio.Event()

    class Store(MemorySegmentStore):
        async def space(self) -> StorageSpace | None:
            if not answers:
                measured.set()
                await asyncio.Event().wait()
            answer = answers.pop(0)
            if isinstance(answer, StorageFailed):
                raise answer
            return answer

    space = SpaceGuard(LEAST, GROUPS)
    running = asyncio.create_task(space.run(Store(wall_us=lambda: 0)))
    async with asyncio.timeout(20):
        await measured.wait()
    space.check(NAME)
    running.cancel()


async def test_kafka_producers_get_kafka_s_code_and_consumers_continue(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = free(1 << 40)

    async def space(_: MemorySegmentStore) -> StorageSpace:
        return left

    monkeypatch.setattr(MemorySegmentStore, "space", space)
    [client] = await in_process_clients(testbed)
    client.host.broker.watch_storage()
    await testbed.topic(client.host, ORDERS, partitions=1)
    await testbed.until(lambda: client.host.inspect.view.open_of(ORDERS))
    native = await client.host.publisher(name=ORDERS)
    assert (await client.produce("orders", 0, batch(b"before"))).error_code == Code.NONE
    left = free(0)
    await asyncio.sleep(PAUSE_S_MAX + 1)
    refused = await client.produce("orders", 0, batch(b"refused"))
    assert refused.error_code == Code.KAFKA_STORAGE_ERROR
    assert "storage_free_bytes_min" in refused.error_message
    await native.send()
    with pytest.raises(StorageFull, match=r"storage_free_bytes_min.*free space on it"):
        await native.acks()
    found = await client.fetch("orders", 0, 0)
    assert [value for _, _, value in records_of(found.records)] == [b"before"]
    left = free(1 << 40)
    await asyncio.sleep(PAUSE_S_MAX)
    assert (await client.produce("orders", 0, batch(b"after"))).error_code == Code.NONE
