"""The maximum number of connections of a broker: their cost, effect on others, rejections, and released memory."""

import resource
import threading
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, Producer

from seaweedmq.model.config import BrokerConfig
from seaweedmq.runtime.process.open_files import PART
from tests.integration.kafka.idle import idle
from tests.integration.kafka.members import until
from tests.integration.kafka.records import TIMEOUT_S
from tests.integration.kafka.streams import Stream
from tests.support.commands import running_cluster

pytestmark = pytest.mark.integration

IDLE_BYTES_MAX = 12 << 10
"""Memory of the broker in bytes per connection; some 6,500 were measured."""
LEFT_BYTES_MAX = 16 << 20
"""Bytes by which the broker may have grown after the same load once more."""
OTHERS = 8
"""Connections of the good producer, and files that come and go, at most."""
DEADLINE_MS = 10_000


def connections_max() -> int:
    """Return the configured maximum, or a quarter of the files that a broker may open here if that is less."""
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = BrokerConfig().kafka_connections_max
    return wanted if files_max == resource.RLIM_INFINITY else min(wanted, files_max // PART)


@pytest.mark.deep
def test_as_many_idle_connections_as_may_be_are_nobodys_business(tmp_path: Path) -> None:
    count = connections_max()
    assert count >= 500, "raise the hard limit of open files"
    with running_cluster(tmp_path / "data", kafka_port=0) as cluster:
        cluster.ok("topic", "create", "kafka/good", "--partitions", "1")
        broker, port = psutil.Process(cluster.pids[0]), int(cluster.kafka.rpartition(":")[2])
        with Stream(cluster.kafka, "good", 1, delivery_timeout_ms=DEADLINE_MS) as stream:

            def goes_on() -> None:
                sent = stream.sent + 5
                until(lambda: stream.kept > sent, "the good producer continues")

            goes_on()
            files, before = broker.num_fds(), broker.memory_info().rss
            peaks = []
            for _ in range(2):
                with idle(port, count):  # a few more than the maximum, since the good producer has its own
                    until(lambda: broker.num_fds() > files + count - OTHERS, "they are connected")
                    goes_on()
                    peaks.append(broker.memory_info().rss)
                    late = late_comer(cluster.kafka)
                until(lambda: broker.num_fds() < files + OTHERS, "their files are closed")
                assert late.flush(TIMEOUT_S) == 0, "the late producer is accepted then"
                goes_on()
        assert (peaks[0] - before) / count < IDLE_BYTES_MAX
        assert peaks[1] - peaks[0] < LEFT_BYTES_MAX, "the memory of the first was released"
        assert cluster.stop() == 0
    log = (tmp_path / "up.log").read_text()
    assert "Kafka connections rejected: first from 127.0.0.1" in log
    assert "Traceback" not in log


def late_comer(bootstrap: str) -> Producer:
    """Return a producer with a record to send whose connection was rejected."""
    told = threading.Event()

    def hear(error: KafkaError) -> None:
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):  # noqa: SLF001 - their names
            told.set()

    producer = Producer({"bootstrap.servers": bootstrap, "error_cb": hear, "log_level": 0})
    producer.produce("good", b"late")

    def is_told() -> bool:
        producer.poll(0)
        return told.is_set()

    until(is_told, "the late producer gets an error")
    return producer
