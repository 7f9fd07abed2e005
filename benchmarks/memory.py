"""Claim: a broker that is fed faster than its disk uses at most 1.2 of its memory bound."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

import seaweedmq
from benchmarks.cluster import scratch
from benchmarks.data import random_table
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.publish import MB
from benchmarks.scale import MIB, Scale
from benchmarks.slow_broker import DISK_BYTES_PER_S
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.errors import SeaweedMQError
from seaweedmq.runtime.process.free_ports import ReservedPort

RATIO_MAX = 1.2
OF = "memory_bytes_max"
MEMORY_BYTES_MAX = 512 * MIB
TOPICS = 12
"""Number of topics. Each may hold ``segment_buffer_bytes_max``, 64 MiB: together more than the broker may."""
FEEDERS = 2
TABLE_BYTES = 16 * MIB
LOOK_INTERVAL_S = 0.02
START_TIMEOUT_S = 30.0


def run(scale: Scale) -> list[Measure]:
    """Let two processes publish to twelve topics at full speed; the figure is the peak.

    Once with a disk of 20 MB/s and, unless in a hurry, once with the real one, where network and processor limit.
    """
    with scratch(scale.directory) as folder, asyncio.Runner() as runner:
        etcd = LocalEtcd(folder / "etcd")
        runner.run(etcd.start())
        try:
            seconds = scale.memory_s / 2
            slow_bytes, stored_bytes = _feed(folder / "slow", etcd.endpoint, seconds, "benchmarks.slow_broker")
            if stored_bytes > 2 * DISK_BYTES_PER_S * seconds:
                raise AssertionError(f"{stored_bytes} bytes were stored in {seconds:.0f} s: the disk is not slow")
            measures = [
                yardstick(OF, [MEMORY_BYTES_MAX / MB], "MB"),
                _peak("memory_peak", slow_bytes, stored_bytes, disk_mb_per_s=DISK_BYTES_PER_S / MB),
            ]
            if not scale.quick:
                fast_bytes, stored_bytes = _feed(folder / "fast", etcd.endpoint, seconds, "seaweedmq.cli.main")
                measures.append(_peak("memory_peak_real_disk", fast_bytes, stored_bytes))
        finally:
            runner.run(etcd.stop())
    return measures


def _peak(name: str, peak_bytes: int, stored_bytes: int, **details: float) -> Measure:
    stored_mb, bound_mb = round(stored_bytes / MB), MEMORY_BYTES_MAX / MB
    return compared(name, [peak_bytes / MB], "MB", OF, [bound_mb], ratio_max=RATIO_MAX, stored_mb=stored_mb, **details)


def _feed(folder: Path, etcd: str, seconds: float, program: str) -> tuple[int, int]:
    """Return peak resident bytes, and bytes that reached the files."""
    storage = folder / "storage"
    storage.mkdir(parents=True)
    config = folder / "config.toml"
    config.write_text(f"memory_bytes_max = {MEMORY_BYTES_MAX}\nmaintenance_interval_s = 3600\n")
    port = ReservedPort()
    address = port.address
    topics = f"bench/{folder.name}"
    command = [sys.executable, "-m", program, "broker", "--etcd", etcd, "--storage", str(storage)]
    command += ["--listen", address, "--config", str(config), "--parent-pid", str(os.getpid()), "--log-level", "error"]
    broker = subprocess.Popen(command)
    feeders: list[subprocess.Popen[bytes]] = []
    try:
        _create_topics(address, topics)
        feeders += [
            subprocess.Popen([sys.executable, "-m", "benchmarks.memory", address, topics]) for _ in range(FEEDERS)
        ]
        process = psutil.Process(broker.pid)
        peak = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            peak = max(peak, process.memory_info().rss)
            time.sleep(LOOK_INTERVAL_S)
        if any(feeder.poll() is not None for feeder in feeders):
            raise AssertionError("a publisher ended: the broker must make it wait, not fail")
        return peak, sum(path.stat().st_size for path in storage.rglob("*.log"))
    finally:
        for child in (*feeders, broker):
            child.kill()
            child.wait()


def _create_topics(address: str, topics: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with seaweedmq.connect(address) as client:
                for number in range(TOPICS):
                    client.admin.create_topic(f"{topics}-{number}", durability="replicated", scaling="fixed")
            return
        except SeaweedMQError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_INTERVAL_S)


def _publish_without_end(address: str, topics: str) -> None:
    table = random_table(TABLE_BYTES, 1_000)
    with seaweedmq.connect(address) as client:
        publishers = [client.publisher(f"{topics}-{number}") for number in range(TOPICS)]
        while True:
            for publisher in publishers:
                publisher.send_table(table)


if __name__ == "__main__":
    _publish_without_end(sys.argv[1], sys.argv[2])
