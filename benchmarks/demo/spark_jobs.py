"""Spark jobs of the demo, in one session of a process of its own: stream the flights, then read them as a batch.

As a program, it prints the result of each job as a line of JSON as soon as it is available.
"""

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from seaweedmq.examples.flights_streaming import Places, start
from seaweedmq.examples.running import spark_session

COLUMNS = "carrier string, dep_delay int"
"""Columns of the JSON objects in the records of the first topic."""
RECORDS_PER_TRIGGER = 60_000
"""Limit that gives six batches, so that progress is visible."""


def stream(spark: SparkSession, places: Places) -> dict[str, Any]:
    """Stream all existing flights into a topic of complete hours."""
    began_s = time.monotonic()
    query = start(spark, places, until_done=True, records_per_trigger=RECORDS_PER_TRIGGER)
    query.awaitTermination()
    elapsed_s = time.monotonic() - began_s
    batches = query.recentProgress
    return {"records": sum(b.numInputRows for b in batches), "batches": len(batches), "elapsed_s": elapsed_s}


def means(spark: SparkSession, storage: str, topic: str) -> dict[str, Any]:
    """Return the mean departure delay by carrier, from the topic's files."""
    reader = spark.read.format("seaweedmq").option("storage", storage).option("topic", topic)
    records = reader.option("columns", "value").load()
    flights = records.select(f.from_json(f.col("value").cast("string"), COLUMNS).alias("flight")).select("flight.*")
    began_s = time.monotonic()
    by_carrier = flights.groupBy("carrier").agg(
        f.count("*").alias("all"), f.count("dep_delay").alias("flights"), f.avg("dep_delay").alias("mean")
    )
    rows = [row.asDict() for row in by_carrier.collect()]
    elapsed_s = time.monotonic() - began_s
    return {"records": sum(row["all"] for row in rows), "rows": rows, "elapsed_s": elapsed_s}


def main(storage: str, topic: str, bootstrap: str, checkpoint: str) -> None:
    """Run both jobs, and print their results."""
    with spark_session("seaweedmq demo") as spark:
        print(json.dumps(stream(spark, Places(bootstrap, storage, checkpoint))), flush=True)
        print(json.dumps(means(spark, storage, topic)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
