"""A program: a Spark cluster of two executors reads topics with both readers and in a stream, and runs the last one's
table jobs. It prints its findings as JSON.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

import seaweedmq.spark
from seaweedmq.spark import jobs


def summary(frame: DataFrame) -> list[int]:
    """Return the count, the sum of the offsets, and a sum over hashes of the rows."""
    shown = [F.to_json("headers") if name == "headers" else F.col(name) for name in frame.columns]
    row = frame.select(F.count("*"), F.sum("offset"), F.sum(F.xxhash64(*shown).cast("decimal(38,0)"))).collect()[0]
    return [int(value) for value in row]


def main(storage: str, scratch: str, *topics: str) -> None:
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
    reads = []
    for topic in topics:
        native = seaweedmq.spark.read(spark, storage=storage, topic=topic)
        source = spark.read.format("seaweedmq").options(storage=storage, topic=topic).load()
        reads.append({"native": summary(native), "source": summary(source), "columns": source.columns})
    seaweedmq.spark.register(spark)
    given = {"storage": storage, "topic": topics[0], "startingOffsets": "earliest", "minPartitions": "2"}
    counts = spark.readStream.format("seaweedmq").options(**given).load().groupBy("segment").count()
    copying = counts.writeStream.outputMode("complete").format("memory").queryName("streamed")
    copying.option("checkpointLocation", f"{scratch}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    rebuilt = jobs.rebuild(spark, storage=storage, topic=topics[-1])
    compacted = jobs.compact(spark, storage=storage, topic=topics[-1])
    verified = jobs.verify(spark, storage=storage, topic=topics[-1])
    found = {
        "reads": reads,
        "streamed": sorted(list(row) for row in spark.table("streamed").collect()),
        "rebuilt": [table.path for table in rebuilt.made],
        "compacted": [compacted.tables_before, compacted.tables_after],
        "verified": [verified.is_sound, verified.tables, verified.records, verified.compared],
        "problems": [str(problem) for problem in (*rebuilt.problems, *compacted.problems)],
        "versions": [version.records for version in jobs.history(storage=storage, topic=topics[-1])],
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
