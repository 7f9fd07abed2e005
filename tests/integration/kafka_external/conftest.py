"""One cluster with Kafka listeners, for all clients of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.commands import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers. Unexpected errors in their logs fail the tests at the end, regardless of the clients' outcome."""
    folder = tmp_path_factory.mktemp("clients")
    with running_cluster(folder / "data", brokers=3, kafka_port=0) as running:
        yield running
    assert "Traceback" not in (folder / "up.log").read_text()
