"""Middle of the demo: two publishers and two groups work on one topic, while a broker is killed."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

import seaweedmq.aio
from benchmarks.demo import kafka, native
from benchmarks.demo.cluster import DemoCluster
from benchmarks.demo.flights import KEY, DemoFailed, check
from benchmarks.demo.records import Arrived, arrived, halves
from benchmarks.demo.threads import in_thread
from seaweedmq.cli.output import Bars, progress, say

TOPIC = "kafka/flights"
KAFKA_TOPIC = "flights"
PARTITIONS = 6
REPLICAS = 2
MEMBERS = 3
GROUP = "demo"
TIMEOUT_S = 90.0
STEPS = SENT_BY_KAFKA, SENT_NATIVELY, READ_BY_KAFKA, READ_NATIVELY, HOURS, SPARK = (
    "publish, librdkafka",
    "publish, SeaweedMQ's client",
    f"group of {MEMBERS}, librdkafka, live",
    f"group of {MEMBERS}, SeaweedMQ's client, live",
    "Spark: stream, hours, back into a topic",
    "Spark: read, group, mean",
)
"""Steps in the order of the final table."""

T = TypeVar("T")


@dataclass(slots=True)
class Rates:
    """The measurements of all steps."""

    rows: list[dict[str, str]] = field(default_factory=list)

    def add(self, step: str, records: pa.Table, elapsed_s: float) -> None:
        """Add a step that processed these records."""
        self.rows.append(
            {
                "step": step,
                "records": f"{records.num_rows:,}",
                "seconds": f"{elapsed_s:.2f}",
                "records/s": f"{records.num_rows / elapsed_s:,.0f}",
                "MB/s": f"{records.nbytes / elapsed_s / 1e6:,.1f}",
            }
        )

    async def of(self, step: str, records: pa.Table, work: Awaitable[T]) -> T:
        """Wait for work that processes these records, measure it, and return its result."""
        began_s = time.monotonic()
        result = await work
        self.add(step, records, time.monotonic() - began_s)
        return result


class Streamed(NamedTuple):
    """The records that both groups received."""

    by_kafka: Arrived
    by_native: Arrived
    rebalances: int
    """Number of rebalances of the Kafka group since it was complete."""


class _Counts:
    """The progress bars of all steps; calls ``happen`` once, when half of the records are acknowledged."""

    def __init__(self, bars: Bars, half: int, happen: Callable[[], None]) -> None:
        self._bars = bars
        self._loop = asyncio.get_running_loop()
        self._left = half
        self._happen = happen

    def bar(self, step: str, total: int, *, publishes: bool = False) -> Callable[[int], None]:
        """Return a callback for the count of a step, which may be called from any thread."""
        bar, told = self._bars.add(step, total), [0]

        def at(count: int) -> None:
            bar.at(count)
            if publishes:
                self._published(count - told[0])
                told[0] = count

        return lambda count: self._in_loop(at, count)

    def _in_loop(self, at: Callable[[int], None], count: int) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(at, count)

    def _published(self, more: int) -> None:
        if 0 < self._left <= more:
            self._happen()
        self._left -= more


async def stream(cluster: DemoCluster, records: pa.Table, rates: Rates) -> Streamed:
    """Publish all records while both groups read, and kill a broker when half of them are acknowledged.

    Raises:
        DemoFailed: If it took too long, or a client reported an error.
    """
    given_up = threading.Event()
    try:
        async with asyncio.timeout(TIMEOUT_S), seaweedmq.aio.connect(cluster.addresses) as client:
            await client.admin.create_topic(TOPIC, partitions=PARTITIONS, replicas=REPLICAS)
            with progress("flights") as bars:
                return await _stream(cluster, client, bars, records, rates, given_up)
    except TimeoutError:
        raise DemoFailed(f"the flights did not arrive within {TIMEOUT_S:.0f} s") from None
    except ExceptionGroup as failed:
        raise _first(failed) from None
    finally:
        given_up.set()  # Kafka clients run in threads


async def _stream(
    cluster: DemoCluster,
    client: seaweedmq.aio.Client,
    bars: Bars,
    records: pa.Table,
    rates: Rates,
    given_up: threading.Event,
) -> Streamed:
    over = threading.Event()
    servers, total = ",".join(cluster.kafka), records.num_rows
    for_kafka, for_native = halves(records)
    coordinator = ""
    counts = _Counts(bars, total // 2, lambda: cluster.kill(coordinator))
    sent_by_kafka = counts.bar(SENT_BY_KAFKA, for_kafka.num_rows, publishes=True)
    sent_natively = counts.bar(SENT_NATIVELY, for_native.num_rows, publishes=True)
    read_by_kafka, read_natively = counts.bar(READ_BY_KAFKA, total), counts.bar(READ_NATIVELY, total)
    group = kafka.KafkaGroup(
        servers, KAFKA_TOPIC, GROUP, members=MEMBERS, partitions=PARTITIONS, expected=total, count=read_by_kafka
    )
    async with asyncio.TaskGroup() as tasks:
        consuming = tasks.create_task(group.read(over, given_up))
        await group.complete.wait()
        coordinator = await asyncio.to_thread(group.coordinator)
        say(
            f"publishing {total:,} flights to {TOPIC}, {PARTITIONS} partitions with {REPLICAS} replicas each, keyed by "
            f"{KEY}: half of the planes' by librdkafka, half by SeaweedMQ's client; read by a group of each"
        )
        reading = tasks.create_task(
            rates.of(READ_NATIVELY, records, native.read(client, TOPIC, GROUP, MEMBERS, total, read_natively))
        )
        publishing = native.publish(client, TOPIC, for_native, sent_natively, TIMEOUT_S)
        tasks.create_task(rates.of(SENT_NATIVELY, for_native, publishing))
        producing = in_thread(partial(kafka.publish, servers, KAFKA_TOPIC, for_kafka, sent_by_kafka, given_up))
        tasks.create_task(rates.of(SENT_BY_KAFKA, for_kafka, producing))
        await rates.of(READ_BY_KAFKA, records, group.finished.wait())
        rebalances = group.rebalances
        over.set()
        await consuming
    committed = await asyncio.to_thread(group.committed)
    check(committed == total, f"the group of Kafka consumers has committed {committed:,} flights")
    return Streamed(arrived(group.pieces), arrived(reading.result()), rebalances)


def _first(failed: Exception) -> Exception:
    """Return the first of several errors, which often have one cause."""
    while isinstance(failed, ExceptionGroup):
        failed = failed.exceptions[0]
    return failed
