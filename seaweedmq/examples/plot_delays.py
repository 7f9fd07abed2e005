"""Plot the mean departure delay by hour of the day, read from a topic's files at native speed.

::

    python -m seaweedmq.examples.plot_delays --png delays.png
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import seaweedmq.spark
from seaweedmq.examples.running import FLIGHTS, parser, run, spark_session

DPI = 120


def delays_of_day(flights: DataFrame) -> pa.Table:
    """Return ``hour`` (scheduled departure, local time), ``departed`` and ``mean_delay`` (minutes), by hour."""
    by_hour = flights.where("dep_delay is not null").groupBy("hour")
    figures = by_hour.agg(f.count("*").alias("departed"), f.avg("dep_delay").alias("mean_delay"))
    return figures.orderBy("hour").toArrow()


def plot(delays: pa.Table, png: Path) -> None:
    """Draw the result of ``delays_of_day``."""
    hours, means = delays.column("hour").to_pylist(), delays.column("mean_delay").to_pylist()
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    bars = axes.bar(hours, means, width=0.8, color="#3b6ea5")
    axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=8, color="#444444")
    axes.set_xticks(range(24), [f"{hour:02d}" for hour in range(24)])
    axes.set_xlim(-0.6, 23.6)
    axes.set_xlabel("hour of scheduled departure, local time")
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title(f"The later, the later: {sum(delays.column('departed').to_pylist()):,} flights from New York, 2013")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(png, dpi=DPI)


def read(spark: SparkSession, storage: str, topic: str) -> DataFrame:
    """Read the two needed columns of all records that are in files now."""
    return seaweedmq.spark.read(spark, storage=storage, topic=topic).select("hour", "dep_delay")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the example."""
    options = parser(__doc__)
    options.add_argument("--topic", default=FLIGHTS, help="(%(default)s)")
    options.add_argument("--png", type=Path, default=Path("delays.png"), help="file to draw to (%(default)s)")
    given = options.parse_args(arguments)
    with spark_session("delays by hour of the day", given.master) as spark:
        delays = delays_of_day(read(spark, given.storage, given.topic))
    plot(delays, given.png)
    print(f"drew {given.png}")


if __name__ == "__main__":
    run(main)
