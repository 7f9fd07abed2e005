"""Real brokers, a real etcd, real files and real signals: every acknowledged record is there, once and in order.

All tests share one cluster and leave it whole. The same faults at random: ``python -m tests.faults``.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.codec.slots import slot_of
from seaweedmq.errors import Corrupt, DataLoss, SeaweedMQError
from tests.faults.machines.cluster import Cluster, Node
from tests.faults.machines.network import Loopback
from tests.support.commands import run

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaConnectionError

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TTL_S = 2.0
CORRUPT_MESSAGE = 2
"""Kafka's error code."""


@contextlib.asynccontextmanager
async def running(directory: Path, brokers: int) -> AsyncIterator[Cluster]:
    network = Loopback()
    await network.start(brokers)
    try:
        async with Cluster(directory, network, brokers=brokers, lease_ttl_s=TTL_S) as cluster:
            yield cluster
    finally:
        await network.close()


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster: Cluster) -> AsyncIterator[aio.Client]:
    await cluster.etcd.start()
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until_ready()
    async with aio.connect(cluster.bootstrap) as client:
        yield client


async def values(client: aio.Client, topic: str, got: list[bytes] | None = None) -> list[bytes]:
    """Read all records into ``got``, which keeps those from before an error."""
    got = [] if got is None else got
    async with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        async for message in subscriber:
            got.append(message.value)
    return got


async def primary(cluster: Cluster, topic: str) -> Node:
    return (await cluster.replicas(topic, 0))[0]


@pytest.mark.deep
async def test_missing_replicas_are_shown_to_every_client_until_the_broker_is_back(
    cluster: Cluster, client: aio.Client
) -> None:
    """Kafka clients consider the number of a broker that is not among the brokers as one that is down."""
    await client.admin.create_topic("kafka/lacking", partitions=2, replicas=3)
    leader = await cluster.leader()
    victim = next(node for node in cluster.nodes if node is not leader)

    async def until_replicas(count: int) -> None:
        async with asyncio.timeout(20):
            while any(  # noqa: ASYNC110 - etcd has no event
                len(s.replicas) != count for s in await cluster.open_segments("kafka/lacking")
            ):
                await asyncio.sleep(0.05)

    async def shown(*command: str) -> Any:
        done = await asyncio.to_thread(run, *command, "--bootstrap", cluster.bootstrap, "--output", "json")
        return json.loads(done.text)

    def seen() -> list[list[tuple[list[int], list[int]]]]:
        """Return replicas, and those in sync, of every partition as three clients see them."""
        admin = AdminClient({"bootstrap.servers": cluster.kafka, "socket.timeout.ms": 10_000})
        listed = admin.list_topics("lacking", timeout=10).topics["lacking"].partitions.values()
        described = admin.describe_topics(TopicCollection(["lacking"]))["lacking"].result(10).partitions
        python = KafkaAdminClient(bootstrap_servers=cluster.kafka)
        try:
            (found,) = python.describe_topics(["lacking"])
        finally:
            python.close()
        return [
            [(sorted(p.replicas), sorted(p.isrs)) for p in listed],
            [(sorted(n.id for n in p.replicas), sorted(n.id for n in p.isr)) for p in described],
            [(sorted(p["replica_nodes"]), sorted(p["isr_nodes"])) for p in found["partitions"]],
        ]

    async def until_seen(count: int) -> list[list[int]]:
        """Return the replicas that all clients show once they agree that so many of them are in sync.

        Each client queries another broker, and brokers learn of a change one after another. A segment also continues
        without a broker before its lease ends: until then kafka-python may choose it, and queries it only once.
        """
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((KafkaConnectionError, AssertionError)),
            wait=wait_random(0.05, 0.2),
            stop=stop_after_delay(5 * TTL_S),
            reraise=True,
        ):
            with attempt:
                views = await asyncio.to_thread(seen)
                assert views[0] == views[1] == views[2]
                assert all(len(in_sync) == count and set(in_sync) <= set(all_of) for all_of, in_sync in views[0])
        return [all_of for all_of, _ in views[0]]

    whole = await until_seen(3)
    assert all(len(replicas) == 3 for replicas in whole)
    await cluster.kill(victim)
    await until_replicas(2)
    described = await shown("topic", "describe", "kafka/lacking")
    assert described["status"] == "under-replicated: 2 of 2 segments with 2 of 3 replicas"
    assert (await shown("cluster", "status"))["under_replicated_segments"] >= 2
    assert await until_seen(2) == whole
    await cluster.start(victim)
    await until_replicas(3)
    assert await until_seen(3) == whole
    assert (await shown("topic", "describe", "kafka/lacking"))["status"] == "ok"
    await client.admin.delete_topic("kafka/lacking")


