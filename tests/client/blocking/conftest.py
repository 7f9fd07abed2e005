"""A client of the synchronous API, on a cluster of two."""

import time
from collections.abc import Iterator

import pytest

import seaweedmq
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(brokers=2)


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[seaweedmq.Client]:
    with seaweedmq.connect(
        "fake:9000", dialer=cluster.dialer(), env=environment(boot_s=time.monotonic), config=QUICK
    ) as client:
        yield client
