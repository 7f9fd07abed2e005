"""`make demo`: 336,776 real flights through a local cluster and back with Spark, every record verified.

Each flight gets a row number. The members of a group share the reading while the publisher sends, and in the middle
one of the three brokers is killed with SIGKILL. In the end the rows that all members got, sorted by number, must equal
the rows that were sent, and along every tail number the row numbers must rise.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa

import seaweedmq.aio
from seaweedmq.cli.demo.flights import COUNT, KEY, DemoFailed, check, flights_path, read_flights, verify
from seaweedmq.cli.demo.spark import compare_means
from seaweedmq.cli.output import Bar, Output, one_line_errors, progress, say, show_rows
from seaweedmq.codec.paths import parse_segment_file, table_dir
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.free_ports import free_ports

TOPIC = "demo/flights"
SEGMENTS = 6
REPLICAS = 2
BROKERS = 3
GROUP = "demo"
MEMBERS = 3
SLICE_ROWS = 4_096
START_TIMEOUT_S = 60.0
STREAM_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 75.0
"""More than ``seaweedmq up`` gives its brokers, and time to stop etcd."""
TABLES_TIMEOUT_S = 30.0
STEPS = PUBLISH, SUBSCRIBE, SPARK = "publish, 2 replicas", f"group of {MEMBERS}, live", "Spark: read, group, mean"

BROKER_SETTINGS = """
# Small and young files, so that a minute's demo shows them all: logs, and the Parquet they become.
log_roll_bytes = 4_194_304
log_roll_age_s = 2.0
maintenance_interval_s = 1.0
"""


@dataclass(slots=True)
class Rates:
    """What was measured."""

    rows: list[dict[str, str]] = field(default_factory=list)

    def add(self, step: str, flights: pa.Table, elapsed_s: float) -> None:
        """A step that took all flights through."""
        self.rows.append(
            {
                "step": step,
                "seconds": f"{elapsed_s:.2f}",
                "records/s": f"{flights.num_rows / elapsed_s:,.0f}",
                "MB/s": f"{flights.nbytes / elapsed_s / 1e6:,.1f}",
            }
        )


async def demo() -> None:
    """Run all of it.

    Raises:
        DemoFailed: a count, an order, a value or a mean is off, or a process stayed behind.
    """
    began_s = time.monotonic()
    path = flights_path()
    flights = read_flights(path)
    rates = Rates()
    with tempfile.TemporaryDirectory(prefix="seaweedmq-demo-") as folder:
        async with cluster(Path(folder)) as (addresses, pids):
            batches = await stream(addresses, pids, flights, rates)
            planes = verify(flights, batches)
            say(f"every flight arrived once and unchanged, in order for each of {planes:,} planes")
            storage = Path(folder) / "data" / "storage"
            await until_parquet(storage)
            say("reading the Parquet files with Spark (it takes a while to start)")
            rates.add(SPARK, flights, await compare_means(storage, TOPIC, path))
            say("Spark and the CSV agree")
    check(not psutil.Process().children(recursive=True), "a process was left behind")
    say("")
    show_rows(sorted(rates.rows, key=lambda row: STEPS.index(row["step"])), list(rates.rows[0]), Output.TABLE)
    say(f"\neverything in {time.monotonic() - began_s:.1f} s\ndemo: OK")


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[str, list[int]]]:
    """A cluster below ``folder`` by `seaweedmq up`; yields its addresses and the brokers' pids, checks that nothing of
    it stays."""
    settings = folder / "broker.toml"
    settings.write_text(BROKER_SETTINGS)
    command = [sys.executable, "-m", "seaweedmq.cli.main", "up", "--brokers", str(BROKERS), "--config", str(settings)]
    command += ["--data", str(folder / "data"), "--port", str(free_ports(BROKERS))]
    command += ["--parent-pid", str(os.getpid())]
    say(f"starting etcd and {BROKERS} brokers")
    up = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=None,
        start_new_session=True,  # Ctrl-C is for us; we stop the cluster in order
    )
    family: list[psutil.Process] = []
    try:
        assert up.stdout is not None
        async with asyncio.timeout(START_TIMEOUT_S):
            line = (await up.stdout.readline()).decode()
        check(line.startswith("ready "), "the cluster did not start")
        _, addresses, _, *pids = line.split()
        say(f"cluster {addresses}, brokers {' '.join(pids)}")
        yield addresses, [int(pid) for pid in pids]
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
        with contextlib.suppress(ProcessLookupError):
            up.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                status = await up.wait()
        except TimeoutError:
            up.kill()
            status = await up.wait()
    check(status == 0, f"the cluster stopped with exit status {status}")
    check(not any(process.is_running() for process in family), "a process of the cluster is still there")


async def stream(addresses: str, pids: list[int], flights: pa.Table, rates: Rates) -> list[pa.RecordBatch]:
    """Publish while a group reads and a broker is killed; return the batches as they came."""
    say(
        f"publishing {flights.num_rows:,} flights to {TOPIC}, {SEGMENTS} segments with {REPLICAS} replicas each, "
        f"keyed by {KEY}, read as they come by a group of {MEMBERS}"
    )
    async with seaweedmq.aio.connect(addresses) as client:
        await client.admin.create_topic(TOPIC, segments=SEGMENTS, replicas=REPLICAS, schema=flights.schema)
        with progress("flights") as bars:
            sent, read = bars.add("publish", flights.num_rows), bars.add("subscribe", flights.num_rows)
            try:
                async with asyncio.timeout(STREAM_TIMEOUT_S), asyncio.TaskGroup() as group:
                    reading = group.create_task(_subscribe(client, flights, read, rates))
                    group.create_task(_publish(client, flights, pids[-1], sent, rates))
            except TimeoutError:
                raise DemoFailed(f"the flights did not arrive within {STREAM_TIMEOUT_S:.0f} s") from None
        return reading.result()


async def _publish(client: "seaweedmq.aio.Client", flights: pa.Table, victim: int, bar: Bar, rates: Rates) -> None:
    began_s = time.monotonic()
    async with client.publisher(TOPIC) as publisher:
        for at in range(0, flights.num_rows, SLICE_ROWS):
            if at // SLICE_ROWS == flights.num_rows // SLICE_ROWS // 2:
                say(f"killing broker {victim} with SIGKILL")
                os.kill(victim, signal.SIGKILL)
            await publisher.send_table(flights.slice(at, SLICE_ROWS), key=KEY)
            bar.at(min(at + SLICE_ROWS, flights.num_rows))
        await publisher.flush(timeout=STREAM_TIMEOUT_S)
    rates.add(PUBLISH, flights, time.monotonic() - began_s)


async def _subscribe(client: "seaweedmq.aio.Client", flights: pa.Table, bar: Bar, rates: Rates) -> list[pa.RecordBatch]:
    began_s = time.monotonic()
    batches: list[pa.RecordBatch] = []
    records = 0
    async with contextlib.AsyncExitStack() as stack:
        joining = [client.subscriber(TOPIC, group=GROUP, start="earliest") for _ in range(MEMBERS)]
        members = [await stack.enter_async_context(member) for member in joining]

        async def read(member: "seaweedmq.aio.GroupSubscriber") -> None:
            nonlocal records
            async for batch in member.batches():
                batches.append(batch)
                member.ack(batch)
                records += batch.num_rows
                bar.at(records)
                if records >= flights.num_rows:
                    for each in members:
                        each.end()

        async with asyncio.TaskGroup() as group:
            for member in members:
                group.create_task(read(member))
    rates.add(SUBSCRIBE, flights, time.monotonic() - began_s)
    return batches


async def until_parquet(storage: Path) -> None:
    """Return when the brokers have turned all log files into Parquet.

    Raises:
        DemoFailed: they did not in time.
    """
    with progress("flights") as bars:
        bar = bars.add("logs to Parquet", COUNT)
        files = await asyncio.to_thread(_tables, storage)
        try:
            async with asyncio.timeout(TABLES_TIMEOUT_S):
                while (records := sum(file.records for file in files)) < COUNT:
                    bar.at(records)
                    await asyncio.sleep(0.1)
                    files = await asyncio.to_thread(_tables, storage)
        except TimeoutError:
            raise DemoFailed(f"the log files did not all become Parquet within {TABLES_TIMEOUT_S:.0f} s") from None
    say(f"the brokers made {len(files)} Parquet files of them, {sum(file.size_bytes for file in files) / 1e6:.1f} MB")


class _Table(NamedTuple):
    records: int
    size_bytes: int


def _tables(storage: Path) -> list[_Table]:
    """The Parquet files that are complete; their names say what they hold."""
    found = []
    for path in (storage / table_dir(TopicName.parse(TOPIC))).glob("*.parquet"):
        name = parse_segment_file(path.relative_to(storage).as_posix())
        if name is not None and name.end_offset is not None:
            found.append(_Table(name.end_offset - name.base_offset, path.stat().st_size))
    return found


if __name__ == "__main__":
    with one_line_errors():
        asyncio.run(demo())
