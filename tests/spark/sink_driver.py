"""A driver of its own that streams Parquet files into a topic: ``python -m tests.spark.sink_driver JSON``."""

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.session import spark_session


def start(spark: SparkSession, source: str, checkpoint: str, options: dict[str, str], ends: bool = True) -> Any:
    """A query over every file of a folder, a file a batch, that ends when it has seen all, or never."""
    schema = spark.read.parquet(source).schema
    rows: DataFrame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
    return (
        rows.writeStream.format("seaweedmq")
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(**({"availableNow": True} if ends else {"processingTime": "0 seconds"}))
        .start()
    )


def main() -> None:
    """Run it to its end."""
    given = json.loads(sys.argv[1])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    path = os.environ.get("PYTHONPATH", "")
    with spark_session(given["master"], spark__executor__memory="512m", spark__executorEnv__PYTHONPATH=path) as spark:
        query = start(spark, given["source"], given["checkpoint"], given["options"])
        query.awaitTermination()


if __name__ == "__main__":
    main()
