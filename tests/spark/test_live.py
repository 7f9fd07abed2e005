"""Reads with ``bootstrap``: all records that real brokers have committed, in files or not, once, by both readers."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import seaweedmq
import seaweedmq.spark
from seaweedmq.errors import InvalidArgument, OutOfRange
from tests.support.commands import Cluster, running_cluster
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live") / "data"


@pytest.fixture(scope="module")
def cluster(data: Path) -> Iterator[Cluster]:
    with running_cluster(data) as running:
        yield running


@pytest.fixture
def storage(cluster: Cluster, data: Path) -> Path:
    return data / "storage"


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.segment, row.offset) for row in frame.select("segment", "offset").collect())


def publish(client: seaweedmq.Client, topic: str, first: int, count: int) -> None:
    with client.publisher(topic) as publisher:
        for n in range(first, first + count):
            publisher.send(b"v%d" % n, key=b"k%d" % n, headers={"n": b"%d" % n}, timestamp=1_600_000_000_000_000 + n)
        publisher.flush(timeout=30)


def test_records_are_read_from_files_and_from_brokers(spark: SparkSession, cluster: Cluster, storage: Path) -> None:
    with seaweedmq.connect(cluster.addresses) as client:
        client.admin.create_topic("shop/live", segments=2)
        publish(client, "shop/live", 0, 500)
        given = {"bootstrap": cluster.addresses, "topic": "shop/live"}
        both = {**given, "storage": str(storage)}
        native = seaweedmq.spark.read(spark, **both)
        frames = {
            "native": native,
            "brokers alone": seaweedmq.spark.read(spark, **given),
            "source": spark.read.format("seaweedmq").options(**both).load(),
            "source, brokers alone": spark.read.format("seaweedmq").options(**given).load(),
        }
        for name, frame in frames.items():
            assert frame.columns == ["topic", "segment", "offset", "timestamp", "key", "value", "headers"], name
            rows = frame.collect()
            assert sorted(bytes(row.value) for row in rows) == sorted(b"v%d" % n for n in range(500)), name
            assert all(row.headers["n"] == bytes(row.value)[1:] for row in rows), name
        keyed = frames["source"].where("key = cast('k77' as binary) or key = cast('k78' as binary)")
        assert sorted(bytes(row.value) for row in keyed.collect()) == [b"v77", b"v78"]
        publish(client, "shop/live", 500, 100)
        assert native.count() == 500  # as of the call of read
        assert spark.read.format("seaweedmq").options(**both).load().count() == 600
        assert seaweedmq.spark.read(spark, **both, startingOffsetsByTimestamp=1_600_000_000_001).count() == 0
        assert seaweedmq.spark.read(spark, **both, startingTimestamp=1_600_000_000_000_550).count() == 50
        for place in (given, both):
            with pytest.raises(
                OutOfRange, match=r"offset 601 of shop/live#1, which is committed up to \d+: give that or"
            ):
                seaweedmq.spark.read(spark, **place, endingOffsets={"1": 601})
            with pytest.raises(Exception, match=r"OutOfRange: .*offset 601 of shop/live#1, which is committed up to"):
                spark.read.format("seaweedmq").options(**place, startingOffsets='{"1": 601}').load().collect()


def test_a_split_and_a_schema_are_followed(spark: SparkSession, cluster: Cluster, storage: Path) -> None:
    with seaweedmq.connect(cluster.addresses) as client:
        client.admin.create_topic("shop/typed", schema=pa.schema([("n", pa.int64())]), scaling="fixed")
        with client.publisher("shop/typed") as publisher:
            publisher.send_table(pa.table({"n": range(300)}))
            publisher.flush(timeout=30)
            client.admin.split_segment("shop/typed", 0)
            publisher.send_table(pa.table({"n": range(300, 600)}))
            publisher.flush(timeout=30)
        read = seaweedmq.spark.read(spark, bootstrap=cluster.addresses, storage=storage, topic="shop/typed")
        assert sorted(row.n for row in read.collect()) == list(range(600))
        assert {segment for segment, _ in offsets(read)} >= {0}


def test_the_storage_of_other_brokers_is_refused(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    elsewhere = TopicFiles(tmp_path)
    with seaweedmq.connect(cluster.addresses) as client:
        client.admin.create_topic(str(elsewhere.name))
        with pytest.raises(InvalidArgument, match=r"is not the topic of the brokers at .*: give the storage"):
            seaweedmq.spark.read(spark, bootstrap=cluster.addresses, storage=tmp_path, topic=str(elsewhere.name))
