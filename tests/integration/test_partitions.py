"""Topics with partitions on real brokers: records without a key, and partitions that are added under load."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from tests.faults.machines.cluster import Cluster
from tests.support.kafka_wire import partition_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

KEYS = [b"key-%d" % number for number in range(60)]
CONFIG = replace(ClientConfig(), metadata_max_age_s=0.2)
PATIENCE_S = 60.0


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster: Cluster) -> AsyncIterator[aio.Client]:
    async with aio.connect(cluster.bootstrap, config=CONFIG) as client:
        yield client


async def test_records_without_a_key_are_spread_over_all_partitions(client: aio.Client) -> None:
    await client.admin.create_topic("it/spread", partitions=3)
    async with await client.publisher("it/spread", linger_s=0.0) as publisher:
        receipts = [await (await publisher.send(b"x")) for _ in range(100)]
    assert {receipt.segment for receipt in receipts} == {0, 1, 2}


async def test_partitions_are_added_while_records_are_sent_and_read(client: aio.Client) -> None:
    await client.admin.create_topic("it/growing", partitions=2, replicas=2)
    seen: set[int] = set()
    sent = received = grouped = 0
    async with (
        await client.publisher("it/growing") as publisher,
        client.subscriber("it/growing", start=0) as reading,
        client.subscriber("it/growing", group="workers", start="earliest") as member,
        asyncio.TaskGroup() as tasks,
    ):

        async def read() -> None:
            nonlocal received
            async for message in reading:
                received += 1
                assert message.partition is not None
                seen.add(message.partition)

        async def work() -> None:
            nonlocal grouped
            async for message in member:
                grouped += 1
                message.ack()

        readers = [tasks.create_task(read()), tasks.create_task(work())]

        async def publish_until(partitions: int) -> None:
            nonlocal sent
            async with asyncio.timeout(PATIENCE_S):
                while len(seen) < partitions:
                    for key in KEYS:
                        await publisher.send(b"x", key=key)
                        sent += 1
                    await publisher.flush()
                    await asyncio.sleep(0.02)

        await publish_until(2)
        grown = await client.admin.alter_topic("it/growing", partitions=7)
        assert (grown.topic.partitions, len(grown.segments)) == (7, 7)
        assert (await client.admin.alter_topic("it/growing", partitions=7)).topic == grown.topic
        await publish_until(7)
        async with asyncio.timeout(PATIENCE_S):
            while received < sent or grouped < sent:  # noqa: ASYNC110 - two may be behind
                await asyncio.sleep(0.02)
        for reader in readers:
            reader.cancel()
    assert (received, grouped) == (sent, sent)


async def test_more_partitions_than_one_transaction_takes(client: aio.Client) -> None:
    await client.admin.create_topic("it/many", partitions=3)
    grown = await client.admin.alter_topic("it/many", partitions=250)
    assert [(s.slots.lo, s.slots.hi) for s in grown.segments] == [(p, p + 1) for p in range(250)]
    async with await client.publisher("it/many") as publisher:
        receipt = await (await publisher.send(b"x", key=b"foobar"))
    assert receipt.segment == partition_of(b"foobar", 250)
