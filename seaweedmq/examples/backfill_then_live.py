"""Flights and mean delay by carrier: of all that was ever published, then of what is published now, in one query.

::

    python -m seaweedmq.examples.backfill_then_live                      # until Ctrl-C
    python -m seaweedmq.examples.backfill_then_live --flights 51955      # until so many have come

The first batches read Parquet tables and log files, the later ones what has just come; the query need not know which.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from seaweedmq.examples.running import FLIGHTS, parser, run, spark_session

LOOK_S = 0.5
"""How often a query that says nothing is asked whether it still runs."""


class Total(NamedTuple):
    """Of a carrier."""

    flights: int
    departed: int
    mean_delay: float | None
    """Minutes; None: all were cancelled."""


class Totals:
    """By carrier, as of the last batch. Spark adds to it in a thread of its own."""

    def __init__(self) -> None:
        self._totals: dict[str, Total] = {}
        self._changed = threading.Condition()

    def take(self, changed: DataFrame, batch: int) -> None:
        """Replace the totals that a batch changed; to take a batch again changes nothing."""
        rows = changed.collect()
        with self._changed:
            for row in rows:
                self._totals[row.carrier] = Total(row.flights, row.departed, row.mean_delay)
            self._changed.notify_all()
            print(f"batch {batch}: {self._flights():,} flights", flush=True)

    def until(self, flights: int, timeout_s: float) -> bool:
        """Whether so many flights came before ``timeout_s`` had gone."""
        with self._changed:
            return self._changed.wait_for(lambda: self._flights() >= flights, timeout_s)

    def now(self) -> dict[str, Total]:
        with self._changed:
            return dict(sorted(self._totals.items()))

    def _flights(self) -> int:
        return sum(total.flights for total in self._totals.values())


def totals_by_carrier(flights: DataFrame) -> DataFrame:
    """``carrier``, ``flights``, ``departed``, ``mean_delay`` (minutes)."""
    return flights.groupBy("carrier").agg(
        f.count("*").alias("flights"), f.count("dep_delay").alias("departed"), f.avg("dep_delay").alias("mean_delay")
    )


def start(spark: SparkSession, bootstrap: str, storage: str, topic: str, totals: Totals) -> StreamingQuery:
    """Start the query, which keeps ``totals`` up to date until it is stopped."""
    source = spark.readStream.format("seaweedmq").option("startingOffsets", "earliest")
    flights = source.options(storage=storage, bootstrap=bootstrap, topic=topic).load()
    return totals_by_carrier(flights).writeStream.outputMode("update").foreachBatch(totals.take).start()


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--topic", default=FLIGHTS, help="(%(default)s)")
    options.add_argument("--flights", type=int, metavar="N", help="end when so many have come")
    given = options.parse_args(arguments)
    totals = Totals()
    with spark_session("backfill, then live", given.master) as spark:
        query = start(spark, given.bootstrap, given.storage, given.topic, totals)
        try:
            if given.flights is None:
                query.awaitTermination()
            else:
                while query.isActive and not totals.until(given.flights, LOOK_S):
                    pass
                if not query.isActive:
                    query.awaitTermination()  # raises what ended it
        finally:
            query.stop()
    for carrier, total in totals.now().items():
        mean = "all cancelled" if total.mean_delay is None else f"mean delay {total.mean_delay:6.2f} minutes"
        print(f"{carrier}  {total.flights:7,} flights  {mean}")


if __name__ == "__main__":
    run(main)
