"""Real processes that are stopped at bad moments: no dead broker stays registered, and nothing waits for one."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from seaweedmq import aio
from seaweedmq.codec.state import keys
from tests.faults.episode import stage
from tests.faults.machines.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TTL_S = 1.0
HEALED_S = 30.0
TOPIC = "shop/orders"
DELAYS_MS = [0, 3, 6, 10, 15, 20, 30, 60]
"""Milliseconds from SIGCONT to SIGTERM. Learning that the lease has ended, and registering under a new one, take a few
of them."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with stage(tmp_path_factory.mktemp("cluster"), lease_ttl_s=TTL_S, loopback=True) as cluster:
        async with aio.connect(cluster.bootstrap) as client:
            await client.admin.create_topic(TOPIC, segments=6)
        yield cluster


async def problems(cluster: Cluster) -> list[str]:
    """Return registrations without a live broker, and open segments without a live replica."""
    entries = [e for prefix in (keys.BROKERS, keys.ADDRESSES) for e in (await cluster.meta.list(prefix)).entries]
    found = [f"{entry.key} has no lease" for entry in entries if not entry.lease]
    members = await cluster.members()
    segments = await cluster.open_segments(TOPIC)
    found += [f"{s} waits for {s.replicas}" for s in segments if not set(s.replicas) <= set(members)]
    return found if segments else [*found, "no segment is open"]


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
async def test_a_broker_that_was_frozen_beyond_its_lease_gets_sigterm_when_it_wakes_up(
    cluster: Cluster, delay_ms: int
) -> None:
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until_ready()
    victim = (await cluster.replicas(TOPIC, 0))[0]
    cluster.signal(victim, signal.SIGSTOP)
    await asyncio.sleep(2.5 * TTL_S)
    cluster.signal(victim, signal.SIGCONT)
    await asyncio.sleep(delay_ms / 1e3)
    assert await cluster.terminate(victim) == 0
    await asyncio.sleep(2 * TTL_S)  # everything under a lease without renewals is gone by then

    deadline = time.monotonic() + HEALED_S
    while (found := await problems(cluster)) and time.monotonic() < deadline:  # noqa: ASYNC110 - processes of others
        await asyncio.sleep(0.2)

    assert found == []
    async with aio.connect(cluster.bootstrap) as client, client.publisher(TOPIC) as publisher:
        await asyncio.gather(*[await publisher.send(b"x", key=b"%d" % n) for n in range(60)])
