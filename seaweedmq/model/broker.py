"""Brokers: who they are and how loaded they are."""

from dataclasses import dataclass

from seaweedmq.model.topic import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One run of a broker process, as registered in etcd under its lease."""

    id: str
    """Unique to this run: a restarted process is another broker."""
    address: str
    """``host:port`` that clients and peers dial."""
    started_us: int
    pid: int
    version: str
    draining: bool = False
    """It hands its segments over and gets no new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoad:
    """Traffic of one open segment on its primary, averaged over the report interval."""

    topic: TopicName
    segment: int
    bytes_per_s: float
    records_per_s: float
    unflushed_bytes: int
    """Accepted and not yet fsynced."""
    histogram: tuple[int, ...] = ()
    """Records per sixteenth of the segment's range since the last report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What a broker reports to the leader."""

    broker: str
    cpu_share: float
    """Of one core, 0 to about 1 (threads may exceed it)."""
    memory_bytes: int
    """Resident set."""
    buffered_bytes: int
    """Log buffers, of ``memory_bytes_max``."""
    segments: tuple[SegmentLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """A broker and its last report, for ``cluster status``."""

    info: BrokerInfo
    load: BrokerLoad | None
    open_segments: int
    is_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster as its leader sees it."""

    leader: str
    """Broker id."""
    brokers: tuple[BrokerStatus, ...]
    topics: int
    open_segments: int
