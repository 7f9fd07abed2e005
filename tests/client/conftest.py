"""Fixtures for a client of an in-memory cluster, with seeded randomness and short virtual times."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from seaweedmq import aio
from seaweedmq.client.client import Client
from seaweedmq.client.config import ClientConfig
from seaweedmq.ports import Environment, loop_s
from tests.client.fake_broker import FakeCluster
from tests.sim.machines.loop import SimLoop

NOW_US = 1_700_000_000_000_000
QUICK = ClientConfig(backoff_s_min=0.001, backoff_s_max=0.01, connect_timeout_s=0.3, admin_timeout_s=0.5)


def environment(seed: int = 1, boot_s: Callable[[], float] = loop_s) -> Environment:
    return Environment(wall_us=lambda: NOW_US, rng=random.Random(seed), boot_s=boot_s)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests in virtual time, so that waits cost nothing."""
    return {"virtual": SimLoop}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(brokers=3)


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with aio.connect("fake:9000,fake:9001", dialer=cluster.dialer(), env=environment(), config=QUICK) as client:
        yield client
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    assert not loop.failures()
