"""Claim: three brokers hold 12,000 open segments, which cost at most 2.4 times as much as 6,000.

An auto-created Kafka topic has four partitions of three replicas, which are 12 open segments, four on each broker. Each
size has a separate cluster: topics are created by calls of 100, nothing happens for a while, and a broker that does not
lead is killed. One client publishes to all key ranges, so each of the two remaining brokers then serves 2,000 publish
streams, more than fit the default of ``memory_bytes_max``.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.failover import BROKER, SEGMENTS, Failover, kill_and_wait, topic_name
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.processes import cpu_percents, figures, resident_mb
from benchmarks.scale import Scale
from seaweedmq.model.config import MIB, BrokerConfig

BROKERS = 3
REPLICAS = 3
TOPICS = (500, 1_000)
QUICK_TOPICS = (10, 20)
MEMORY_BYTES_MAX = 1_280 * MIB
"""Memory of each broker: enough for 2,200 streams."""
AT_ONCE = 100
"""Number of topics that one call creates."""
SETTLE_S = 5.0
QUICK_SETTLE_S = 1.0
RATIO_MAX = 2.4
"""Highest cost of twice as many segments: faster than linear growth shows here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of the open segments of one cluster, at its busiest broker."""

    open_segments: int
    created_s: float
    idle_percents: tuple[float, ...]
    """CPU of each broker, in % of one core."""
    resident_mb: tuple[float, ...]
    """Memory of each broker above that without any segment."""
    failover: Failover


def run(scale: Scale) -> list[Measure]:
    """Measure both sizes, and compare the larger with the smaller."""
    with scratch(scale.directory) as folder:
        half, whole = (
            _cost(folder / str(topics), topics, scale) for topics in (QUICK_TOPICS if scale.quick else TOPICS)
        )
    return rows(half, whole, scale)


def _cost(data: Path, topics: int, scale: Scale) -> Cost:
    with running_cluster(data, brokers=BROKERS, settings={"memory_bytes_max": MEMORY_BYTES_MAX}) as cluster:
        empty_mb = [resident_mb(pid) for pid in cluster.pids]
        began = time.perf_counter()
        with seaweedmq.connect(cluster.bootstrap) as client:
            names = [topic_name(number) for number in range(topics)]
            for at in range(0, topics, AT_ONCE):
                client.admin.create_topics(
                    names[at : at + AT_ONCE], segments=SEGMENTS, replicas=REPLICAS, scaling="fixed"
                )
            created_s = time.perf_counter() - began
            open_segments = sum(broker.open_segments for broker in client.admin.cluster_status().brokers)
        time.sleep(QUICK_SETTLE_S if scale.quick else SETTLE_S)
        percents = cpu_percents(cluster.pids, scale.idle_s)
        held_mb = [resident_mb(pid) - before for pid, before in zip(cluster.pids, empty_mb, strict=True)]
        return Cost(
            open_segments=open_segments,
            created_s=created_s,
            idle_percents=tuple(percents),
            resident_mb=tuple(held_mb),
            failover=kill_and_wait(cluster.bootstrap, topics, BROKER),
        )


def rows(half: Cost, whole: Cost, scale: Scale) -> list[Measure]:
    """Return the costs of the larger cluster beside those of the smaller one, which are the yardsticks."""

    def pair(name: str, unit: str, values: tuple[float, float], **details: Any) -> list[Measure]:
        of = f"{name}_{half.open_segments}_open_segments"
        return [
            yardstick(of, [values[0]], unit),
            compared(
                f"{name}_{whole.open_segments}_open_segments",
                [values[1]],
                unit,
                of,
                [values[0]],
                ratio_max=scale.target(RATIO_MAX),
                **details,
            ),
        ]

    failover = whole.failover
    return [
        *pair("create", "s", (half.created_s, whole.created_s)),
        *pair(
            "idle_cpu",
            "%",
            (max(half.idle_percents), max(whole.idle_percents)),
            brokers=figures(whole.idle_percents),
        ),
        *pair("memory", "MB", (max(half.resident_mb), max(whole.resident_mb)), brokers=figures(whole.resident_mb)),
        *pair(
            "failover",
            "s",
            (half.failover.all_s, failover.all_s),
            lease_ttl_s=BrokerConfig().lease_ttl_s,
            half_s=round(failover.half_s, 3),
            silent_ranges=failover.silent,
            segments_killed=failover.segments_killed,
            client_cpu_s=round(failover.client_cpu_s, 2),
            lost=failover.lost,
        ),
    ]
