"""One cluster with doors for Kafka, for all clients of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.commands import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers. What none of them foresaw is an error in the end, whatever the clients made of it."""
    folder = tmp_path_factory.mktemp("clients")
    with running_cluster(folder / "data", brokers=3, kafka_port=0) as running:
        yield running
    assert "Traceback" not in (folder / "up.log").read_text()
