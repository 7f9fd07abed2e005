"""A stream with executors of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


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
