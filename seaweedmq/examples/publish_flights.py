"""Publish flights of 2013 as typed records, keyed by airport, for the other examples.

::

    python -m seaweedmq.examples.publish_flights --days 31
    python -m seaweedmq.examples.publish_flights --first-day 32 --days 28      # February, later

The topic is created with one segment, which keeps the flights in the order of the file. The watermark of
``flights_streaming`` relies on that order: Spark may read one of several segments ahead of another.
"""

from collections.abc import Sequence

import pyarrow as pa

import seaweedmq
from seaweedmq.examples import nyc
from seaweedmq.examples.running import FLIGHTS, make_topic, parser, run

TIMEOUT_S = 120.0


def publish(bootstrap: str, topic: str, flights: pa.Table, replicas: int = 1) -> None:
    """Publish a table with the key ``origin`` to a topic, which is created with its columns unless it exists."""
    make_topic(bootstrap, topic, flights.schema, replicas)
    with seaweedmq.connect(bootstrap) as client, client.publisher(topic) as publisher:
        publisher.send_table(flights, key="origin")
        publisher.flush(timeout=TIMEOUT_S)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the example."""
    options = parser(__doc__)
    options.add_argument("--topic", default=FLIGHTS, help="(%(default)s)")
    options.add_argument("--first-day", type=int, default=1, metavar="N", help="day of the year (%(default)s)")
    options.add_argument("--days", type=int, default=365, metavar="N", help="number of days (%(default)s)")
    given = options.parse_args(arguments)
    flights = nyc.flights(given.first_day, given.days)
    publish(given.bootstrap, given.topic, flights)
    print(f"published {flights.num_rows:,} flights to {given.topic}")


if __name__ == "__main__":
    run(main)
