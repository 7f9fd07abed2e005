"""Streaming part of the demo: Spark aggregates flights of one topic to hours in another.

Spark runs ``seaweedmq.examples.flights_streaming``.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pyarrow as pa

import seaweedmq.aio
from benchmarks.demo.flights import check
from seaweedmq.cli.output import say
from seaweedmq.examples import nyc
from seaweedmq.examples.flights_streaming import DELAYS
from seaweedmq.examples.publish_flights import publish
from seaweedmq.examples.running import FLIGHTS, make_topic

REPLICAS = 2
LINES_MAX = 8
"""Maximum number of hours that are shown as they come."""
PLACE = "origin", "hour"


async def publish_typed(addresses: list[str]) -> pa.Table:
    """Publish all flights day by day, with columns of their own, and create the topic of the hours.

    Returns:
        The published flights.
    """
    flights = await asyncio.to_thread(nyc.flights)
    bootstrap = ",".join(addresses)
    await asyncio.to_thread(publish, bootstrap, FLIGHTS, flights, REPLICAS)
    await asyncio.to_thread(make_topic, bootstrap, DELAYS, nyc.DELAYS, REPLICAS)
    return flights


@contextlib.asynccontextmanager
async def shown_as_they_come(addresses: list[str]) -> AsyncIterator[None]:
    """Show some of the hours that Spark writes during a block."""
    showing = asyncio.create_task(_show(addresses))
    try:
        yield
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def _show(addresses: list[str]) -> None:
    hours, lines = 0, 0
    async with (
        seaweedmq.aio.connect(addresses) as client,
        client.subscriber(DELAYS, start="earliest") as subscriber,
    ):
        async for batch in subscriber.batches():
            hours += batch.num_rows
            if batch.num_rows and lines < LINES_MAX:
                lines += 1
                say(in_words(batch.slice(batch.num_rows - 1).to_pylist()[0], hours))


def in_words(row: dict[str, Any], hours: int) -> str:
    """Format an hour at an airport, and the number of hours so far."""
    delay = "none left" if row["mean_delay"] is None else f"mean delay {row['mean_delay']:6.2f} min"
    sky = "no weather" if row["temp"] is None else f"{row['temp']:5.1f} °F"
    when = row["hour"].strftime("%Y-%m-%d %H:%M")
    return f"  {when}  {row['origin']}  {row['flights']:3} flights  {delay}  {sky}   ({hours:,} hours so far)"


async def read_hours(addresses: list[str]) -> pa.Table:
    """Return all rows of the topic, with their ``_key``."""
    async with (
        seaweedmq.aio.connect(addresses) as client,
        client.subscriber(DELAYS, start="earliest", stop_at="latest") as subscriber,
    ):
        batches = [batch.select([*nyc.DELAYS.names, "_key"]) async for batch in subscriber.batches()]
    check(bool(batches), f"nothing came to {DELAYS}")
    return pa.Table.from_batches(batches)


def check_hours(found: pa.Table, expected: pa.Table) -> None:
    """Check that every hour at every airport exists once, keyed by the airport, with the values of the CSV.

    Args:
        found: Rows of the topic in any order, with ``_key``.
        expected: Rows of ``nyc.delays_by_hour``.

    Raises:
        DemoFailed: If not; the message says why.
    """
    places = set(zip(*(found.column(name).to_pylist() for name in PLACE), strict=True))
    repeated = found.num_rows - len(places)
    wanted = set(zip(*(expected.column(name).to_pylist() for name in PLACE), strict=True))
    check(repeated == 0, f"{repeated} hours came more than once")
    check(not places - wanted, f"{len(places - wanted)} hours came that do not exist, or were not closed")
    check(not wanted - places, f"{len(wanted - places)} of {len(wanted)} hours are missing")
    keys = found.column("_key").combine_chunks()
    check(keys.equals(found.column("origin").combine_chunks().cast(pa.binary())), "an hour's key is not its airport")
    order = [(name, "ascending") for name in reversed(PLACE)]
    ours, theirs = found.sort_by(order), expected.sort_by(order)
    for name in ("flights", "departed", "mean_delay", *nyc.WEATHER):
        left, right = (side.column(name).cast(pa.float64()).to_numpy() for side in (ours, theirs))
        wrong = int((~np.isclose(left, right, rtol=1e-12, atol=0.0, equal_nan=True)).sum())
        check(wrong == 0, f"{wrong} hours have another {name} than the CSV")
