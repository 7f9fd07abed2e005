"""Brokers and etcd die and come back while an idempotent producer and a group work: no record is lost or twice.

The same for longer and at random: ``python -m tests.faults``.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq import aio
from tests.faults.episode import stage
from tests.faults.machines.cluster import Cluster
from tests.integration.kafka import confluent_client
from tests.integration.kafka.beside import aside, until
from tests.integration.kafka.members import Member, shared
from tests.integration.kafka.streams import Stream, leaving, numbers

pytestmark = pytest.mark.integration

TOPIC = "troubled"
PARTITIONS = 6
TTL_S = 2.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with stage(tmp_path, lease_ttl_s=TTL_S, loopback=True) as cluster:
        async with aio.connect(cluster.bootstrap) as client:
            await client.admin.create_topic(f"kafka/{TOPIC}", partitions=PARTITIONS, replicas=2)
        yield cluster
        assert cluster.tracebacks() == []


@pytest.mark.deep
async def test_a_producer_and_a_group_outlive_every_broker_and_etcd(cluster: Cluster) -> None:
    bootstrap = cluster.kafka
    stream = Stream(bootstrap, TOPIC, PARTITIONS)
    members = [Member("librdkafka", bootstrap, "troubled", TOPIC, session_timeout_ms=20_000) for _ in range(2)]

    async def all_goes_on() -> None:
        """Check that records sent from now on are acknowledged and read."""
        sent = stream.sent + 100
        await until(lambda: stream.kept > sent and len(numbers(members)) > sent)

    async with aside(leaving(members)):
        await until(lambda: shared(members, PARTITIONS))
        rebalances = [len(member.history) for member in members]
        async with aside(stream):
            await all_goes_on()
            # First, as long as every segment has its followers: without etcd a missing one is not replaced.
            async with cluster.etcd_turn:
                await cluster.etcd.kill()
                await asyncio.sleep(1.5 * TTL_S)
                await all_goes_on()
                await cluster.etcd.start()
            await cluster.until_ready()
            await all_goes_on()
            victim = (await cluster.replicas(f"kafka/{TOPIC}", 0))[0]
            await cluster.kill(victim)
            await all_goes_on()
            await cluster.start(victim)
            await cluster.until_ready()
            for node in (node for node in cluster.nodes if node is not victim):
                assert await cluster.terminate(node) == 0
                await all_goes_on()
                await cluster.start(node)
                await cluster.until_ready()
            await all_goes_on()
        await until(lambda: len(numbers(members)) >= stream.sent)
        assert [len(member.history) for member in members] == rebalances, "the group does not notice"
    assert numbers(members) == list(range(stream.sent))
    kept: dict[int, list[int]] = defaultdict(list)
    for record in await asyncio.to_thread(confluent_client.read, bootstrap, TOPIC, stream.sent, PARTITIONS):
        kept[record.partition].append(int(record.value or b""))
    assert kept == {number: list(range(number, stream.sent, PARTITIONS)) for number in range(PARTITIONS)}
