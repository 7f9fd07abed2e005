"""Spark's own source and sink for Kafka."""

import json
import sys
from pathlib import Path

import pytest

from tests.integration.kafka_others.brought import HERE, run, spark_jars
from tests.support.commands import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROWS = [[str(n % 20), None if n % 100 == 99 else f"v{n}", str(n)] for n in range(1_010)]


def test_spark_writes_reads_and_copies_a_topic_as_a_stream(cluster: Cluster, tmp_path: Path) -> None:
    jars = ",".join(str(jar) for jar in spark_jars())
    job = str(HERE / "spark_kafka" / "job.py")
    environment = {"PYSPARK_PYTHON": sys.executable}
    said = run([sys.executable, job, cluster.kafka, jars, str(tmp_path)], timeout_s=200, env=environment)
    found = json.loads(said.splitlines()[-1])
    by_number = sorted(found["read"], key=lambda row: int(row[2]))
    assert [row[:3] for row in by_number] == ROWS[:1_000]
    for partition in range(4):
        offsets = sorted(offset for *_, at, offset in found["read"] if at == partition)
        assert offsets == list(range(len(offsets)))
    assert sum(found["first"]) == 1_000
    assert len(found["first"]) >= 3
    assert found["second"] == [10]
    assert sorted((row[:3] for row in found["copied"]), key=lambda row: int(row[2])) == ROWS
    assert sorted(row[3:] for row in found["part"]) == [[0, offset] for offset in range(10, 20)] + [[2, 0]]
