"""A program: a Spark cluster of two executors reads a topic, by both faces, and prints what it found as JSON."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

import seaweedmq.spark


def summary(frame: DataFrame) -> list[int]:
    """Count, sum of the offsets, and a sum over hashes of the rows."""
    shown = [F.to_json("headers") if name == "headers" else F.col(name) for name in frame.columns]
    row = frame.select(F.count("*"), F.sum("offset"), F.sum(F.xxhash64(*shown).cast("decimal(38,0)"))).collect()[0]
    return [int(value) for value in row]


def main(storage: str, topic: str, scratch: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_WORKER_DIR"] = scratch
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", scratch)
        .config("spark.sql.warehouse.dir", str(Path(scratch) / "warehouse"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    native = seaweedmq.spark.read(spark, storage=storage, topic=topic)
    source = spark.read.format("seaweedmq").options(storage=storage, topic=topic).load()
    print(json.dumps({"native": summary(native), "source": summary(source)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
