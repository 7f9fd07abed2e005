"""A topic with --auto-compact on real brokers: many small tables appear, few remain, every record is read once."""

import asyncio
from collections.abc import Mapping

import pytest

from seaweedmq import aio
from seaweedmq.codec.paths import KEPT
from seaweedmq.core.files.compaction import AUTO_TABLES_MIN
from seaweedmq.model.topic import TopicName
from seaweedmq.model.topic_settings import AUTO_COMPACT
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.verifying import verify_topic
from tests.faults.machines.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TOPIC = "it/small"
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, float]:
    return {"log_roll_age_s": 0.1, "maintenance_interval_s": 0.2, "log_grace_s": 0.5}


async def follow(client: aio.Client, got: list[int], count: int | None = None) -> None:
    """Read this many records, or until cancelled; each is the next number."""
    async with client.subscriber(TOPIC, start="earliest", limit=count) as subscriber:
        async for message in subscriber:
            assert int(message.value) == len(got)
            got.append(len(got))


@pytest.mark.deep
async def test_the_number_of_tables_stays_bounded_and_readers_miss_nothing(cluster: Cluster) -> None:
    storage = cluster.directory / "storage"
    folder = storage / "topics" / TOPIC / "table"
    early: list[int] = []
    most = sent = 0
    async with asyncio.timeout(2 * PATIENCE_S), aio.connect(cluster.bootstrap) as client:
        await client.admin.create_topic(TOPIC, configs={AUTO_COMPACT: "true"})
        following = asyncio.create_task(follow(client, early))
        async with await client.publisher(TOPIC, linger_s=0.0) as publisher:
            tables = 0
            while tables >= AUTO_TABLES_MIN or len(list((folder / KEPT).glob("*.parquet"))) <= 3 * AUTO_TABLES_MIN:
                await (await publisher.send(b"%d" % sent))
                sent += 1
                await asyncio.sleep(0.1)
                tables = len(list(folder.glob("*.parquet")))
                most = max(most, tables)
        assert most <= 3 * AUTO_TABLES_MIN, f"{most} tables at a time"
        await follow(client, [], sent)
        while len(early) < sent:
            assert not following.done()
            await asyncio.sleep(0.05)
        following.cancel()
        await asyncio.wait({following})
    verified = await asyncio.to_thread(verify_topic, DirectoryPlace(storage), TopicName.parse(TOPIC))
    assert verified.is_sound, verified.differences
    assert verified.records > 0
