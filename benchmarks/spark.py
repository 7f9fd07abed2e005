"""Claim: Spark reads a topic through the data source at 0.60 of ``spark.read.parquet`` of the same rows."""

import os
import sys
import time

from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from benchmarks.cluster import scratch
from benchmarks.measure import Measure, compared, interleaved, yardstick
from benchmarks.scale import Scale
from benchmarks.tables import NAME, make_tables, table_files, topic_folder

RATIO_MIN = 0.60
ROUNDS = 3
SAME_COLUMNS = "segment,offset,timestamp,key,headers,value"
"""What the Parquet files have; ``topic`` is the data source's alone."""


def run(scale: Scale) -> list[Measure]:
    """All rows into Spark's ``noop`` sink, which takes every value and does nothing: the files' columns, and one."""
    with scratch(scale.directory) as folder:
        data = folder / "data"
        count = make_tables(data, scale.spark_bytes)
        files = len(table_files(data))
        os.environ["PYSPARK_PYTHON"] = sys.executable  # the first worker is started before anybody can say
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        spark = (
            SparkSession.builder.master("local[*]")
            .appName("seaweedmq benchmark")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.log.level", "ERROR")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.python.unix.domain.socket.enabled", "true")  # as the README advises
            .getOrCreate()
        )
        try:
            seaweedmq.spark.register(spark)
            storage, table = str(data / "storage"), str(topic_folder(data) / "table")

            def source(**options: str) -> DataFrame:
                return spark.read.format("seaweedmq").options(storage=storage, topic=NAME, **options).load()

            def rate(frame: DataFrame) -> float:
                began = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                return count / (time.perf_counter() - began)

            if source().count() != count:
                raise AssertionError(f"Spark finds {source().count()} of {count} records")
            every_column = {
                "source": lambda: rate(source(columns=SAME_COLUMNS)),
                "parquet": lambda: rate(spark.read.parquet(table)),
            }
            values = {
                "source values": lambda: rate(source(columns="value")),
                "parquet values": lambda: rate(spark.read.parquet(table).select("_value")),
            }
            contestants = every_column if scale.quick else every_column | values
            samples = interleaved(contestants, 1 if scale.quick else ROUNDS, warm_up=not scale.quick)
        finally:
            spark.stop()
    every, one = "spark.read.parquet", "spark.read.parquet, one column"
    measures = [
        yardstick(every, samples["parquet"], "records/s"),
        compared(
            "spark_read",
            samples["source"],
            "records/s",
            every,
            samples["parquet"],
            ratio_min=RATIO_MIN,
            records=count,
            files=files,
        ),
    ]
    if not scale.quick:
        parquet = samples["parquet values"]
        measures.append(yardstick(one, parquet, "records/s"))
        measures.append(compared("spark_read_values", samples["source values"], "records/s", one, parquet))
    return measures
