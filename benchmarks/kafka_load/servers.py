"""Target of the load: a new cluster, or any running Kafka; and its cost meanwhile."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cluster import running_cluster
from benchmarks.contest.errors import Failed
from benchmarks.kafka_load.tiers import Tier
from benchmarks.publish import MB
from benchmarks.scale import Scale
from seaweedmq.codec.paths import KEPT

BROKERS = 3
REPLICAS = 2
TIMEOUT_S = 30.0
SETTLE_SHARE = 0.4
"""Share of the duration until files and memory of a long run are stable."""
RETENTION_S_MIN = 10.0


@dataclass(frozen=True, slots=True)
class Servers:
    """A running Kafka."""

    bootstrap: str
    pids: tuple[int, ...] = ()
    """Process ids of the brokers of a new cluster."""
    storage: Path | None = None


@contextlib.contextmanager
def running_servers(tier: Tier, duration_s: float, folder: Path, scale: Scale) -> Iterator[Servers]:
    """Start three brokers, or use those of ``--bootstrap``."""
    if scale.bootstrap is not None:
        yield Servers(scale.bootstrap)
        return
    settings: dict[str, float] = {}
    if (kept_s := retention_s(tier, duration_s)) is not None:
        # Grace periods are shortened likewise: files would grow for an hour otherwise.
        settings = {
            "maintenance_interval_s": min(10.0, kept_s / 5),
            "log_grace_s": kept_s / 2,
            "table_grace_s": kept_s / 2,
        }
    with running_cluster(folder / "data", brokers=BROKERS, settings=settings, kafka=True) as cluster:
        yield Servers(cluster.kafka, cluster.pids, cluster.storage)


def retention_s(tier: Tier, duration_s: float) -> float | None:
    """Return the retention of records, None for the whole run."""
    return None if tier.retention_share is None else max(RETENTION_S_MIN, tier.retention_share * duration_s)


def create_topic(servers: Servers, topic: str, tier: Tier, duration_s: float) -> None:
    """Create the topic, with two replicas where there are two brokers."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    replicas = min(REPLICAS, len(admin.list_topics(timeout=TIMEOUT_S).brokers))
    config: Mapping[str, str] = {}
    if (kept_s := retention_s(tier, duration_s)) is not None:
        config = {"retention.ms": f"{kept_s * 1_000:.0f}", "segment.ms": f"{kept_s * 200:.0f}"}
    wanted = NewTopic(topic, num_partitions=tier.partitions, replication_factor=replicas, config=dict(config))
    admin.create_topics([wanted], operation_timeout=TIMEOUT_S)[topic].result()


def leader_of(servers: Servers, topic: str, partition: int) -> str:
    """Return ``host:port`` of the broker that leads a partition, as Kafka clients learn it."""
    found = AdminClient({"bootstrap.servers": servers.bootstrap}).list_topics(topic, timeout=TIMEOUT_S)
    broker = found.brokers[found.topics[topic].partitions[partition].leader]
    return f"{broker.host}:{broker.port}"


def not_committed(servers: Servers, topic: str, tier: Tier) -> int:
    """Return the number of records that the departed groups did not commit, or committed beyond the end."""
    partitions = [TopicPartition(topic, number) for number in range(tier.partitions)]
    probe = Consumer({"bootstrap.servers": servers.bootstrap, "group.id": "probe"})
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    try:
        marks = {p.partition: probe.get_watermark_offsets(p, timeout=TIMEOUT_S) for p in partitions}
    finally:
        probe.close()
    left = 0
    for group in tier.groups:
        asked = [ConsumerGroupTopicPartitions(group.name, partitions)]
        (future,) = admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S).values()
        for committed in future.result().topic_partitions:
            if committed.error is not None:
                raise KafkaException(committed.error)
            low, end = marks[committed.partition]
            left += abs(end - committed.offset) if committed.offset >= 0 else end - low
    return left


@dataclass(slots=True)
class Watch:
    """Samples of the brokers and the machine."""

    servers: Servers
    topic: str
    at_s: list[float] = field(default_factory=list)
    resident_mb: list[float] = field(default_factory=list)
    """Memory of the largest broker."""
    descriptors: list[float] = field(default_factory=list)
    """Open files of all brokers together."""
    files: list[float] = field(default_factory=list)
    """Files of the topic."""
    internal_files: list[float] = field(default_factory=list)
    """Files of ``__consumer_offsets`` and everything else in the storage."""
    broker_percent: list[float] = field(default_factory=list)
    """CPU of all brokers together since the last sample, in % of one core."""
    machine_percent: list[float] = field(default_factory=list)
    """CPU of everything on the machine, in % of all cores."""
    _cpu_s: float = 0.0

    def look(self, at_s: float) -> None:
        """Take a sample; the CPU of the first one is meaningless. Raises Failed."""
        try:
            self._look(at_s, [psutil.Process(pid) for pid in self.servers.pids])
        except psutil.NoSuchProcess as gone:
            raise Failed(f"a broker, process {gone.pid}, is gone") from None

    def _look(self, at_s: float, brokers: Sequence[psutil.Process]) -> None:
        cpu_s = sum(sum(broker.cpu_times()[:2]) for broker in brokers)
        elapsed_s = at_s - self.at_s[-1] if self.at_s else float("inf")
        self.broker_percent.append(100 * (cpu_s - self._cpu_s) / elapsed_s)
        self.machine_percent.append(psutil.cpu_percent())
        self.resident_mb.append(max((broker.memory_info().rss for broker in brokers), default=0) / MB)
        self.descriptors.append(float(sum(broker.num_fds() for broker in brokers)))
        found = () if self.servers.storage is None else self.servers.storage.rglob("*")
        files = [p for p in found if p.is_file() and KEPT not in p.parts]  # a retained link is not another file
        own = sum(self.topic in path.parts for path in files)
        self.files.append(float(own))
        self.internal_files.append(float(len(files) - own))
        self._cpu_s = cpu_s
        self.at_s.append(at_s)

    def between(self, values: Sequence[float], begin: float, end: float) -> list[float]:
        """Return the ``values`` of a part of the time, from one share of it to another; at least one."""
        first, last = self.at_s[0], self.at_s[-1]
        low, high = first + begin * (last - first), first + end * (last - first)
        return [value for at_s, value in zip(self.at_s, values, strict=True) if low <= at_s <= high] or [values[-1]]
