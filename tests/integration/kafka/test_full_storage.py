"""Temporarily full storage: producers get errors, readers continue, and no acknowledged record is lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq import aio
from seaweedmq.model.kafka.codes import Code
from tests.faults.episode import stage
from tests.faults.machines.cluster import Cluster
from tests.faults.machines.network import Unsupported
from tests.faults.storage import fill_storage, free_storage
from tests.integration.kafka.beside import PATIENCE_S, aside, until
from tests.integration.kafka.members import Member
from tests.integration.kafka.raw import Brokers
from tests.integration.kafka.streams import Stream, leaving, numbers
from tests.kafka.in_process_client import batch, records_of

pytestmark = pytest.mark.integration

TOPIC, RAW = "filling", "raw"
PARTITIONS = 2
STORAGE_MIB = 48
RETRY_BACKOFF_S = 0.1
"""``retry.backoff.ms`` of Kafka's clients."""
LARGE = batch(bytes(256 << 10))
"""A record that does not fit into the rest of a page that is already allocated."""


@pytest.fixture(params=["mounted", "quota"])
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """One broker, on a small file system, or on one that reports that it is full."""
    quota = request.param == "quota"
    try:
        size_mib = 0 if quota else STORAGE_MIB
        async with stage(tmp_path, brokers=1, own_storage_mib=size_mib, quota=quota, loopback=True) as cluster:
            async with aio.connect(cluster.bootstrap) as client:
                await client.admin.create_topic(f"kafka/{TOPIC}", partitions=PARTITIONS)
                await client.admin.create_topic(f"kafka/{RAW}", partitions=1)
            yield cluster
            assert cluster.tracebacks() == []
    except Unsupported as why:
        pytest.skip(str(why))


async def until_taken(brokers: Brokers, port: int) -> None:
    """Send as clients do, which resend rejected records: each partition notices the free space at its own next attempt
    to write, up to ``files.RETRY_S_MAX`` after the last one."""
    async with asyncio.timeout(PATIENCE_S):
        while (said := await brokers.produce(RAW, 0, LARGE, port=port)).error_code != Code.NONE:
            assert said.error_code == Code.KAFKA_STORAGE_ERROR, said.error_message
            await asyncio.sleep(RETRY_BACKOFF_S)


async def test_a_full_storage_holds_producers_up_and_nobody_else(cluster: Cluster) -> None:
    brokers = Brokers(cluster.kafka)
    [port] = brokers.ports
    stream = Stream(cluster.kafka, TOPIC, PARTITIONS)
    members = [Member("librdkafka", cluster.kafka, "filled", TOPIC)]

    async def all_goes_on() -> None:
        """Check that records sent from now on are acknowledged and read."""
        sent = stream.sent + 20
        await until(lambda: stream.kept > sent and len(numbers(members)) > sent)

    async with aside(leaving(members)):
        async with aside(stream):
            await all_goes_on()
            acknowledged = 0
            await fill_storage(cluster)
            while (said := await brokers.produce(RAW, 0, LARGE, port=port)).error_code == Code.NONE:
                acknowledged += 1
            assert said.error_code == Code.KAFKA_STORAGE_ERROR, "clients resend after this error"
            # Either the write that failed or the watch of the free space is first to name the cause.
            assert "free space on it" in said.error_message
            assert "raise its size" in said.error_message
            found, _ = await brokers.fetch(TOPIC, 0, 0, port=port)
            assert (found.error_code, len(records_of(bytes(found.records))) > 0) == (Code.NONE, True)
            again = await brokers.produce(RAW, 0, LARGE, port=port)
            assert again.error_code == Code.KAFKA_STORAGE_ERROR, again.error_message
            held_up = stream.sent - stream.kept
            await until(lambda: stream.sent - stream.kept > held_up + 100)
            await free_storage(cluster)
            await all_goes_on()
            await until_taken(brokers, port)
            found, _ = await brokers.fetch(RAW, 0, 0, port=port)
            assert found.high_watermark >= acknowledged + 1
        await until(lambda: len(numbers(members)) >= stream.sent)
    assert numbers(members) == list(range(stream.sent)), "no record is lost or twice"
