"""A cluster for the examples, with its data where `seaweedmq up` would put it, and the Spark of tests/spark."""

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
    """The addresses of a running cluster, as the examples take them."""

    cluster: Cluster
    folder: Path
    """Folder with ``seaweedmq-data``."""

    @property
    def bootstrap(self) -> str:
        return self.cluster.addresses

    @property
    def storage(self) -> str:
        return str(self.folder / "seaweedmq-data" / "storage")

    def hours(self, topic: str) -> pa.Table:
        """Return the contents of a topic of delays by hour, with ``_key``."""
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
