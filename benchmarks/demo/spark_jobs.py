"""What the demo has Spark do, in a process of its own and one session: stream the flights, then read them as a batch.

Run as a program, it prints the result of each job as a line of JSON as soon as it is there.
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
"""Of the JSON objects that the records of the first topic are."""
RECORDS_PER_TRIGGER = 60_000
"""Six batches, so that there is something to see."""


def stream(spark: SparkSession, places: Places) -> dict[str, Any]:
    """All flights that are there, to the hours that are closed, in a topic."""
    began_s = time.monotonic()
    query = start(spark, places, until_done=True, records_per_trigger=RECORDS_PER_TRIGGER)
    query.awaitTermination()
    elapsed_s = time.monotonic() - began_s
    batches = query.recentProgress
    return {"records": sum(b.numInputRows for b in batches), "batches": len(batches), "elapsed_s": elapsed_s}


def means(spark: SparkSession, storage: str, topic: str) -> dict[str, Any]:
    """Mean departure delay by carrier, from the topic's files."""
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
    with spark_session("seaweedmq demo") as spark:
        print(json.dumps(stream(spark, Places(bootstrap, storage, checkpoint))), flush=True)
        print(json.dumps(means(spark, storage, topic)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
