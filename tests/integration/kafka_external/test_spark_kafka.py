"""Spark's own Kafka source and sink."""

import json
import sys
from pathlib import Path

import pytest

from tests.integration.kafka_external.brought import HERE, run, spark_jars
from tests.integration.kafka_external.stored import assert_whole, stored
from tests.support.commands import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

ROWS = [[str(n % 20), None if n % 100 == 99 else f"v{n}", str(n)] for n in range(1_010)]


@pytest.fixture(scope="session")
def jars() -> str:
    return ",".join(str(jar) for jar in spark_jars())


def test_spark_writes_reads_and_copies_a_topic_as_a_stream(jars: str, cluster: Cluster, tmp_path: Path) -> None:
    job = str(HERE / "spark_kafka" / "job.py")
    environment = {"PYSPARK_PYTHON": sys.executable}
    said = run([sys.executable, job, cluster.kafka, jars, str(tmp_path)], timeout_s=300, env=environment)
    found = json.loads(said.splitlines()[-1])
    by_number = sorted(found["read"], key=lambda row: int(row[2]))
    assert [row[:3] for row in by_number] == ROWS[:1_000]
    assert_whole((partition, offset) for *_, partition, offset in found["read"])
    assert sum(found["first"]) == 1_000
    assert len(found["first"]) >= 3
    assert found["second"] == [10]
    assert sorted((row[:3] for row in found["copied"]), key=lambda row: int(row[2])) == ROWS
    part = {(0, offset) for offset in range(10, 20)} | {(2, 0)}
    whole = {(partition, offset): row for *row, partition, offset in found["read"]}
    assert sorted(((row[3], row[4]), row[:3]) for row in found["part"]) == sorted((at, whole[at]) for at in part)
    for topic in ("spark-in", "spark-out"):
        kept = [(record.key, record.value or None) for record in stored(cluster, topic)]
        assert sorted(kept, key=str) == sorted(((key, value) for key, value, _ in ROWS), key=str)
