"""Claims: 1.5 s after ``seaweedmq up`` on an empty folder a client has its first acknowledgement, and a broker in a
stream of records holds at most 600 MB.
"""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import seaweedmq
from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.data import random_table
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.processes import LIBRARIES, bare_python, resident_mb
from benchmarks.publish import MB
from benchmarks.scale import MIB, Scale
from seaweedmq.runtime.process.free_ports import ReservedPort

UP_S_MAX = 1.5
RESIDENT_MB_MAX = 600.0
ROUNDS = 3
PATIENCE_S = 60.0
TOPIC = "bench/first"
STREAMED = "bench/streamed"
TABLE_BYTES = 16 * MIB
RECORD_BYTES = 1_000
LOOK_INTERVAL_S = 0.02
STARTED, HELD = f"start of {LIBRARIES}", f"{LIBRARIES}, beside a stream"


def run(scale: Scale) -> list[Measure]:
    """Measure one broker with its default settings."""
    with scratch(scale.directory) as folder:
        rounds = range(1 if scale.quick else ROUNDS)
        bare_s, bare_mb = zip(*(bare_python() for _ in rounds), strict=True)
        up_s = [_first_ack_s(folder / f"up-{number}") for number in rounds]
        with running_cluster(folder / "streamed") as cluster:
            peak_mb, streamed_mb = _stream(cluster, scale.memory_s / 2)
    return [
        yardstick(STARTED, bare_s, "s"),
        compared("up_to_first_ack", up_s, "s", STARTED, bare_s, value_max=UP_S_MAX),
        yardstick(HELD, bare_mb, "MB"),
        compared(
            "resident_streaming",
            [peak_mb],
            "MB",
            HELD,
            bare_mb[:1],
            value_max=RESIDENT_MB_MAX,
            streamed_mb=round(streamed_mb),
        ),
    ]


def _first_ack_s(data: Path) -> float:
    """Measure from the start of the command until a record is acknowledged; the client runs already, and retries."""
    port = ReservedPort()
    command = [sys.executable, "-m", "seaweedmq.cli.main", "up", "--brokers", "1", "--data", str(data)]
    command += ["--port", str(port.port), "--log-level", "error", "--parent-pid", str(os.getpid())]
    patient = seaweedmq.ClientConfig(connect_timeout_s=PATIENCE_S, connect_refused_s=PATIENCE_S)
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as up:
        try:
            with seaweedmq.connect(port.address, config=patient) as client:
                client.admin.create_topic(TOPIC)
                with client.publisher(TOPIC) as publisher:
                    publisher.send(b"first").result(timeout=PATIENCE_S)
                    return time.perf_counter() - began
        finally:
            up.terminate()


def _stream(cluster: BenchCluster, seconds: float) -> tuple[float, float]:
    """Return the peak resident MB of the broker while tables are published at full speed, and read; and their MB."""
    (pid,) = cluster.pids
    table = random_table(TABLE_BYTES, RECORD_BYTES)
    ended = threading.Event()
    peak_mb = 0.0
    with seaweedmq.connect(cluster.bootstrap) as client, ThreadPoolExecutor(2) as pool:
        client.admin.create_topic(STREAMED, durability="replicated", scaling="fixed")
        with client.subscriber(STREAMED, start="earliest") as subscriber:

            def publish() -> None:
                with client.publisher(STREAMED) as publisher:
                    while not ended.is_set():
                        publisher.send_table(table)

            def read() -> int:
                return sum(batch.num_rows for batch in subscriber.batches())

            publishing, reading = pool.submit(publish), pool.submit(read)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                peak_mb = max(peak_mb, resident_mb(pid))
                time.sleep(LOOK_INTERVAL_S)
            ended.set()
            publishing.result()
        rows = reading.result()
    return peak_mb, rows * RECORD_BYTES / MB
