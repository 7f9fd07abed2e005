"""A topic with --auto-compact on real brokers: many small tables appear, few remain, every record is read once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.codec.paths import KEPT
from seaweedmq.core.files.compaction import AUTO_TABLES_MIN
from seaweedmq.model.topic import TopicName
from seaweedmq.model.topic_settings import AUTO_COMPACT
from seaweedmq.storage.jobs.verifying import verify_topic
from seaweedmq.storage.place import Place
from tests.faults.machines.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TOPIC = "it/small"
PATIENCE_S = 90.0
CONFIG = replace(ClientConfig(), metadata_max_age_s=0.2)


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, float]:
    return {"log_roll_age_s": 0.1, "maintenance_interval_s": 0.2, "log_grace_s": 0.5}


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster: Cluster) -> AsyncIterator[aio.Client]:
    async with aio.connect(cluster.bootstrap, config=CONFIG) as client:
        yield client


def tables(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def kept(folder: Path) -> list[Path]:
    """Retained links of merged tables."""
    return list((folder / KEPT).glob("*.parquet"))


async def follow(client: aio.Client, got: list[int]) -> None:
    """Read until the end of the test; each record is the next number."""
    async with client.subscriber(TOPIC, start="earliest") as subscriber:
        async for message in subscriber:
            assert int(message.value) == len(got)
            got.append(len(got))


async def test_the_number_of_tables_stays_bounded_and_readers_miss_nothing(
    cluster: Cluster, client: aio.Client
) -> None:
    await client.admin.create_topic(TOPIC, configs={AUTO_COMPACT: "true"})
    folder = cluster.directory / "storage" / "topics" / TOPIC / "table"
    early: list[int] = []
    following = asyncio.create_task(follow(client, early))
    most = sent = 0
    async with asyncio.timeout(PATIENCE_S), await client.publisher(TOPIC, linger_s=0.0) as publisher:
        while not (len(kept(folder)) > 3 * AUTO_TABLES_MIN and len(tables(folder)) < AUTO_TABLES_MIN):
            await (await publisher.send(b"%d" % sent))
            sent += 1
            await asyncio.sleep(0.1)
            most = max(most, len(tables(folder)))
    assert most <= 3 * AUTO_TABLES_MIN, f"{most} tables at a time"
    late: list[int] = []
    reading = asyncio.create_task(follow(client, late))
    async with asyncio.timeout(PATIENCE_S):
        while len(early) < sent or len(late) < sent:
            assert not following.done()
            assert not reading.done()
            await asyncio.sleep(0.05)
    for task in (following, reading):
        task.cancel()
    await asyncio.wait((following, reading))
    verified = await asyncio.to_thread(verify_topic, Place(cluster.directory / "storage"), TopicName.parse(TOPIC))
    assert verified.is_sound, verified.differences
    assert verified.records > 0
