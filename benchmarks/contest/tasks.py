"""Tasks of client processes: each function does one unit of work, and returns its figures.

They check counts: a server must hold as many records as were published to it, and a consumer must get as many records
and bytes. A deviation raises, and there is no figure then.
"""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event

from benchmarks.contest.client import Client, Topic
from benchmarks.contest.clients import client_class
from benchmarks.contest.errors import Failed, Unacknowledged
from benchmarks.contest.feed import CHUNK_RECORDS, Feed, Schedule, due_ns
from benchmarks.contest.results import Figures
from benchmarks.contest.watch import MB, Watch
from benchmarks.measure import percentile

WARM_UP_S = 1.0
"""Seconds at the start of a schedule that do not count."""
RETRY_S = 0.005
NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Target:
    """The server that clients use, and whose processes are watched."""

    system: str
    address: str
    fsync: bool
    pids: tuple[int, ...] = ()

    def connect(self) -> Client:
        """Connect. Raises the client's ``not_ready`` errors."""
        return client_class(self.system)(self.address, fsync=self.fsync)


def first_record(target: Target, ready: Event) -> Figures:
    """Wait for the starting server until one record is acknowledged; return that time, in monotonic ns.

    Args:
        ready: Set when the wait begins.
    """
    too_early: tuple[type[Exception], ...] = (Unacknowledged, *client_class(target.system).not_ready)
    ready.set()
    _until_accepted(target.address)
    attempts = 0
    while True:
        attempts += 1
        try:
            with target.connect() as client:
                topic = Topic(f"first-{attempts}")
                client.create([topic])
                client.publish("", topic, Feed(1, 0.0, 1), Watch(()))
                return {"at_ns": time.monotonic_ns()}
        except too_early:
            time.sleep(RETRY_S)  # the parent kills this process after a timeout


def create(target: Target, topics: Sequence[Topic]) -> Figures:
    """Create topics; return the duration, if creation has an effect."""
    with target.connect() as client:
        began = time.perf_counter()
        client.create(topics)
        took_s = time.perf_counter() - began
        return {"create_s": took_s} if client.creates_topics else {}


def delete(target: Target, topics: Sequence[Topic]) -> Figures:
    """Delete topics."""
    with target.connect() as client:
        client.delete(topics)
    return {}


def publish(target: Target, topic: Topic, call: str, record_bytes: int, seconds: float) -> Figures:
    """Publish at full speed for some seconds, and wait for the last acknowledgement."""
    call_bytes = client_class(target.system).call_bytes.get(call)
    chunk_records = CHUNK_RECORDS if call_bytes is None else call_bytes // record_bytes
    feed, watch = Feed(record_bytes, seconds, chunk_records), Watch(target.pids)
    with target.connect() as client:
        before = client.stored([topic])
        client.publish(call, topic, feed, watch)
        _expect(client.stored([topic]) - before, feed.count, "records stored", "published")
    return _rates(watch, feed.count, record_bytes)


def consume(target: Target, topic: Topic, call: str, record_bytes: int, count: int) -> Figures:
    """Consume all ``count`` records, from the beginning. Opening the consumer counts, connecting does not."""
    watch = Watch(target.pids)
    with target.connect() as client:
        with watch:
            tally = client.consume(call, topic)
        _expect(tally.records, count, "records consumed", "published")
        _expect(tally.value_bytes, count * record_bytes, "bytes consumed", "published")
    return _rates(watch, count, record_bytes)


def send(target: Target, topics: Sequence[Topic], schedule: Schedule) -> Figures:
    """Send by a schedule to new topics, in turn."""
    watch = Watch(target.pids)
    with target.connect() as client:
        client.send(topics, schedule, watch)
        _expect(client.stored(topics), schedule.count, "records stored", "sent")
    return {
        "late_ms_p99": percentile(sorted(schedule.late_ns), 0.99) / NS_PER_MS,
        "client_cpu_percent": 100 * watch.client_cpu_s / watch.wall_s,
        "server_cpu_percent": 100 * watch.server_cpu_s / watch.wall_s,
    }


def receive(target: Target, topic: Topic, schedule: Schedule, ready: Event) -> Figures:
    """Receive records that another process sends by a schedule to a new topic: from due to here, without the warm-up.

    Args:
        ready: Set when the sender may begin.
    """
    took_ns: list[int] = []
    with target.connect() as client:
        client.receive(topic, schedule.count, ready.set, _stopwatch(took_ns))
    _expect(len(took_ns), schedule.count, "records received", "sent")
    ascending = sorted(took_ns[round(WARM_UP_S * schedule.records_per_s) :])
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: percentile(ascending, share) / NS_PER_MS for name, share in shares.items()}


def _until_accepted(address: str) -> None:
    """Return when a server listens there: clients that try before lengthen the pauses between their attempts."""
    host, _, port = address.rpartition(":")
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(RETRY_S)


def _stopwatch(took_ns: list[int]) -> Callable[[bytes], None]:
    now, add = time.monotonic_ns, took_ns.append
    return lambda value: add(now() - due_ns(value))


def _rates(watch: Watch, records: int, record_bytes: int) -> Figures:
    value_bytes = records * record_bytes
    return {
        "records": records,
        "records_per_s": records / watch.wall_s,
        "mb_per_s": value_bytes / watch.wall_s / MB,
        "client_cpu_s_per_gb": watch.client_cpu_s / value_bytes * 1e9,
        "server_cpu_s_per_gb": watch.server_cpu_s / value_bytes * 1e9,
        "server_rss_mb": watch.server_rss_mb,
    }


def _expect(found: int, wanted: int, what: str, of: str) -> None:
    if found != wanted:
        raise Failed(f"{found:,} {what} where {wanted:,} were {of}")
