"""Stream mean departure delays by airport and hour, joined with the weather, from a topic to a topic, exactly once.

::

    python -m seaweedmq.examples.flights_streaming --checkpoint delays-checkpoint --until-done

The query may be stopped at any time and continues at its position. What it has read, the hours that are still open, and
what it has written belong to one batch, which ``--checkpoint`` and the sink's manifest replay or complete.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from seaweedmq.examples import nyc
from seaweedmq.examples.running import FLIGHTS, absolute, make_topic, parser, run, spark_session

DELAYS = "demo/delays"
LATE = f"{nyc.LATE_H} hours"
"""Watermark: an hour is written once no flight that was scheduled in it can follow."""


class Places(NamedTuple):
    """The topics, the storage and the checkpoint of a query."""

    bootstrap: str
    storage: str
    checkpoint: str
    """Folder, or URI that Hadoop knows. It belongs to this query and this pair of topics."""
    source: str = FLIGHTS
    target: str = DELAYS


def delays_by_hour(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return the delays by airport and hour with the weather, null if not observed.

    ``flights`` is a stream with the columns of ``nyc.flights``, ``weather`` a static table as ``nyc.weather``. The
    columns are ``origin``, ``hour``, ``flights``, ``departed``, ``mean_delay`` (minutes) and the weather's.
    """
    scheduled = f.col("time_hour") + f.make_dt_interval(mins="minute")
    timed = flights.withColumn("scheduled", scheduled).withWatermark("scheduled", LATE)
    by_hour = timed.groupBy("origin", f.window("scheduled", "1 hour")).agg(
        f.count("*").alias("flights"), f.count("dep_delay").alias("departed"), f.avg("dep_delay").alias("mean_delay")
    )
    figures = by_hour.select("origin", f.col("window.start").alias("hour"), "flights", "departed", "mean_delay")
    return figures.join(f.broadcast(weather), ["origin", "hour"], "left")


def start(
    spark: SparkSession, places: Places, *, until_done: bool = False, records_per_trigger: int | None = None
) -> StreamingQuery:
    """Start the query; ``until_done`` stops it after all existing records, otherwise it waits for more."""
    source = spark.readStream.format("seaweedmq").option("startingOffsets", "earliest")
    source = source.options(storage=places.storage, bootstrap=places.bootstrap, topic=places.source)
    if records_per_trigger is not None:
        source = source.option("maxRecordsPerTrigger", records_per_trigger)
    weather = spark.createDataFrame(nyc.weather())
    sink = delays_by_hour(source.load(), weather).writeStream.format("seaweedmq").outputMode("append")
    sink = sink.options(storage=places.storage, bootstrap=places.bootstrap, topic=places.target, key="origin")
    sink = sink.option("checkpointLocation", places.checkpoint)
    return (sink.trigger(availableNow=True) if until_done else sink).start()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the example."""
    options = parser(__doc__)
    options.add_argument("--checkpoint", type=absolute, required=True, help="folder of the query's checkpoint")
    options.add_argument("--source", default=FLIGHTS, help="topic of the flights (%(default)s)")
    options.add_argument("--target", default=DELAYS, help="topic of the delays (%(default)s)")
    options.add_argument("--until-done", action="store_true", help="stop after all existing records")
    given = options.parse_args(arguments)
    places = Places(given.bootstrap, given.storage, given.checkpoint, given.source, given.target)
    with spark_session("delays by hour", given.master) as spark:
        make_topic(given.bootstrap, given.target, nyc.DELAYS)
        query = start(spark, places, until_done=given.until_done)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        read = sum(progress.numInputRows for progress in query.recentProgress)
        print(f"read {read:,} flights of {given.source}; the closed hours are in {given.target}")


if __name__ == "__main__":
    run(main)