async def test_everything_restarted_at_once_serves_what_was_stored(cluster: Cluster, client: aio.Client) -> None:
    await client.admin.create_topic("it/all", segments=3)
    async with client.publisher("it/all") as publisher:
        for n in range(3_000):
            await publisher.send(b"%d" % n, key=b"%d" % (n % 50))
    for node in cluster.nodes:
        await cluster.kill(node)
    await cluster.etcd.kill()
    await cluster.etcd.start()
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until_ready()
    assert sorted(map(int, await values(client, "it/all"))) == list(range(3_000))


# --- files ------------------------------------------------------------------------------------------------------------


async def file_of(cluster: Cluster, topic: str, pattern: str) -> Path:
    """Return the first such file of a topic, once there is one."""
    async with asyncio.timeout(20):
        while True:
            found = sorted((cluster.storage / "topics" / topic).glob(pattern))
            if found:
                return found[0]
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", ["log", "table"])
async def test_a_damaged_file_is_named_and_never_served(cluster: Cluster, client: aio.Client, kind: str) -> None:
    topic = f"it/damaged-{kind}"
    await client.admin.create_topic(topic)
    async with client.publisher(topic, batch_bytes=10_000) as publisher:
        for n in range(1_000):
            await publisher.send(b"%d" % n + b"." * 100)
    if kind == "table":
        file = await file_of(cluster, topic, "table/*.parquet")
        shutil.rmtree(cluster.storage / "topics" / topic / "log")
    else:
        file = await file_of(cluster, topic, "log/*/*.log")
    await cluster.kill(await primary(cluster, topic))  # the contents of its memory are lost
    async with asyncio.timeout(20):
        while [s.id for s in await cluster.open_segments(topic)] in ([], [0]):  # noqa: ASYNC110 - etcd has no event
            await asyncio.sleep(0.1)
    for table in () if kind == "table" else (cluster.storage / "topics" / topic).glob("table/*.parquet"):
        table.unlink()
    with file.open("r+b") as damaged:
        damaged.seek(file.stat().st_size // 2)
        byte = damaged.read(1)
        damaged.seek(-1, os.SEEK_CUR)
        damaged.write(bytes([byte[0] ^ 0x10]))
    got: list[bytes] = []
    with pytest.raises(Corrupt, match=file.name):
        await values(client, topic, got)
    assert got == [b"%d" % n + b"." * 100 for n in range(len(got))]
    assert len(got) < 1_000


async def test_an_unrecoverable_segment_is_named_to_every_client_until_its_file_is_restored(
    cluster: Cluster, client: aio.Client
) -> None:
    topic = "it/unrecoverable"
    await client.admin.create_topic(topic, segments=2)
    lower, upper = (next(k for k in (b"%d" % n for n in range(99)) if slot_of(k) // 32_768 == part) for part in (0, 1))
    async with client.publisher(topic) as publisher:
        for n in range(20):
            await (await publisher.send(b"%d" % n, key=lower))
        segment = next(s for s in await cluster.open_segments(topic) if s.id == 0)
        victim = (await cluster.members())[segment.primary]
        (log,) = (cluster.storage / "topics" / topic).glob("log/00000000/*.log")
        await cluster.kill(victim)
        sound = log.read_bytes()
        log.write_bytes(sound[:300] + bytes([sound[300] ^ 1]) + sound[301:])
        async with asyncio.timeout(20):
            while not (await client.admin.describe_topic(topic)).segments[0].problem:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with pytest.raises(Corrupt, match=log.name):
            await (await publisher.send(b"lost", key=lower))
        with pytest.raises(Corrupt, match=log.name):
            await values(client, topic)
        await (await publisher.send(b"other", key=upper))
        shown = await asyncio.to_thread(run, "topic", "describe", topic, "--bootstrap", cluster.bootstrap)
        assert log.name in shown.text
        with pytest.raises(Corrupt, match=log.name):
            await client.admin.seal_segment(topic, 0)
        log.write_bytes(sound)
        await client.admin.seal_segment(topic, 0)
        await (await publisher.send(b"20", key=lower))
    assert sorted(await values(client, topic)) == sorted([b"other", *(b"%d" % n for n in range(21))])
    await client.admin.delete_topic(topic)


async def test_lost_records_are_an_error_with_their_offsets_to_every_client_or_are_skipped(
    cluster: Cluster, client: aio.Client
) -> None:
    topic = "kafka/lost"
    await client.admin.create_topic(topic, partitions=1)
    async with client.publisher(topic) as publisher:
        for n in range(3):
            await (await publisher.send(b"%d" % n))
        await client.admin.seal_segment(topic, 0)
        await (await publisher.send(b"3"))
    table = await file_of(cluster, topic, "table/00000000-*.parquet")
    shutil.rmtree(cluster.storage / "topics" / topic / "log" / "00000000")
    table.unlink()
    error = f"{topic}#0: records of offsets [0, 3) are missing: no file holds them"
    with pytest.raises(DataLoss, match=re.escape(error)):
        await values(client, topic)
    command = ("subscribe", topic, "--format", "raw", "--bootstrap", cluster.bootstrap)
    failed = await asyncio.to_thread(run, *command)
    assert (failed.status != 0, failed.stdout) == (True, b"")
    assert error in failed.stderr
    skipping = await asyncio.to_thread(run, *command, "--on-missing", "skip")
    assert (skipping.status, skipping.text.split()) == (0, ["3"])

    def consumed() -> list[bytes | int]:
        """Return the error and the record of a consumer that seeks past the gap."""
        consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "lost", "check.crcs": True})
        try:
            consumer.assign([TopicPartition("lost", 0, 0)])
            first = consumer.poll(20)
            assert first is not None
            failure = first.error()
            assert failure is not None
            consumer.seek(TopicPartition("lost", 0, 3))
            while (message := consumer.poll(20)) is not None and message.error() is not None:
                pass
            assert message is not None
            return [failure.code(), message.value() or b""]
        finally:
            consumer.close()

    assert await asyncio.to_thread(consumed) == [CORRUPT_MESSAGE, b"3"]
    await client.admin.delete_topic(topic)


# --- the storage itself -----------------------------------------------------------------------------------------------


async def test_a_storage_folder_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    config = ClientConfig(admin_timeout_s=3.0)
    async with running(tmp_path, 1) as alone, aio.connect(alone.bootstrap, config=config) as client:
        await client.admin.create_topic("it/gone")
        async with client.publisher("it/gone") as publisher:
            await (await publisher.send(b"0"))
        away = tmp_path / "away"
        alone.storage.rename(away)
        with pytest.raises(SeaweedMQError, match=str(alone.storage)):
            await client.admin.create_topic("it/other")
        assert not alone.storage.exists(), "an unmounted disk must not be written to"
        away.rename(alone.storage)
        await client.admin.create_topic("it/other")
        async with client.publisher("it/gone") as publisher:
            await (await publisher.send(b"1"))
        assert await values(client, "it/gone") == [b"0", b"1"]
        assert alone.nodes[0].pid is not None
