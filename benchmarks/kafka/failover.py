"""Claims: when a primary is killed an idempotent librdkafka producer waits at most 1 s for its next acknowledgement,
and nothing is lost, stored twice or out of order; when a group's coordinator is killed commits resume within 1.5 s,
without a rebalance.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.contest.errors import Failed
from benchmarks.contest.process import SPAWN, ClientProcess
from benchmarks.kafka.committer import Commits, commit_on_and_on
from benchmarks.kafka.wire import coordinator_of
from benchmarks.kafka_load.checker import Verdict
from benchmarks.kafka_load.crew import Crew
from benchmarks.kafka_load.servers import Servers, create_topic, leader_of
from benchmarks.kafka_load.tiers import Group, Tier
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from seaweedmq.model.config import BrokerConfig

BROKERS = 3
GAP_S_MAX = 1.0
COMMITS_S_MAX = 1.5
ROUNDS = 5
BEFORE_S, AFTER_S = 3.0, 7.0
TIER = Tier(
    name="failover",
    seconds=BEFORE_S + AFTER_S,
    producers=1,
    records_per_s=2_000.0,
    groups=(Group("readers", 1, "range"),),
    partitions=1,
)
LEASE = "lease TTL of brokers"
ACKED = "records acknowledged by Kafka's Produce under kills"
COMMITTED = "commits while coordinators were killed"


@dataclass(frozen=True, slots=True)
class _Kill:
    gap_s: float
    slowest_ms: float
    acknowledged: int
    refused: int
    verdict: Verdict


def run(scale: Scale) -> list[Measure]:
    """Three brokers and two replicas, anew for each kill; the figure of a kill is its worst round."""
    rounds = 1 if scale.quick else ROUNDS
    kills = [_in_cluster(scale, _kill_primary) for _ in range(rounds)]
    commits = [_in_cluster(scale, _kill_coordinator) for _ in range(rounds)]
    ttl = [BrokerConfig().lease_ttl_s]
    acked = [float(sum(kill.acknowledged for kill in kills))]
    verdict = sum((kill.verdict for kill in kills), Verdict())
    gaps_s, waits_s = [kill.gap_s for kill in kills], [one.gap_s for one in commits]
    counts = {"lost": verdict.lost, "twice": verdict.stored_twice, "reordered": verdict.reordered}
    counts["refused"] = sum(kill.refused for kill in kills)
    rebalances = float(sum(one.rebalances for one in commits))
    done = [float(sum(one.commits for one in commits))]
    return [
        yardstick(LEASE, ttl, "s"),
        compared(
            "kafka_gap_primary_killed",
            [max(gaps_s)],
            "s",
            LEASE,
            ttl,
            value_max=GAP_S_MAX,
            rounds=[round(gap_s, 3) for gap_s in gaps_s],
            slowest_ack_ms=round(max(kill.slowest_ms for kill in kills)),
        ),
        compared(
            "kafka_commits_resume",
            [max(waits_s)],
            "s",
            LEASE,
            ttl,
            value_max=COMMITS_S_MAX,
            rounds=[round(wait_s, 3) for wait_s in waits_s],
        ),
        yardstick(ACKED, acked, "records"),
        *(
            compared(f"kafka_killed_{name}", [float(count)], "records", ACKED, acked, value_max=0)
            for name, count in counts.items()
        ),
        yardstick(COMMITTED, done, "commits"),
        compared("kafka_coordinator_killed_rebalances", [rebalances], "rebalances", COMMITTED, done, value_max=0),
    ]


def _in_cluster(scale: Scale, work: Any) -> Any:
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", brokers=BROKERS, kafka=True) as cluster,
    ):
        return work(cluster, folder)


def _kill_primary(cluster: BenchCluster, folder: Path) -> _Kill:
    servers = Servers(cluster.kafka)
    create_topic(servers, "killed", TIER, TIER.seconds)
    is_killed = False

    def tick(elapsed_s: float) -> None:
        nonlocal is_killed
        if elapsed_s >= BEFORE_S and not is_killed:
            is_killed = True
            _kill(cluster, leader_of(servers, "killed", 0))

    with Crew(servers, "killed", TIER, folder) as crew:
        crew.join()
        (produced,) = crew.produce(TIER.producers, TIER.records_per_s, TIER.seconds, tick)
        crew.drain()
        crew.leave()
        acknowledged = produced.sent - len(produced.refused)
        verdict = crew.verdict()
    return _Kill(produced.ack_gap_s, produced.ack_ms_max, acknowledged, len(produced.refused), verdict)


def _kill_coordinator(cluster: BenchCluster, _: Path) -> Commits:
    servers = Servers(cluster.kafka)
    create_topic(servers, "committed", TIER, TIER.seconds)
    ready, stop = SPAWN.Event(), SPAWN.Event()
    arguments = {"servers": cluster.kafka, "topic": "committed", "group": "survivors", "ready": ready, "stop": stop}
    with ClientProcess(commit_on_and_on, **arguments) as process:
        process.expect(ready)
        time.sleep(BEFORE_S)
        _kill(cluster, coordinator_of(cluster.kafka, "survivors"))
        time.sleep(AFTER_S)
        stop.set()
        return process.result()


def _kill(cluster: BenchCluster, address: str) -> None:
    """The broker that Kafka's clients find there."""
    addresses = cluster.kafka.split(",")
    if address not in addresses:
        raise Failed(f"{address} is none of {cluster.kafka}")
    os.kill(cluster.pids[addresses.index(address)], signal.SIGKILL)
