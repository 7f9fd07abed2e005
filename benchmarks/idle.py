"""Claim: an idle broker of three, with 100 topics, takes at most 2 % of a core and 150 MB."""

import time
from concurrent.futures import ThreadPoolExecutor

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.processes import CORE, LIBRARIES, bare_python, cpu_percents, figures, resident_mb
from benchmarks.scale import Scale

BROKERS = 3
TOPICS = 100
AT_ONCE = 8
CPU_PERCENT_MAX = 2.0
RESIDENT_MB_MAX = 150.0
SETTLE_S = 3.0


def run(scale: Scale) -> list[Measure]:
    """CPU and resident memory of each broker; the figures are those of the hungriest, the others are in ``brokers``."""
    with scratch(scale.directory) as folder, running_cluster(folder / "data", brokers=BROKERS) as cluster:
        with seaweedmq.connect(cluster.bootstrap) as client:
            names = [f"bench/idle-{number}" for number in range(TOPICS)]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(client.admin.create_topic, names))
        time.sleep(SETTLE_S)
        shares = cpu_percents(cluster.pids, scale.idle_s)
        resident = [resident_mb(pid) for pid in cluster.pids]
    _, bare_mb = bare_python()
    return [
        yardstick(CORE, [100.0], "%"),
        yardstick(LIBRARIES, [bare_mb], "MB"),
        compared("idle_cpu", [max(shares)], "%", CORE, [100.0], value_max=CPU_PERCENT_MAX, brokers=figures(shares)),
        compared(
            "idle_resident",
            [max(resident)],
            "MB",
            LIBRARIES,
            [bare_mb],
            value_max=RESIDENT_MB_MAX,
            brokers=figures(resident),
        ),
    ]
