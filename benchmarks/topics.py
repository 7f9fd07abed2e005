"""Claims about many topics: the speed of their creation, their idle cost, the time until all continue after a broker
was killed, delays and cost of 200 publishers of one client.

The clients of the last two are separate processes: ``failover.py`` and ``many_publishers.py``.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.failover import BROKER, LEADER, SEGMENTS, Failover, kill_and_wait, topic_name
from benchmarks.many_publishers import publishing
from benchmarks.measure import Measure, compared, percentile, yardstick
from benchmarks.processes import CORE, LIBRARIES, bare_python, cpu_percents, figures, resident_mb
from benchmarks.raw_disk import small_syncs_s
from benchmarks.scale import Scale
from seaweedmq.model.config import BrokerConfig

BROKERS = 3
REPLICAS = 2
LEASE_TTL_S = BrokerConfig().lease_ttl_s
QUICK_LEASE_TTL_S = 2.0
TTL = "lease TTL, many topics"
SETTLE_S = 3.0
QUICK_SETTLE_S = 1.0
SYNCS = 200
SYNCS_PER_S = "append + fdatasync of 512 B, one after another"
CREATED_PER_S_MIN = 200.0
CREATED_IN_BULK_PER_S_MIN = 1_000.0
RECORDS = "records acknowledged by all topics"
ALIKE: Mapping[str, Any] = {"segments": SEGMENTS, "replicas": REPLICAS, "scaling": "fixed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A number of topics of ``SEGMENTS`` segments, and its promises."""

    topics: int
    idle_percent_max: float
    idle_mb_max: float | None = None
    """Limit of idle memory; None: no promise."""
    failover_s_max: float
    """Limit of a failover, plus a lease if the leader was killed."""
    victims: tuple[str, ...] = (BROKER, LEADER)
    """Brokers to kill, each on a separate cluster."""
    lease_ttl_s: float = LEASE_TTL_S


SIZES = (
    Size(topics=100, idle_percent_max=1.0, idle_mb_max=150.0, failover_s_max=1.0),
    Size(topics=450, idle_percent_max=2.0, failover_s_max=3.0),
)
QUICK = (
    Size(
        topics=40,
        idle_percent_max=1.0,
        idle_mb_max=150.0,
        failover_s_max=1.0,
        victims=(LEADER,),
        lease_ttl_s=QUICK_LEASE_TTL_S,
    ),
)


def run(scale: Scale) -> list[Measure]:
    """Measure each size on two clusters of three brokers, one for each kill; then 200 publishers on one broker."""
    _, bare_mb = bare_python()
    sizes = QUICK if scale.quick else SIZES
    with scratch(scale.directory) as folder:
        syncs_per_s = 1 / percentile(small_syncs_s(folder, SYNCS), 0.5)
        measures = [
            yardstick(CORE, [100.0], "%"),
            yardstick(LIBRARIES, [bare_mb], "MB"),
            yardstick(TTL, [sizes[0].lease_ttl_s], "s"),
            yardstick(SYNCS_PER_S, [syncs_per_s], "1/s"),
        ]
        outcomes: list[Failover] = []
        for size in sizes:
            found, hurt = _measured(folder, size, scale, syncs_per_s, bare_mb)
            measures += found
            outcomes += hurt
        acknowledged = float(sum(outcome.acknowledged for outcome in outcomes))
        lost = float(sum(outcome.lost for outcome in outcomes))
        measures.append(yardstick(RECORDS, [acknowledged], "records"))
        measures.append(compared("failover_lost", [lost], "records", RECORDS, [acknowledged], value_max=0))
        return measures + publishing(folder, scale)


def _measured(
    folder: Path, size: Size, scale: Scale, syncs_per_s: float, bare_mb: float
) -> tuple[list[Measure], list[Failover]]:
    """Return the measures of one size, and the results of the kills. The first cluster's topics are created one after
    another, those of further ones by one call."""
    singly: list[float] = []
    in_bulk: list[float] = []
    measures: list[Measure] = []
    outcomes: list[Failover] = []
    for victim in size.victims:
        data = folder / f"{size.topics}-{victim}"
        with running_cluster(data, brokers=BROKERS, settings={"lease_ttl_s": size.lease_ttl_s}) as cluster:
            with seaweedmq.connect(cluster.bootstrap) as client:
                half = size.topics // 2
                singly.append(_topics_per_s(range(half), partial(_create_one_after_another, client)))
                in_bulk.append(_topics_per_s(range(half, size.topics), partial(_create_in_bulk, client)))
            if not outcomes:
                time.sleep(QUICK_SETTLE_S if scale.quick else SETTLE_S)
                measures += _idle(cluster.pids, size, scale.idle_s, bare_mb)
            outcomes.append(kill_and_wait(cluster.bootstrap, size.topics, victim))
            measures.append(_failover(size, victim, outcomes[-1]))
    return _created(size, singly, in_bulk, syncs_per_s) + measures, outcomes


def _create_in_bulk(client: "seaweedmq.Client", names: Sequence[str]) -> None:
    client.admin.create_topics(names, **ALIKE)


def _create_one_after_another(client: "seaweedmq.Client", names: Sequence[str]) -> None:
    for name in names:
        client.admin.create_topic(name, **ALIKE)


def _topics_per_s(numbers: range, create: Callable[[Sequence[str]], None]) -> float:
    began = time.perf_counter()
    create([topic_name(number) for number in numbers])
    return len(numbers) / (time.perf_counter() - began)


def _created(size: Size, singly: Sequence[float], in_bulk: Sequence[float], syncs_per_s: float) -> list[Measure]:
    """Measure beside syncs one after another: a topic exists once etcd has synced it. Half of the topics have separate
    calls, then one call creates the others."""
    name = f"create_{size.topics}_topics"
    rows = [(name, singly, CREATED_PER_S_MIN), (f"{name}_in_bulk", in_bulk, CREATED_IN_BULK_PER_S_MIN)]
    return [
        compared(row, found, "topics/s", SYNCS_PER_S, [syncs_per_s] * len(found), value_min=per_s_min)
        for row, found, per_s_min in rows
    ]


def _idle(pids: Sequence[int], size: Size, seconds: float, bare_mb: float) -> list[Measure]:
    """Return figures of the busiest broker; those of the others are in ``brokers``."""
    shares = cpu_percents(pids, seconds)
    resident = [resident_mb(pid) for pid in pids]
    of = f"{size.topics * SEGMENTS}_segments"
    cpu_max, resident_max = size.idle_percent_max, size.idle_mb_max
    return [
        compared(f"idle_cpu_{of}", [max(shares)], "%", CORE, [100.0], value_max=cpu_max, brokers=figures(shares)),
        compared(
            f"idle_resident_{of}",
            [max(resident)],
            "MB",
            LIBRARIES,
            [bare_mb],
            value_max=resident_max,
            brokers=figures(resident),
        ),
    ]


def _failover(size: Size, victim: str, outcome: Failover) -> Measure:
    return compared(
        f"failover_{victim}_killed_{size.topics}_topics",
        [outcome.all_s],
        "s",
        TTL,
        [size.lease_ttl_s],
        value_max=size.failover_s_max + (size.lease_ttl_s if victim == LEADER else 0.0),
        half_s=round(outcome.half_s, 3),
        silent_ranges=outcome.silent,
        segments_killed=outcome.segments_killed,
        client_cpu_s=round(outcome.client_cpu_s, 2),
        acknowledged=outcome.acknowledged,
        stored_again=outcome.stored_again,
    )
