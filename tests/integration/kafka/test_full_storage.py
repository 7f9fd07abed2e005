"""Temporarily full storage: producers get errors, readers continue, and no acknowledged record is lost."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq import aio
from seaweedmq.broker.upkeep.storage_space import TOTAL_PART
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.kafka.codes import Code
from tests.faults.episode import stage
from tests.faults.machines.cluster import Cluster
from tests.faults.machines.network import Unsupported
from tests.faults.storage import fill_storage, filler, free_storage
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
SMALL = batch(b"small")
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
            assert "No space left on device; free space on it or raise its size" in said.error_message
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


@pytest.mark.parametrize("cluster", ["mounted"], indirect=True)
async def test_records_are_rejected_before_the_storage_is_full(cluster: Cluster) -> None:
    brokers = Brokers(cluster.kafka)
    [port] = brokers.ports
    assert (await brokers.produce(RAW, 0, LARGE, port=port)).error_code == Code.NONE
    left_bytes = (STORAGE_MIB << 20) // TOTAL_PART // 2
    with filler(cluster).open("wb", buffering=0) as file:
        status = os.statvfs(cluster.storage)
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - left_bytes)
    async with asyncio.timeout(PATIENCE_S):
        while (said := await brokers.produce(RAW, 0, SMALL, port=port)).error_code == Code.NONE:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_BACKOFF_S)
    assert said.error_code == Code.KAFKA_STORAGE_ERROR
    assert "storage_free_bytes_min" in said.error_message
    status = os.statvfs(cluster.storage)
    assert status.f_bavail * status.f_frsize > left_bytes // 2, "it is not full"
    async with aio.connect(cluster.bootstrap) as client:
        publisher = await client.publisher(f"kafka/{RAW}", delivery_timeout_s=2.0)
        with pytest.raises(SeaweedMQError, match=r"storage_free_bytes_min.*free space on it"):
            await (await publisher.send(b"native", key=b"key"))
        found, _ = await brokers.fetch(RAW, 0, 0, port=port)
        assert (found.error_code, len(records_of(bytes(found.records))) > 0) == (Code.NONE, True)
        async with client.subscriber(f"kafka/{RAW}", start="earliest") as subscriber:
            await anext(aiter(subscriber))
        await client.admin.delete_topic(f"kafka/{TOPIC}")
        await free_storage(cluster)
        await until_taken(brokers, port)
        async with client.publisher(f"kafka/{RAW}") as publisher:
            await (await publisher.send(b"native", key=b"key"))
