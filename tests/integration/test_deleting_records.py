"""Manual deletion of records, on real brokers with a real etcd."""

import asyncio

import pytest

from seaweedmq import aio
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.snapshot import read_snapshot
from tests.faults.machines.cluster import Cluster
from tests.support.kafka_wire import partition_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TOPIC = "it/purged"
KEYS = {partition_of(key, 3): key for key in (b"key-%d" % number for number in range(20))}
PATIENCE_S = 60.0


async def publish(client: aio.Client, count: int) -> None:
    async with await client.publisher(TOPIC) as publisher:
        for _ in range(count):
            for key in KEYS.values():
                await publisher.send(b"x", key=key)


async def read(client: aio.Client) -> dict[int, list[int]]:
    """Return the offsets that a subscriber gets, by partition."""
    offsets: dict[int, list[int]] = {partition: [] for partition in KEYS}
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        async for message in subscriber:
            assert message.partition is not None
            offsets[message.partition].append(message.offset)
    return offsets


def begins(cluster: Cluster) -> dict[int, int]:
    """Return the lowest offset of each partition, as a reader of the files finds it."""
    found = read_snapshot(DirectoryPlace(cluster.directory / "storage"), TopicName.parse(TOPIC))
    pieces = [(segment.slots.lo, piece) for segment in found.segments for piece in found.plan(segment.id)]
    return {number: min(piece.start_offset for n, piece in pieces if n == number) for number, _ in pieces}


async def test_what_was_deleted_stays_deleted_wherever_its_partition_is(cluster: Cluster) -> None:
    async with aio.connect(cluster.bootstrap) as client:
        made = await client.admin.create_topic(TOPIC, partitions=len(KEYS), replicas=2)
        await publish(client, 50)
        assert await client.admin.delete_records(TOPIC, {0: 25, 2: 50}) == {0: 25, 2: 50}
        assert await read(client) == {0: list(range(25, 50)), 1: list(range(50)), 2: []}
        for segment in made.segments:
            others = [broker for broker in made.addresses if broker not in segment.replicas]
            await client.admin.move_segment(TOPIC, segment.id, [others[0], segment.replicas[0]])
        await publish(client, 10)
        assert await client.admin.delete_records(TOPIC, {0: 3}) == {0: 25}
        assert await read(client) == {0: list(range(25, 60)), 1: list(range(60)), 2: list(range(50, 60))}
    async with asyncio.timeout(PATIENCE_S):
        while begins(cluster) != {0: 25, 1: 0, 2: 50}:  # noqa: ASYNC110 - documents are written soon, without an event
            await asyncio.sleep(0.2)
