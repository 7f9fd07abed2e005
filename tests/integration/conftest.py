"""Real brokers that all tests of a module share."""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from tests.faults.episode import stage
from tests.faults.machines.cluster import Cluster


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, float]:
    """Settings of ``BrokerConfig``; a module that needs some has a fixture of this name."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    tmp_path_factory: pytest.TempPathFactory, broker_settings: Mapping[str, float]
) -> AsyncIterator[Cluster]:
    """Three brokers with a real etcd, which every test leaves in order."""
    async with stage(tmp_path_factory.mktemp("cluster"), loopback=True, settings=broker_settings) as running:
        yield running
