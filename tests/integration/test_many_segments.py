"""Hundreds of segments whose streams share a connection: a failure of the connection affects all, and loses nothing."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from seaweedmq import aio
from seaweedmq.model.ring import WHOLE_RING, even_ranges, slot_of
from tests.faults.machines.cluster import Cluster
from tests.faults.machines.network import Loopback

pytestmark = pytest.mark.integration

TOPICS, SEGMENTS, REPLICAS = 50, 10, 2
ROUNDS = 8
DELIVERY_S = 60.0


def keys() -> Iterator[bytes]:
    """Return one key for each segment of a topic, in the order of their ranges."""
    some = [b"%d" % number for number in range(1_000)]
    for slots in even_ranges(WHOLE_RING, SEGMENTS):
        yield next(key for key in some if slot_of(key) in slots)


async def received(client: aio.Client, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Return keys and values of all records; those of a key in order."""
    async with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        found = [(message.key, message.value) async for message in subscriber]
    return sorted(found, key=lambda record: record[0] or b"")


@pytest.mark.deep
async def test_connections_that_break_with_records_of_500_segments_on_them_lose_and_repeat_none(tmp_path: Path) -> None:
    network, topics = Loopback(), [f"many/{number}" for number in range(TOPICS)]
    await network.start(REPLICAS)
    try:
        async with Cluster(tmp_path, network, brokers=REPLICAS, lease_ttl_s=2.0) as cluster:
            await cluster.until_ready()
            async with aio.connect(cluster.bootstrap) as client:
                await client.admin.create_topics(topics, segments=SEGMENTS, replicas=REPLICAS, scaling="fixed")
                publishers = [await client.publisher(topic, delivery_timeout_s=DELIVERY_S) for topic in topics]
                sent = list(itertools.product(sorted(keys()), (b"%d" % number for number in range(ROUNDS))))
                for number in range(ROUNDS):
                    for key, publisher in itertools.product(keys(), publishers):
                        await publisher.send(b"%d" % number, key=key)
                    assert sum(network.hang_up(broker) for broker in range(REPLICAS)) >= REPLICAS
                for publisher in publishers:
                    await publisher.close()
                assert all([await received(client, topic) == sent for topic in topics])
    finally:
        await network.close()
