"""Manual deletion of records, on real brokers with a real etcd."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from seaweedmq import aio
from seaweedmq.errors import OutOfRange
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import read_snapshot
from tests.faults.machines.cluster import Cluster
from tests.support.kafka_wire import partition_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

KEYS = [b"key-%d" % number for number in range(60)]
PARTITIONS = 3
PATIENCE_S = 60.0


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster: Cluster) -> AsyncIterator[aio.Client]:
    async with aio.connect(cluster.bootstrap) as client:
        yield client


async def read(client: aio.Client, topic: str) -> dict[int, list[int]]:
    """Return the offsets that a subscriber gets, by partition."""
    offsets: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    async with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        async for message in subscriber:
            assert message.partition is not None
            offsets[message.partition].append(message.offset)
    return offsets


async def test_what_was_deleted_stays_deleted_wherever_its_partition_is(cluster: Cluster, client: aio.Client) -> None:
    admin, topic = client.admin, "it/purged"
    made = await admin.create_topic(topic, partitions=PARTITIONS, replicas=2)
    async with await client.publisher(topic) as publisher:
        for _ in range(10):
            for key in KEYS:
                await publisher.send(b"x", key=key)
    counts = Counter(partition_of(key, PARTITIONS) for key in KEYS)
    ends = {partition: 10 * counts[partition] for partition in range(PARTITIONS)}
    assert await admin.delete_records(topic, {0: 25, 2: ends[2]}) == {0: 25, 2: ends[2]}
    with pytest.raises(OutOfRange, match="only committed records can be deleted"):
        await admin.delete_records(topic, {1: ends[1] + 1})
    left = {0: list(range(25, ends[0])), 1: list(range(ends[1])), 2: []}
    assert await read(client, topic) == left

    for segment in made.segments:
        others = [broker for broker in made.addresses if broker not in segment.replicas]
        await admin.move_segment(topic, segment.id, [others[0], segment.replicas[0]])
    assert await read(client, topic) == left
    async with await client.publisher(topic) as publisher:
        for key in KEYS:
            await publisher.send(b"y", key=key)
    left = {
        partition: [*offsets, *range(ends[partition], 11 * counts[partition])] for partition, offsets in left.items()
    }
    assert await read(client, topic) == left
    assert await admin.delete_records(topic, {0: 3}) == {0: 25}

    def snapshot() -> dict[int, int]:
        """Return the lowest offset of each partition, as a reader of the files finds it."""
        found = read_snapshot(Place(cluster.directory / "storage"), TopicName.parse(topic))
        begins: dict[int, int] = {}
        for segment in found.segments:
            for piece in found.plan(segment.id):
                partition = segment.slots.lo
                begins[partition] = min(piece.start_offset, begins.get(partition, piece.start_offset))
        return begins

    async with asyncio.timeout(PATIENCE_S):
        while snapshot() != {0: 25, 1: 0, 2: ends[2]}:  # noqa: ASYNC110 - documents are written soon, without an event
            await asyncio.sleep(0.2)
