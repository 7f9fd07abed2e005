"""Episode of users, faults, repair, and judgment of the users' observations."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seaweedmq.errors import SeaweedMQError
from tests.faults.faults import (
    ALONE,
    FAULTS,
    NEEDS_CLOCKS,
    NEEDS_KAFKA,
    NEEDS_KAFKA_GROUP,
    NEEDS_LIMITED_STORAGE,
    NEEDS_MEMBERS,
    NEEDS_MOUNT,
    NEEDS_NATIVES,
    NEEDS_PAIRS,
    restore,
)
from tests.faults.machines.cluster import Cluster
from tests.faults.machines.etcd_data import EtcdToolError
from tests.faults.machines.mount import StorageMount
from tests.faults.machines.network import Loopback, Network, best_network
from tests.faults.machines.wall_clock import library
from tests.faults.testbed import FaultTestbed
from tests.faults.users.kafka_workload import RECORDS_PER_S as KAFKA_RECORDS_PER_S
from tests.faults.users.kafka_workload import KafkaWorkload
from tests.faults.users.workload import ALL_PLANS, RECORDS_PER_S, TopicPlan, Workload
from tests.support.history import Violation

CALM_S = 1.5
"""Seconds before topics are created: the last episode's load must leave the load reports, or segments avoid the broker.
"""
WARM_UP_S = 0.5
STAGGER_S = 3.0
"""Seconds within which the faults of one episode begin."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    faults: tuple[str, ...]
    seed: str
    acked: int = 0
    kafka_acked: int = 0
    """Number of those records that Kafka clients published."""
    commits: int = 0
    """Offsets that Kafka members committed."""
    commit_wait_s: float = 0.0
    """Longest time in seconds for which one of them could not commit."""
    generations: int = 0
    """Number of their group's generations after the initial one."""
    read: int = 0
    given: int = 0
    """Records delivered to the members of a group, including redeliveries."""
    violations: list[Violation] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    """Strikes whose role no broker had, so that they hit another broker: they do not test the fault."""
    changes: int = 0
    """Number of completed splits, merges and moves."""
    gaps_s: dict[str, float] = field(default_factory=dict)
    """``Waits.gap_s`` by label of the topic."""
    slowest_s: float = 0.0
    loop_lag_s: float = 0.0
    seconds: float = 0.0

    @property
    def gap_s(self) -> float:
        return max(self.gaps_s.values(), default=0.0)

    def count(self, *rules: str) -> int:
        return sum(v.rule in rules for v in self.violations)

    def line(self) -> str:
        counts = Counter(v.rule for v in self.violations)
        gaps = ", ".join(f"{label} {gap:.2f}" for label, gap in self.gaps_s.items())
        given = f", {self.given:6} given to a group" if self.given else ""
        commits = (
            f"; {self.commits} commits, longest wait {self.commit_wait_s:.2f} s, {self.generations} rebalances"
            if self.commits
            else ""
        )
        bad = ", ".join(f"{count} {rule}" for rule, count in counts.items()) or "ok"
        return (
            f"{'+'.join(self.faults):32} {self.acked:6} acknowledged, {self.read:6} read{given}: {bad}; "
            f"longest gap s: {gaps}; slowest {self.slowest_s:.2f} s (own lag {self.loop_lag_s:.2f} s){commits}"
        )


