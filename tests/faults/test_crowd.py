"""More publishers on one segment than it keeps idle ones in mind, and its primary is killed."""

import asyncio
from pathlib import Path

import pytest

from seaweedmq import aio
from tests.faults.cluster import Cluster
from tests.faults.episode import stage
from tests.faults.workload import CLIENT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "faults/crowd"
PUBLISHERS = 1_200
ROUNDS = 5
KILLED_IN_ROUND = 2


async def _values(client: aio.Client) -> list[bytes]:
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        return [message.value async for message in subscriber]


async def _kill_the_primary(cluster: Cluster) -> None:
    (primary,) = await cluster.replicas(TOPIC, 0)
    await cluster.kill(primary)


async def test_twelve_hundred_publishers_of_one_segment_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as cluster, await aio.connect(cluster.bootstrap, config=CLIENT) as client:
        await client.admin.create_topic(TOPIC, replicas=2)
        publishers = [await client.publisher(TOPIC).__aenter__() for _ in range(PUBLISHERS)]
        sent: list[bytes] = []
        for turn in range(ROUNDS):
            values = [b"publisher %d turn %d" % (number, turn) for number in range(PUBLISHERS)]
            receipts = [
                await publisher.send(value, key=b"%d" % number)
                for number, (publisher, value) in enumerate(zip(publishers, values, strict=True))
            ]
            if turn == KILLED_IN_ROUND:
                await _kill_the_primary(cluster)
            await asyncio.gather(*map(asyncio.wrap_future, receipts))
            sent += values
        for publisher in publishers:
            await publisher.close()
        assert sorted(await _values(client)) == sorted(sent)
