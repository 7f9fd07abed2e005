"""One cluster for all tests of this folder: `seaweedmq up`, as users start it, with three brokers."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import seaweedmq
from tests.integration.kafka import elsewhere
from tests.integration.kafka.good import PARTITIONS, Good, at_work
from tests.integration.kafka.raw import Brokers
from tests.support.commands import Cluster, running_cluster

BROKERS = 3
SETTINGS = """
partition_roll_age_s = 1.0
log_roll_age_s = 1.0
maintenance_interval_s = 0.5
conversion_delay_s_max = 0.1
kafka_request_read_s = 2.0
"""
"""Settings with which logs become tables soon, and a client that stops within a request is closed soon."""
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Kafka:
    """The cluster, as Kafka clients and others find it."""

    cluster: Cluster
    data: Path

    @property
    def bootstrap(self) -> str:
        return self.cluster.kafka

    @property
    def native(self) -> str:
        return self.cluster.addresses

    def table(self, topic: str) -> Path:
        """Return the folder of a topic's Parquet files."""
        return self.data / "storage" / "topics" / "kafka" / topic / "table"


class Shared:
    """The cluster, from the first test of this folder to the last one in a row: it must not run beside measurements."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._kafka: Kafka | None = None

    def kafka(self, folder: Callable[[], Path]) -> Kafka:
        if self._kafka is None:
            self._kafka = self._stack.enter_context(self._running(folder()))
        return self._kafka

    def close(self) -> None:
        """Stop it, and check that its brokers logged no unexpected error."""
        self._kafka = None
        self._stack.close()

    @staticmethod
    @contextmanager
    def _running(folder: Path) -> Iterator[Kafka]:
        config = folder / "broker.toml"
        config.write_text(SETTINGS)
        with running_cluster(folder / "data", brokers=BROKERS, kafka_port=0, config=config) as cluster:
            yield Kafka(cluster, folder / "data")
            assert cluster.stop() == 0
        log = (folder / "up.log").read_text()
        assert "Traceback" not in log, log


_shared = Shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop the cluster at the end of the folder. A fixture of a package would do, but pytest cannot import a folder of
    this name as one: tests import another package of that name.
    """
    yield
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _shared.close()


def pytest_sessionfinish() -> None:
    """Stop it also if the last test was not reached."""
    _shared.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    return _shared.kafka(lambda: tmp_path_factory.mktemp("kafka"))


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def create(kafka: Kafka) -> Callable[..., str]:
    """Return a function that creates a topic with a new name and Kafka's settings, and returns its name."""

    def create(partitions: int = 1, replicas: int = 1, **settings: str) -> str:
        name = f"topic-{next(_numbers)}"
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(name, partitions, replicas, config=config)])
        made[name].result(TIMEOUT_S)
        return name

    return create


@pytest.fixture
def native(kafka: Kafka) -> Iterator[seaweedmq.Client]:
    with seaweedmq.connect(kafka.native) as client:
        yield client


@pytest.fixture(scope="module")
def brokers(kafka: Kafka) -> Brokers:
    """The brokers, for requests that no client would send."""
    return Brokers(kafka.bootstrap)


@pytest.fixture(scope="module")
def good(kafka: Kafka, create: Callable[..., str]) -> Iterator[Good]:
    """A producer and a group, at work all the time."""
    with at_work(kafka.cluster, create(PARTITIONS)) as good:
        yield good


@pytest.fixture
def nobody_else_is_harmed(good: Good) -> Iterator[None]:
    """The good clients, which must still work afterwards."""
    yield
    good.goes_on()


@pytest.fixture(scope="session")
def others(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Return the folder with the packages of a client of ``elsewhere``, which later runs reuse. Tests with one that
    cannot be installed are skipped."""
    cache = pytestconfig.cache
    assert cache is not None
    missing: dict[str, str] = {}

    def others(client: str) -> Path:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        folder = cache.mkdir(f"kafka-clients-{client.replace(' ', '-')}-{version}")
        if client not in missing:  # pip may take long to report that
            try:
                elsewhere.install(client, folder)
            except elsewhere.NotInstallable as reason:
                missing[client] = str(reason)
        if client in missing:
            pytest.skip(missing[client])
        return folder

    return others
