"""A separate driver that streams Parquet files into a topic: ``python -m tests.spark.sink_driver JSON``."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import seaweedmq.spark
from benchmarks.spark.session import spark_session
from seaweedmq.spark import jobs


def start(spark: SparkSession, source: str, checkpoint: str, options: dict[str, str], ends: bool = True) -> Any:
    """Run a query over every file of a folder, a file per batch, that ends after all of them, or never."""
    schema = spark.read.parquet(source).schema
    rows: DataFrame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
    return (
        rows.writeStream.format("seaweedmq")
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(**({"availableNow": True} if ends else {"processingTime": "0 seconds"}))
        .start()
    )


def write_and_import(
    spark: SparkSession, source: str, written: dict[str, str], imported: dict[str, str], found: str
) -> None:
    """Write every row of a folder into two topics, read them from files and brokers, and dump the result as JSON."""
    spark.read.parquet(source).write.format("seaweedmq").mode("append").options(**written).save()
    rows = jobs.import_files(spark, [source], **imported)
    counts = [seaweedmq.spark.read(spark, **options).count() for options in (written, imported)]
    Path(found).write_text(json.dumps({"imported": rows, "read": counts}))


def main() -> None:
    """Write and import one-time data, and run the query to its end."""
    given = json.loads(sys.argv[1])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    path = os.environ.get("PYTHONPATH", "")
    with spark_session(given["master"], spark__executor__memory="512m", spark__executorEnv__PYTHONPATH=path) as spark:
        if "once" in given:  # before the query, which may be killed
            write_and_import(spark, given["source"], **given["once"])
        query = start(spark, given["source"], given["checkpoint"], given["options"])
        query.awaitTermination()


if __name__ == "__main__":
    main()
