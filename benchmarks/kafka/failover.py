"""Claims: when a primary is killed an idempotent librdkafka producer waits at most 1 s for its next acknowledgement,
and nothing is lost, stored twice or out of order; when a group's coordinator is killed, commits resume within 1.5 s,
without a rebalance.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import seaweedmq
from benchmarks.cluster import BenchCluster, running_cluster, scratch
from benchmarks.contest.errors import Failed
from benchmarks.contest.process import SPAWN, ClientProcess
from benchmarks.kafka.commits import find_coordinator
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
ATTEMPTS, CLUSTERS = 16, 6
"""Attempts to find something that the leader does not own: the cluster chooses the owners."""
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
FETCHING, PAUSED = "kafka_commits_resume", "kafka_commits_resume_paused"
"""Measures of a member that fetches an idle topic, as consumers do, and of one that does not: see ``committer``."""
COMMITTED = "commits while coordinators were killed"


@dataclass(frozen=True, slots=True)
class _Kill:
    gap_s: float
    slowest_ms: float
    acknowledged: int
    refused: int
    verdict: Verdict


class _Unfit(Failed):
    """A cluster whose leader owns everything, so that another is needed."""


def run(scale: Scale) -> list[Measure]:
    """Measure on three brokers with two replicas, new ones for each kill; the figure of a kill is its worst round.

    The victim is not the cluster's leader: then its lease must end first, as in the suite ``failures``.
    """
    rounds = 1 if scale.quick else ROUNDS
    kills = [_in_cluster(scale, _kill_primary) for _ in range(rounds)]
    commits = {
        name: [_in_cluster(scale, partial(_kill_coordinator, is_paused=name == PAUSED)) for _ in range(rounds)]
        for name in (FETCHING, PAUSED)
    }
    ttl = [BrokerConfig().lease_ttl_s]
    acked = [float(sum(kill.acknowledged for kill in kills))]
    verdict = sum((kill.verdict for kill in kills), Verdict())
    gaps_s = [kill.gap_s for kill in kills]
    counts = {"lost": verdict.lost, "twice": verdict.stored_twice, "reordered": verdict.reordered}
    counts["refused"] = sum(kill.refused for kill in kills)
    done = [float(sum(one.commits for found in commits.values() for one in found))]
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
        *(
            compared(
                name,
                [max(one.gap_s for one in found)],
                "s",
                LEASE,
                ttl,
                value_max=COMMITS_S_MAX,
                rounds=[round(one.gap_s, 3) for one in found],
                failed=dict(sum((Counter(one.failed) for one in found), Counter())),
            )
            for name, found in commits.items()
        ),
        yardstick(ACKED, acked, "records"),
        *(
            compared(f"kafka_killed_{name}", [float(count)], "records", ACKED, acked, value_max=0)
            for name, count in counts.items()
        ),
        yardstick(COMMITTED, done, "commits"),
        *(
            compared(
                f"{name}_rebalances",
                [float(sum(one.rebalances for one in found))],
                "rebalances",
                COMMITTED,
                done,
                value_max=0,
            )
            for name, found in commits.items()
        ),
    ]


def _in_cluster(scale: Scale, work: Any) -> Any:
    for attempt in range(CLUSTERS):
        with (
            scratch(scale.directory) as folder,
            running_cluster(folder / "data", brokers=BROKERS, kafka=True) as cluster,
        ):
            try:
                return work(cluster, folder)
            except _Unfit:
                if attempt == CLUSTERS - 1:
                    raise
    raise AssertionError("no cluster was tried")


def _kill_primary(cluster: BenchCluster, folder: Path) -> _Kill:
    servers = Servers(cluster.kafka)
    topic, victim = _spared(cluster, "killed", partial(_primary_of_new, servers))
    is_killed = False

    def tick(elapsed_s: float) -> None:
        nonlocal is_killed
        if elapsed_s >= BEFORE_S and not is_killed:
            is_killed = True
            if leader_of(servers, topic, 0) != victim:
                raise Failed(f"{victim} is no longer the primary of {topic}")
            _kill(cluster, victim)

    with Crew(servers, topic, TIER, folder) as crew:
        crew.join()
        (produced,) = crew.produce(TIER.producers, TIER.records_per_s, TIER.seconds, tick)
        crew.drain()
        crew.leave()
        acknowledged = produced.sent - len(produced.refused)
        verdict = crew.verdict()
    return _Kill(produced.ack_gap_s, produced.ack_ms_max, acknowledged, len(produced.refused), verdict)


def _kill_coordinator(cluster: BenchCluster, _: Path, *, is_paused: bool) -> Commits:
    servers = Servers(cluster.kafka)
    create_topic(servers, "committed", TIER, TIER.seconds)
    group, victim = _spared(cluster, "survivors", partial(_coordinator_of_new, cluster.kafka))
    ready, stop = SPAWN.Event(), SPAWN.Event()
    arguments = {"servers": cluster.kafka, "topic": "committed", "group": group, "ready": ready, "stop": stop}
    with ClientProcess(commit_on_and_on, is_paused=is_paused, **arguments) as process:
        process.expect(ready)
        time.sleep(BEFORE_S)
        if coordinator_of(cluster.kafka, group) != victim:
            raise Failed(f"{victim} no longer coordinates {group}")
        _kill(cluster, victim)
        time.sleep(AFTER_S)
        stop.set()
        return process.result()


def _spared(cluster: BenchCluster, stem: str, owner_of: Callable[[str], str]) -> tuple[str, str]:
    """Return a name with this prefix, and its owner, not the leader of the cluster. Raises Failed if there is none."""
    with seaweedmq.connect(cluster.bootstrap) as client:
        leaders = {one.info.kafka_address for one in client.admin.cluster_status().brokers if one.is_leader}
    for number in range(ATTEMPTS):
        owner = owner_of(f"{stem}-{number}")
        if owner not in leaders:
            return f"{stem}-{number}", owner
    raise _Unfit(f"the cluster's leader owns everything that was made in {ATTEMPTS} attempts")


def _primary_of_new(servers: Servers, topic: str) -> str:
    create_topic(servers, topic, TIER, TIER.seconds)
    return leader_of(servers, topic, 0)


def _coordinator_of_new(bootstrap: str, group: str) -> str:
    return asyncio.run(find_coordinator(bootstrap, group))


def _kill(cluster: BenchCluster, address: str) -> None:
    """Return the broker of that Kafka address."""
    addresses = cluster.kafka.split(",")
    if address not in addresses:
        raise Failed(f"{address} is not in {cluster.kafka}")
    os.kill(cluster.pids[addresses.index(address)], signal.SIGKILL)
