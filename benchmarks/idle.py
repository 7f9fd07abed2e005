"""Claim: an idle broker of three, with 100 topics, takes at most 2 % of a core and 150 MB."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.publish import MB
from benchmarks.scale import Scale

BROKERS = 3
TOPICS = 100
AT_ONCE = 8
CPU_PERCENT_MAX = 2.0
RESIDENT_MB_MAX = 150.0
SETTLE_S = 3.0
LIBRARIES = "import grpc.aio, pyarrow, numpy, sys; print(flush=True); sys.stdin.read()"


def run(scale: Scale) -> list[Measure]:
    """CPU and resident memory of each broker; the figures are those of the hungriest, the others are in ``brokers``."""
    with scratch(scale.directory) as folder, running_cluster(folder / "data", brokers=BROKERS) as cluster:
        with seaweedmq.connect(cluster.bootstrap) as client:
            names = [f"bench/idle-{number}" for number in range(TOPICS)]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(client.admin.create_topic, names))
        processes = [psutil.Process(pid) for pid in cluster.pids]
        time.sleep(SETTLE_S)
        before = [_cpu_s(process) for process in processes]
        began = time.monotonic()
        time.sleep(scale.idle_s)
        seconds = time.monotonic() - began
        shares = [100 * (_cpu_s(p) - cpu_s) / seconds for p, cpu_s in zip(processes, before, strict=True)]
        resident = [p.memory_info().rss / MB for p in processes]
    bare = [_libraries_mb()]
    core, libraries = "one core", "python with grpc and pyarrow"
    return [
        yardstick(core, [100.0], "%"),
        yardstick(libraries, bare, "MB"),
        compared("idle_cpu", [max(shares)], "%", core, [100.0], value_max=CPU_PERCENT_MAX, brokers=_figures(shares)),
        compared(
            "idle_resident",
            [max(resident)],
            "MB",
            libraries,
            bare,
            value_max=RESIDENT_MB_MAX,
            brokers=_figures(resident),
        ),
    ]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _figures(values: list[float]) -> list[float]:
    return [round(value, 2) for value in values]


def _libraries_mb() -> float:
    """What a process holds that does nothing but import what a broker can not do without."""
    command = [sys.executable, "-c", LIBRARIES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        resident: int = psutil.Process(process.pid).memory_info().rss
        process.stdin.close()
    return resident / MB
