"""Demo of `make demo`: 336,776 real flights through a local cluster and back with Spark, every record verified.

Each flight gets a row number. librdkafka publishes half of the planes' flights and SeaweedMQ's client the other half,
to one topic, while a group of Kafka consumers and a native group read it. In the middle, SIGKILL ends one of the three
brokers, the coordinator of the Kafka group. At the end the rows of each group, sorted by number, must equal the sent
rows. The row numbers of every tail number must rise, and both groups must have received the same record at each offset.
"""

import asyncio
import tempfile
import time
from pathlib import Path

import psutil
import pyarrow as pa

from benchmarks.demo.cluster import DemoCluster, demo_cluster
from benchmarks.demo.files import until_parquet
from benchmarks.demo.flights import check, read_flights, verify
from benchmarks.demo.records import check_places, from_records, same_places, to_records
from benchmarks.demo.spark import compare_means, spark_jobs
from benchmarks.demo.streams import HOURS, PARTITIONS, SPARK, STEPS, TOPIC, Rates, Streamed, stream
from benchmarks.demo.windows import check_hours, publish_typed, read_hours, shown_as_they_come
from seaweedmq.cli.output import Output, one_line_errors, say, show_rows
from seaweedmq.examples import nyc


async def demo() -> None:
    """Run the whole demo.

    Raises:
        DemoFailed: If a count, an order, a value or a mean is wrong, or a process was left behind.
    """
    began_s = time.monotonic()
    path = nyc.flights_path()
    rates = Rates()
    with tempfile.TemporaryDirectory(prefix="seaweedmq-demo-") as folder:
        reading = asyncio.create_task(asyncio.to_thread(read, path))  # while the cluster starts
        async with demo_cluster(Path(folder)) as cluster:
            flights, records = await reading
            streamed = await stream(cluster, records, rates)
            await asyncio.to_thread(check_streams, flights, streamed)
            storage = Path(folder) / "data" / "storage"
            publishing = asyncio.create_task(publish_typed(cluster.addresses))
            await until_parquet(storage, TOPIC)
            await with_spark(Path(folder), cluster, records, await publishing, rates)
    check(not psutil.Process().children(recursive=True), "a process was left behind")
    say("")
    show_rows(sorted(rates.rows, key=lambda row: STEPS.index(row["step"])), list(rates.rows[0]), Output.TABLE)
    say(f"\neverything in {time.monotonic() - began_s:.1f} s\ndemo: OK")


async def with_spark(folder: Path, cluster: DemoCluster, records: pa.Table, typed: pa.Table, rates: Rates) -> None:
    """Run both Spark jobs over the same flights: as records with columns, and as the JSON that the groups read before.

    Raises:
        DemoFailed: If a result of Spark differs from the CSV's.
    """
    storage = folder / "data" / "storage"
    say(
        "streaming the flights with Spark: mean delay by airport and hour, with the weather (it takes a while to start)"
    )
    async with spark_jobs(storage, TOPIC, cluster.addresses, folder / "checkpoint") as jobs:
        async with shown_as_they_come(cluster.addresses):
            streamed = await jobs.result()
        expected = await asyncio.to_thread(lambda: nyc.closed(nyc.delays_by_hour(typed), typed))
        await asyncio.to_thread(check_hours, await read_hours(cluster.addresses), expected)
        rates.add(HOURS, typed, streamed["elapsed_s"])
        say(
            f"Spark streamed {streamed['records']:,} flights in {streamed['batches']} batches to {expected.num_rows:,} "
            "hours, each once and equal to the CSV's"
        )
        means = await jobs.result()
        compare_means(means, nyc.flights_path())
        rates.add(SPARK, records, means["elapsed_s"])
        say("Spark and the CSV agree")
        await jobs.end()


def read(path: Path) -> tuple[pa.Table, pa.Table]:
    """Return the flights, and their records."""
    flights = read_flights(path)
    return flights, to_records(flights)


def check_streams(flights: pa.Table, streamed: Streamed) -> None:
    """Check that both groups received all flights as sent.

    A Kafka group may receive a record again after a rebalance, since Kafka promises no more; that is then reported.
    Nothing causes a rebalance here.

    Raises:
        DemoFailed: If a group did not; the message says why.
    """
    for group in streamed.by_kafka, streamed.by_native:
        planes = verify(flights, [from_records(group.records, flights.schema)])
        check_places(group.records, PARTITIONS)
    check(
        same_places(streamed.by_kafka.records, streamed.by_native.records),
        "the groups received different flights at an offset",
    )
    again, rebalances = streamed.by_kafka.repeated, streamed.rebalances
    check(streamed.by_native.repeated == 0, f"{streamed.by_native.repeated} flights came to SeaweedMQ's group again")
    check(again == 0 or rebalances > 0, f"{again} flights came to Kafka's group again, without a rebalance")
    say(f"both groups got every flight once and unchanged, in order for each of {planes:,} planes")
    if rebalances:
        say(f"Kafka's group rebalanced {rebalances} times, after which {again:,} records came again, as allowed")
    else:
        say("Kafka's group lost its coordinator, and no member had to join again")


if __name__ == "__main__":
    with one_line_errors():
        asyncio.run(demo())
