"""Spark reads the records that a Kafka client wrote to a real broker."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.kafka import confluent_client
from tests.integration.kafka.records import CODECS, T0_MS, of_every_kind
from tests.support.commands import running_cluster

pytestmark = pytest.mark.integration

SENT = [record for codec in CODECS for record in of_every_kind(codec.encode())]


def as_bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_spark_reads_what_kafkas_clients_wrote(spark: SparkSession, tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", kafka_port=0) as cluster:
        for codec in CODECS:
            confluent_client.publish(cluster.kafka, "orders", of_every_kind(codec.encode()), codec)
    reader = spark.read.format("seaweedmq").option("storage", str(tmp_path / "data" / "storage"))
    frame = reader.option("topic", "kafka/orders").load()
    rows = frame.collect()
    found = [(as_bytes(row.key), as_bytes(row.value)) for row in rows]
    assert sorted(map(repr, found)) == sorted(repr((record.key, record.value)) for record in SENT)
    [why] = [row for row in rows if row.headers and row.headers.get("why") == b"zstd"]
    assert (as_bytes(why.key), why.value) == (b"gone", None)
    assert why.timestamp.timestamp() == pytest.approx((T0_MS + 2) / 1_000, abs=1e-4)
    assert frame.where("value is null").count() == 2 * len(CODECS)
