"""A cluster for the examples, whose data lies where `seaweedmq up` would put it, and the Spark of tests/spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import seaweedmq
from seaweedmq.examples import nyc
from tests.spark.conftest import spark  # noqa: F401 - a fixture
from tests.support.commands import Cluster, running_cluster

SETTINGS = """
# Files become tables while a test runs.
log_roll_age_s = 1.0
maintenance_interval_s = 0.5
"""


@dataclass(frozen=True)
class Beside:
    """A running cluster as examples are told of it."""

    cluster: Cluster
    folder: Path
    """Has ``seaweedmq-data``."""

    @property
    def bootstrap(self) -> str:
        return self.cluster.addresses

    @property
    def storage(self) -> str:
        return str(self.folder / "seaweedmq-data" / "storage")

    def hours(self, topic: str) -> pa.Table:
        """All that is in a topic of delays by hour, with ``_key``."""
        with (
            seaweedmq.connect(self.bootstrap) as client,
            client.subscriber(topic, start="earliest", stop_at="latest") as subscriber,
        ):
            batches = [batch.select([*nyc.DELAYS.names, "_key"]) for batch in subscriber.batches()]
        return pa.Table.from_batches(batches)


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    folder = tmp_path_factory.mktemp("examples")
    settings = folder / "broker.toml"
    settings.write_text(SETTINGS)
    with running_cluster(folder / "seaweedmq-data", config=settings) as cluster:
        yield Beside(cluster, folder)
