"""Count flights and their mean delay by carrier, over all past and all new records, in one query.

::

    python -m seaweedmq.examples.backfill_then_live                      # until Ctrl-C
    python -m seaweedmq.examples.backfill_then_live --flights 51955      # until so many have come

The first batches read Parquet tables and log files, the later ones new records; the query does not distinguish them.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from seaweedmq.examples.running import FLIGHTS, parser, run, spark_session

POLL_INTERVAL_S = 0.5
"""Interval in seconds of checks whether a query without progress still runs."""


class Total(NamedTuple):
    """The totals of a carrier."""

    flights: int
    departed: int
    mean_delay: float | None
    """Mean delay in minutes; None if all flights were cancelled."""


class Totals:
    """The totals by carrier as of the last batch; Spark adds to them in a thread of its own."""

    def __init__(self) -> None:
        self._totals: dict[str, Total] = {}
        self._changed = threading.Condition()

    def take(self, changed: DataFrame, batch: int) -> None:
        """Replace the totals that a batch changed; idempotent."""
        rows = changed.collect()
        with self._changed:
            for row in rows:
                self._totals[row.carrier] = Total(row.flights, row.departed, row.mean_delay)
            self._changed.notify_all()
            print(f"batch {batch}: {self._flights():,} flights", flush=True)

    def until(self, flights: int, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for a number of flights, and return whether they came."""
        with self._changed:
            return self._changed.wait_for(lambda: self._flights() >= flights, timeout_s)

    def now(self) -> dict[str, Total]:
        """Return the totals by carrier, sorted by carrier."""
        with self._changed:
            return dict(sorted(self._totals.items()))

    def _flights(self) -> int:
        return sum(total.flights for total in self._totals.values())


def totals_by_carrier(flights: DataFrame) -> DataFrame:
    """Return ``carrier``, ``flights``, ``departed``, ``mean_delay`` (minutes)."""
    return flights.groupBy("carrier").agg(
        f.count("*").alias("flights"), f.count("dep_delay").alias("departed"), f.avg("dep_delay").alias("mean_delay")
    )


def start(spark: SparkSession, bootstrap: str, storage: str, topic: str, totals: Totals) -> StreamingQuery:
    """Start the query, which keeps ``totals`` up to date until it is stopped."""
    source = spark.readStream.format("seaweedmq").option("startingOffsets", "earliest")
    flights = source.options(storage=storage, bootstrap=bootstrap, topic=topic).load()
    return totals_by_carrier(flights).writeStream.outputMode("update").foreachBatch(totals.take).start()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the example."""
    options = parser(__doc__)
    options.add_argument("--topic", default=FLIGHTS, help="(%(default)s)")
    options.add_argument("--flights", type=int, metavar="N", help="stop after N flights")
    given = options.parse_args(arguments)
    totals = Totals()
    with spark_session("backfill, then live", given.master) as spark:
        query = start(spark, given.bootstrap, given.storage, given.topic, totals)
        try:
            if given.flights is None:
                query.awaitTermination()
            else:
                while query.isActive and not totals.until(given.flights, POLL_INTERVAL_S):
                    pass
                if not query.isActive:
                    query.awaitTermination()  # raises the error that ended it
        finally:
            query.stop()
    for carrier, total in totals.now().items():
        mean = "all cancelled" if total.mean_delay is None else f"mean delay {total.mean_delay:6.2f} minutes"
        print(f"{carrier}  {total.flights:7,} flights  {mean}")


if __name__ == "__main__":
    run(main)
