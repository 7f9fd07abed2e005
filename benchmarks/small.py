"""Claims about small records that go one by one: 1,000 stored records a second take 15 % of a core; without linger one
is written in 0.8 ms, and stored in 0.3 ms more than an fsync takes; a frame costs the broker 0.3 ms.
"""

import asyncio
import statistics
import time
from pathlib import Path

import seaweedmq
from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.measure import Measure, compared, percentile, yardstick
from benchmarks.processes import CORE, answer, cpu_s, run_worker
from benchmarks.publish import LEVELS
from benchmarks.raw_disk import SMALL_BYTES, small_syncs_s
from benchmarks.raw_stream import RawStream, raw_stream
from benchmarks.scale import Scale
from benchmarks.split_stall import split_stall
from seaweedmq import aio

RECORD = b"x" * 100
RECORDS_PER_S = 1_000
PERCENT_MAX = 15.0
WRITTEN_MS_MAX = 0.8
STORED_MS_MAX = 0.3
"""Milliseconds beyond an fsync."""
FRAME_MS_MAX = 0.3
PUBLISHERS = 8
WARM_UP_SENDS = 20
ROUNDS = 3
RAW_S = 0.5
SHARES = {"p50": 0.5, "p99": 0.99}
MESSAGE_CPU = "raw stream, CPU of a message"
SYNC, TRIP = "append + fdatasync of 512 B", "raw round trip of 512 B"


def run(scale: Scale) -> list[Measure]:
    """Measure on one broker with one replica."""
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data") as cluster,
        raw_stream() as raw,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        for level, durability in LEVELS.items():
            client.admin.create_topic(_topic(level), durability=durability, scaling="fixed")
        for number in range(PUBLISHERS):
            client.admin.create_topic(_topic(f"frames-{number}"), durability="replicated", scaling="fixed")
        raw_ms = _raw_message_ms(raw, scale)
        return [
            yardstick(CORE, [100.0], "%"),
            yardstick(MESSAGE_CPU, [raw_ms], "ms"),
            *_one_by_one(client, cluster, scale, raw_ms),
            _frame_cpu(cluster, scale, raw_ms),
            *_send_times(client, raw, folder, scale),
            *split_stall(client, 1 if scale.quick else ROUNDS),
        ]


def _topic(name: str) -> str:
    return f"bench/small-{name}"


def _raw_message_ms(raw: RawStream, scale: Scale) -> float:
    """Return the CPU of the raw server per message, under as many streams as there are publishers."""
    before = cpu_s(raw.pid)
    raw.converse(PUBLISHERS, scale.small_sends, SMALL_BYTES)
    return (cpu_s(raw.pid) - before) / (PUBLISHERS * scale.small_sends) * 1e3


def _one_by_one(client: "seaweedmq.Client", cluster: BenchCluster, scale: Scale, raw_ms: float) -> list[Measure]:
    """Send a record every millisecond, each in its own frame, fsynced before it is acknowledged."""
    (pid,) = cluster.pids
    count = round(RECORDS_PER_S * scale.one_by_one_s)
    with client.publisher(_topic("stored"), linger_s=0) as publisher:
        publisher.send(RECORD).result()
        cpu_before_s, began_s = cpu_s(pid), time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began_s + number / RECORDS_PER_S - time.monotonic()))
            publisher.send(RECORD)
        publisher.flush(timeout=60)
        elapsed_s, spent_s = time.monotonic() - began_s, cpu_s(pid) - cpu_before_s
    percent, frame_ms = 100 * spent_s / elapsed_s, spent_s / count * 1e3
    rate = round(count / elapsed_s)
    return [
        compared("one_by_one_cpu", [percent], "%", CORE, [100.0], value_max=PERCENT_MAX, records_per_s=rate),
        compared("one_by_one_frame_cpu", [frame_ms], "ms", MESSAGE_CPU, [raw_ms], records_per_s=rate),
    ]


def _frame_cpu(cluster: BenchCluster, scale: Scale, raw_ms: float) -> Measure:
    """Run the worker: eight publishers, a topic each, that send the next record once the last is acknowledged."""
    (pid,) = cluster.pids
    frames = PUBLISHERS * scale.small_sends
    before_s = cpu_s(pid)
    took_s = run_worker("benchmarks.small", bootstrap=cluster.bootstrap, sends=scale.small_sends)
    frame_ms = (cpu_s(pid) - before_s) / frames * 1e3
    rate = round(frames / took_s)
    return compared("frame_cpu", [frame_ms], "ms", MESSAGE_CPU, [raw_ms], value_max=FRAME_MS_MAX, frames_per_s=rate)


async def _publish_frames(bootstrap: str, sends: int) -> float:
    """Run the worker; return its seconds."""
    async with aio.connect(bootstrap) as client:
        began = time.perf_counter()
        await asyncio.gather(*(_publish_one_by_one(client, number, sends) for number in range(PUBLISHERS)))
        return time.perf_counter() - began


async def _publish_one_by_one(client: aio.Client, number: int, sends: int) -> None:
    async with client.publisher(_topic(f"frames-{number}"), linger_s=0) as publisher:
        for _ in range(sends):
            await (await publisher.send(RECORD))


def _send_times(client: "seaweedmq.Client", raw: RawStream, folder: Path, scale: Scale) -> list[Measure]:
    """Call ``send(linger 0).result()``, again and again; percentiles are of a round."""
    found: dict[str, list[float]] = {}
    for _ in range(1 if scale.quick else ROUNDS):
        times_ms = {
            TRIP: raw.round_trips_ms(RAW_S, SMALL_BYTES),
            SYNC: [took_s * 1e3 for took_s in small_syncs_s(folder, scale.small_sends)],
            **{level: _send_ms(client, level, scale.small_sends) for level in LEVELS},
        }
        for name, ascending in times_ms.items():
            for share, of_all in SHARES.items():
                found.setdefault(f"{name} {share}", []).append(percentile(ascending, of_all))
    targets = {"written": WRITTEN_MS_MAX, "stored": STORED_MS_MAX + statistics.median(found[f"{SYNC} p50"])}
    yardsticks = {"written": TRIP, "stored": SYNC}
    measures = [yardstick(f"{of} {share}", found[f"{of} {share}"], "ms") for of in (TRIP, SYNC) for share in SHARES]
    for level, of in yardsticks.items():
        for share, value_max in (("p50", targets[level]), ("p99", None)):
            name = f"send_{level}_{share}"
            ours, theirs = found[f"{level} {share}"], found[f"{of} {share}"]
            measures.append(compared(name, ours, "ms", f"{of} {share}", theirs, value_max=value_max))
    return measures


def _send_ms(client: "seaweedmq.Client", level: str, count: int) -> list[float]:
    """Return milliseconds of each send, ascending."""
    took_ms: list[float] = []
    with client.publisher(_topic(level), linger_s=0) as publisher:
        for _ in range(WARM_UP_SENDS):
            publisher.send(RECORD).result()
        for _ in range(count):
            began = time.perf_counter()
            publisher.send(RECORD).result()
            took_ms.append((time.perf_counter() - began) * 1e3)
    return sorted(took_ms)


if __name__ == "__main__":
    answer(_publish_frames)
