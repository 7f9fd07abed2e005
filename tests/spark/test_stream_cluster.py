"""A stream over a real cluster that splits, merges and loses a broker; and one with executors of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import seaweedmq
from tests.support.commands import Cluster, running_cluster
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration

TOPIC = "shop/orders"
KEYS = 40
WAIT_S = 100
ROOT = Path(__file__).parents[2]


class Copied:
    """A sink that collects the batches of a query."""

    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[bytes, int]]] = {}
        self._news = threading.Condition()

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = [(bytes(row.key), int(row.value)) for row in frame.select("key", "value").collect()]
        with self._news:
            self._batches[batch] = rows
            self._news.notify_all()

    def wait_for(self, count: int, query: StreamingQuery) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.count >= count or not query.isActive, WAIT_S), self.count
        assert query.isActive, query.exception()

    @property
    def count(self) -> int:
        return sum(map(len, self._batches.values()))

    def by_key(self) -> dict[bytes, list[int]]:
        numbers = defaultdict(list)
        for batch in sorted(self._batches):
            for key, number in self._batches[batch]:
                numbers[key].append(number)
        return numbers


class Traffic:
    """Publish numbered records of each key."""

    def __init__(self, publisher: "seaweedmq.Publisher") -> None:
        self._publisher = publisher
        self.sent = 0

    def publish(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._publisher.send(b"%d" % (number // KEYS), key=b"k%d" % (number % KEYS))
        self.sent += count


def kill_a_primary(cluster: Cluster, client: "seaweedmq.Client") -> None:
    """Kill the broker that serves the first open segment."""
    description = client.admin.describe_topic(TOPIC)
    segment = next(s for s in description.segments if s.is_open)
    os.kill(cluster.pid_at(description.addresses[segment.primary]), signal.SIGKILL)


@pytest.mark.deep
def test_a_copy_is_whole_and_in_order_while_the_topic_splits_merges_and_loses_a_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        running_cluster(tmp_path / "data", brokers=3) as cluster,
        seaweedmq.connect(cluster.addresses) as client,
    ):
        client.admin.create_topic(TOPIC, segments=2, replicas=2, scaling="fixed")
        copied = Copied()

        def start() -> StreamingQuery:
            reader = spark.readStream.format("seaweedmq").option("storage", str(tmp_path / "data" / "storage"))
            frame = reader.options(topic=TOPIC, bootstrap=cluster.addresses, startingOffsets="earliest").load()
            writer = frame.writeStream.foreachBatch(copied.take)
            return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

        def split() -> None:
            client.admin.split_segment(TOPIC, 0, at=10_000)

        def merge() -> None:
            lowest = sorted(
                (s for s in client.admin.describe_topic(TOPIC).segments if s.is_open), key=lambda s: s.slots
            )
            client.admin.merge_segments(TOPIC, lowest[0].id, lowest[1].id)

        with client.publisher(TOPIC) as publisher:
            traffic = Traffic(publisher)
            for happens in (split, merge, lambda: kill_a_primary(cluster, client)):
                query = start()
                try:
                    traffic.publish(2_000)
                    happens()
                    traffic.publish(2_000)
                    publisher.flush(timeout=WAIT_S)
                    copied.wait_for(traffic.sent, query)
                finally:
                    query.stop()
        assert copied.by_key() == {b"k%d" % key: list(range(traffic.sent // KEYS)) for key in range(KEYS)}
        newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        last = json.loads(newest.read_text().splitlines()[-1])
        assert min(map(int, last["segments"])) > 1


EXECUTORS = """
import sys
import seaweedmq.spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
for name, value in {settings!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
seaweedmq.spark.register(spark)
frame = spark.readStream.format("seaweedmq").options(storage={storage!r}, topic="shop/orders")
frame = frame.option("startingOffsets", "earliest").option("minPartitions", "2").load()
query = frame.groupBy("segment").count().writeStream.outputMode("complete").format("memory").queryName("copied")
query = query.option("checkpointLocation", {checkpoint!r}).trigger(availableNow=True).start()
query.awaitTermination()
print("copied", sorted(tuple(row) for row in spark.table("copied").collect()))
spark.stop()
"""


@pytest.mark.deep
def test_executors_find_the_storage_and_need_nothing_else(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path / "storage")
    orders.table(0, 400)
    orders.split(0, 400)
    orders.table(400, 500, segment=1)
    script = EXECUTORS.format(
        storage=str(orders.root),
        checkpoint=str(tmp_path / "checkpoint"),
        settings={
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(tmp_path / "local"),
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.pyspark.python": sys.executable,
        },
    )
    environment = {**os.environ, "SPARK_HOME": _find_spark_home(), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert "copied [(0, 400), (1, 100)]" in done.stdout, done.stderr[-3_000:]
