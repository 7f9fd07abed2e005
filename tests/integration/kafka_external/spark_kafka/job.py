"""``python job.py BROKERS JARS FOLDER``: Spark writes a topic, reads it, and copies it as a stream, in two runs.

It prints its findings as one line of JSON. It is a separate process, since a JVM takes jars only at its start.
"""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's documentation has it

ROWS = 1_000
MORE_ROWS = 10


def main(brokers: str, jars: str, folder: str) -> None:
    """Run the job that the module describes."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "768m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", folder)
        .getOrCreate()
    )
    kafka = {"kafka.bootstrap.servers": brokers, "includeHeaders": "true"}
    found: dict[str, object] = {}

    def rows(first: int, count: int) -> None:
        headers = F.array(F.struct(F.lit("n").alias("key"), F.col("id").cast("string").cast("binary").alias("value")))
        made = spark.range(first, first + count).select(
            (F.col("id") % 20).cast("string").alias("key"),
            F.when(F.col("id") % 100 != 99, F.concat(F.lit("v"), F.col("id"))).alias("value"),
            headers.alias("headers"),
        )
        made.write.format("kafka").options(**kafka).option("topic", "spark-in").save()

    def copy() -> list[int]:
        source = spark.readStream.format("kafka").options(**kafka).option("subscribe", "spark-in")
        stream = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 400).load()
        sink = stream.select("key", "value", "headers").writeStream.format("kafka").options(**kafka)
        query = (
            sink.option("topic", "spark-out").option("checkpointLocation", f"{folder}/at").trigger(availableNow=True)
        ).start()
        assert query.awaitTermination(60), query.status
        return [progress["numInputRows"] for progress in query.recentProgress]

    def read(**options: str) -> list[list[object]]:
        loaded = spark.read.format("kafka").options(**kafka, **options).load()
        columns = (F.col("key").cast("string"), F.col("value").cast("string"), F.col("headers")[0]["value"])
        return [
            [row[0], row[1], row[2].decode(), row[3], row[4]]
            for row in loaded.select(*columns, "partition", "offset").collect()
        ]

    rows(0, ROWS)
    found["read"] = read(subscribe="spark-in")
    found["first"] = copy()
    rows(ROWS, MORE_ROWS)
    found["second"] = copy()
    found["copied"] = read(subscribePattern="spark-o.*")
    between = {"spark-in": {"0": 10, "1": 5, "2": 0, "3": 0}}, {"spark-in": {"0": 20, "1": 5, "2": 1, "3": 0}}
    found["part"] = read(
        subscribe="spark-in", startingOffsets=json.dumps(between[0]), endingOffsets=json.dumps(between[1])
    )
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
