"""Claim: at 10,000 records/s of 100 B, linger 2 ms, written: from send to deliver p50 <= 4 ms and p99 <= 15 ms.

Publisher, broker and subscriber are three processes; the clock is the machine's monotonic one. Records are sent by an
open-loop schedule and timed from when they were due, so that a delayed publisher is not flattered.
"""

import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

import seaweedmq
from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.measure import Measure, compared, percentile, yardstick
from benchmarks.raw_stream import RawStream, raw_stream
from benchmarks.scale import Scale

RECORDS_PER_S = 10_000  # = BURST_RECORDS / BURST_S
RECORD_BYTES = 100
LINGER_S = 0.002
BURST_S = 0.001
BURST_RECORDS = 10
"""Step of the schedule."""
WARM_UP_S = 0.5
P50_MS_MAX = 4.0
P99_MS_MAX = 15.0
ROUNDS = 3
RAW_MESSAGE_BYTES = 2_400
"""Bytes of the records of one linger."""
STAMP_BYTES = 8
NS_PER_MS = 1e6


def run(scale: Scale) -> list[Measure]:
    """Measure on one broker with one replica."""
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data") as cluster,
        raw_stream() as raw,
    ):
        return delivery_times(cluster, raw, scale, replicas=1, p50_ms_max=P50_MS_MAX, p99_ms_max=P99_MS_MAX)


def delivery_times(
    cluster: BenchCluster,
    raw: RawStream,
    scale: Scale,
    *,
    replicas: int,
    p50_ms_max: float,
    p99_ms_max: float,
    suffix: str = "",
    beside: str = "",
) -> list[Measure]:
    """Run rounds of equal length, or one in a hurry, each beside raw round trips; percentiles are of a round.

    Args:
        p50_ms_max, p99_ms_max: Targets, from due to delivered.
        suffix, beside: Parts of the names of measures and of yardsticks, which are unique in a report.
    """
    rounds = 1 if scale.quick else ROUNDS
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        samples = _round(cluster, raw, f"bench/latency-{number}", replicas, scale.latency_s / rounds)
        for name, sample in samples.items():
            found.setdefault(name, []).append(sample)
    late = {"schedule_late_ms_p99": statistics.median(found["late p99"])}
    measures = [yardstick(f"raw round trip {share}{beside}", found[f"raw {share}"], "ms") for share in ("p50", "p99")]
    targets = {"deliver p50": p50_ms_max, "deliver p99": p99_ms_max, "ack p50": None, "ack p99": None}
    for figure, value_max in targets.items():
        what, share = figure.split()
        name, of = f"latency_{what}_{share}{suffix}", f"raw round trip {share}{beside}"
        details = late if share == "p99" else {}
        measures.append(compared(name, found[figure], "ms", of, found[f"raw {share}"], value_max=value_max, **details))
    return measures


def _round(cluster: BenchCluster, raw: RawStream, topic: str, replicas: int, seconds: float) -> dict[str, float]:
    trips = raw.round_trips_ms(seconds / 4, RAW_MESSAGE_BYTES)
    bursts = round((seconds + WARM_UP_S) / BURST_S)
    count = bursts * BURST_RECORDS
    with seaweedmq.connect(cluster.bootstrap) as client:
        client.admin.create_topic(topic, replicas=replicas, durability="replicated", scaling="fixed")
        reader = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.latency", cluster.bootstrap, topic, str(count)],
            stdout=subprocess.PIPE,
            text=True,
        )
        with reader:
            assert reader.stdout is not None
            if reader.stdout.readline() != "ready\n":
                raise AssertionError("the subscriber did not start")
            acks, late = _publish(client, topic, count)
            delivered = json.loads(reader.stdout.readline())
    if len(delivered) != count:
        raise AssertionError(f"{len(delivered)} of {count} records were delivered")
    skipped = int(RECORDS_PER_S * WARM_UP_S)
    result = {"raw p50": percentile(trips, 0.5), "raw p99": percentile(trips, 0.99)}
    for name, times_ns in (("deliver", delivered), ("ack", acks), ("late", late)):
        ascending = sorted(times_ns[skipped:])
        for share in (50, 99):
            result[f"{name} p{share}"] = percentile(ascending, share / 100) / NS_PER_MS
    return result


def _publish(client: "seaweedmq.Client", topic: str, count: int) -> tuple[list[int], list[int]]:
    """Return nanoseconds from due to acknowledged, and from due to sent."""
    acks: list[int] = [0] * count
    late: list[int] = []
    padding = bytes(RECORD_BYTES - STAMP_BYTES)
    now = time.monotonic_ns

    def acked(index: int, due: int, _: Future[Any]) -> None:
        acks[index] = now() - due

    with client.publisher(topic, linger_s=LINGER_S) as publisher:
        began = now() + 10_000_000
        for number in range(count // BURST_RECORDS):
            due = began + int(number * BURST_S * 1e9)
            time.sleep(max(0.0, (due - now()) / 1e9))
            for index in range(number * BURST_RECORDS, (number + 1) * BURST_RECORDS):
                late.append(now() - due)
                sent = publisher.send(due.to_bytes(STAMP_BYTES, "little") + padding)
                sent.add_done_callback(partial(acked, index, due))
        publisher.flush(timeout=60)
    return acks, late


def _read(bootstrap: str, topic: str, count: int) -> None:
    """Run the subscriber's process: nanoseconds from due to delivered of every record, as JSON on stdout."""
    now = time.monotonic_ns
    with (
        seaweedmq.connect(bootstrap) as client,
        client.subscriber(topic, start="earliest", limit=count, timeout=30) as subscriber,
    ):
        print("ready", flush=True)
        took = [now() - int.from_bytes(message.value[:STAMP_BYTES], "little") for message in subscriber]
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    _read(sys.argv[1], sys.argv[2], int(sys.argv[3]))
