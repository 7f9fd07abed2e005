"""A cluster for the commands to talk to."""

from collections.abc import Iterator

import pytest

from tests.support.commands import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, shared by the tests of a module."""
    with running_cluster(tmp_path_factory.mktemp("cluster") / "data", brokers=3) as made:
        yield made