async def play(
    cluster: Cluster,
    faults: Sequence[str],
    *,
    seed: str,
    plans: Sequence[TopicPlan] = ALL_PLANS,
    records_per_s: float = RECORDS_PER_S,
    members: int = 0,
    kafka_plans: Sequence[TopicPlan] = (),
    kafka_records_per_s: float = KAFKA_RECORDS_PER_S,
    kafka_members: int = 0,
    calm_s: float = CALM_S,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Let these faults strike, several of them together, while users publish and read.

    Gaps are measured accurately only if the cluster was calm for ``calm_s`` before."""
    began = time.monotonic()
    rng = random.Random(seed)
    outcome = Outcome(faults=tuple(faults), seed=seed)
    workload = Workload(
        cluster.bootstrap,
        plans,
        seed=seed,
        directory=cluster.directory / f"members-{seed}",
        records_per_s=records_per_s,
        members=members,
    )
    kafka = KafkaWorkload(
        cluster.bootstrap,
        cluster.kafka,
        kafka_plans,
        seed=seed,
        directory=cluster.directory / f"kafka-members-{seed}",
        records_per_s=kafka_records_per_s,
        members=kafka_members,
    )
    testbed = FaultTestbed(
        cluster,
        [topic.name for topic in workload.topics],
        [f"kafka/{topic.name}" for topic in kafka.topics],
        [group for group, count in ((workload.group, members), (kafka.group, kafka_members)) if count],
        kafka.group.name if kafka_members else "",
        rng,
        say,
    )
    await asyncio.sleep(calm_s)
    try:
        async with workload, kafka:
            await _suffer(testbed, workload, kafka, outcome)
    except (SeaweedMQError, TimeoutError) as error:
        outcome.violations.append(Violation("stuck", f"the users cannot begin: {error!r}"))
    outcome.seconds = time.monotonic() - began
    return outcome


async def _suffer(testbed: FaultTestbed, workload: Workload, kafka: KafkaWorkload, outcome: Outcome) -> None:
    """Let the faults of the outcome strike the users, and judge."""
    cluster, faults = testbed.cluster, outcome.faults
    await workload.until_flowing()
    await kafka.until_flowing()
    await asyncio.sleep(WARM_UP_S)
    workload.forget_waits()
    kafka.forget_waits()
    await asyncio.gather(
        *(_strike(testbed, name, testbed.rng.uniform(0, STAGGER_S) if len(faults) > 1 else 0.0) for name in faults)
    )
    try:
        await restore(cluster)
        await workload.until_flowing()
        await kafka.until_flowing()
        outcome.violations = await workload.finish()
        outcome.violations += await kafka.finish()
        outcome.violations += [Violation("ghost", f"{key} has no lease") for key in await cluster.ghosts()]
    except (SeaweedMQError, TimeoutError) as error:  # a broker ended by itself, or the cluster does not recover
        outcome.violations.append(Violation("stuck", f"the cluster does not resume: {error!r}"))
        outcome.violations += [Violation("error", e) for topic in workload.topics for e in topic.errors]
        outcome.violations += [Violation("error", e) for topic in kafka.topics for e in topic.errors]
    outcome.violations += [Violation("exit", sentence) for sentence in testbed.exits]
    tracebacks = await asyncio.to_thread(cluster.tracebacks)
    outcome.violations += [Violation("traceback", line) for line in tracebacks]
    if not outcome.violations:
        await workload.forget()
        await kafka.forget()
    outcome.unfit, outcome.changes = testbed.unfit, testbed.changes
    outcome.loop_lag_s = workload.loop_lag_s
    for topic in workload.topics:
        outcome.acked += topic.acked
        outcome.read += len(topic.history.polled)
        outcome.given += len(workload.group.delivered[topic.name])
        outcome.gaps_s[topic.plan.label] = topic.waits.gap_s
        outcome.slowest_s = max(outcome.slowest_s, topic.waits.slowest_s)
    for users in kafka.topics:
        outcome.kafka_acked += users.acked
        outcome.read += len(users.history.polled)
        outcome.given += len(kafka.group.delivered[users.name])
        outcome.gaps_s[users.plan.label] = users.waits.gap_s
        outcome.slowest_s = max(outcome.slowest_s, users.waits.slowest_s)
    outcome.acked += outcome.kafka_acked
    outcome.commits = len(kafka.group.waits_ns)
    outcome.commit_wait_s, outcome.generations = kafka.commit_wait_s, kafka.generations


async def _strike(testbed: FaultTestbed, name: str, after_s: float) -> None:
    await asyncio.sleep(after_s)
    try:
        await FAULTS[name](testbed)
    except EtcdToolError as error:
        testbed.exits.append(f"{name}: {error}")
    except (SeaweedMQError, TimeoutError) as error:
        if FAULTS[name] in ALONE:
            testbed.exits.append(f"{name} of a cluster that was well: {error!r}")
        testbed.say(f"{name} found no victim: {error}")  # with etcd down all roles are unknown


@contextlib.asynccontextmanager
async def stage(
    directory: Path,
    *,
    brokers: int = 3,
    lease_ttl_s: float = 2.0,
    own_storage_mib: int = 0,
    quota: bool = False,
    clocks: bool = False,
    loopback: bool = False,
    settings: Mapping[str, float] | None = None,
) -> AsyncIterator[Cluster]:
    """Provide a cluster on the best available network.

    Args:
        own_storage_mib: Size of a file system of its own, which can be filled and unmounted.
        quota: Whether the tests can make brokers' writes fail, see ``quota_broker``.
        clocks: Whether the brokers' wall clocks can be stepped.
        settings: Settings of ``BrokerConfig``.

    Raises:
        Unsupported: If this machine allows no file system of its own, or has no libfaketime.
    """
    network: Network
    async with contextlib.AsyncExitStack() as stack:
        if loopback:
            network = Loopback()
            await network.start(brokers)
        else:
            network, _ = await best_network(brokers)
        stack.push_async_callback(network.close)
        mount = None
        if own_storage_mib:
            mount = StorageMount(directory, own_storage_mib)
            await asyncio.to_thread(mount.create)
            stack.callback(mount.close)
        if clocks:
            library()
        cluster = Cluster(
            directory,
            network,
            brokers=brokers,
            lease_ttl_s=lease_ttl_s,
            mount=mount,
            quota=quota,
            clocks=clocks,
            settings=settings,
        )
        yield await stack.enter_async_context(cluster)


def possible(
    cluster: Cluster, *, members: int, kafka_members: int = 0, natives: bool = True, kafka: bool = False
) -> list[str]:
    """Return the names of the faults that this cluster supports with these users."""
    return [
        name
        for name, fault in FAULTS.items()
        if (cluster.network.can_cut_pairs or fault not in NEEDS_PAIRS)
        and (members or kafka_members or fault not in NEEDS_MEMBERS)
        and (kafka or fault not in NEEDS_KAFKA)
        and (kafka_members or fault not in NEEDS_KAFKA_GROUP)
        and (natives or fault not in NEEDS_NATIVES)
        and (cluster.mount is not None or cluster.quota or fault not in NEEDS_LIMITED_STORAGE)
        and (cluster.mount is not None or fault not in NEEDS_MOUNT)
        and (cluster.clocks or fault not in NEEDS_CLOCKS)
    ]
