"""Brokers: who they are and how loaded they are."""

from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.model.topic import TopicName

ETCD_OK = "ok"
"""Text of a status: etcd refuses no calls."""


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
    kafka_address: str = ""
    """``host:port`` that Kafka clients dial; "" if it does not listen for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Access of a broker to etcd."""

    trouble: str = ""
    """Reason why etcd refuses calls of the broker at present; "" if it answers all."""
    lease_s: float = 0.0
    """Seconds for which its lease surely lives, by its own clock; 0 or less: not surely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoad:
    """Traffic of one open segment on its primary, as decaying averages with two time constants."""

    topic: TopicName
    segment: int
    bytes_per_s: float
    """Over ``load_short_s``."""
    records_per_s: float
    unwritten_bytes: int
    """Accepted and not yet in a file."""
    long_bytes_per_s: float = 0.0
    """Over ``load_long_s``."""
    long_records_per_s: float = 0.0
    histogram: tuple[float, ...] = ()
    """Records/s per sixteenth of the segment's range, over ``load_short_s``."""


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
    etcd: EtcdAccess | None = None
    """None if an older broker reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """A broker and its last report, for ``cluster status``."""

    info: BrokerInfo
    load: BrokerLoad | None
    open_segments: int
    is_leader: bool
    etcd: EtcdAccess | None = None
    """Its access to etcd by its last report; None before the first one."""


class DecisionKind(StrEnum):
    """What a decision of the leader does to segments."""

    SPLIT = "split"
    MERGE = "merge"
    MOVE = "move"
    REPAIR = "repair"
    """Replaces lost or missing replicas."""
    SEAL = "seal"
    """As asked for by hand."""
    HOLD = "hold"
    """Does not change what should change and can not (a single hot key)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something the leader did to segments, or could not do, with its reason in words."""

    at_us: int
    """Wall clock."""
    topic: TopicName
    segments: tuple[int, ...]
    """What it is about, before the change."""
    kind: str
    """A :class:`DecisionKind`, or one that a newer leader knows."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster as its leader sees it, or as another broker does while etcd lets no broker lead."""

    leader: str
    """Broker id; "" if no broker leads."""
    brokers: tuple[BrokerStatus, ...]
    topics: int
    open_segments: int
    under_replicated_segments: int = 0
    """Open segments with fewer live replicas than their topic wants."""
    unrecoverable_segments: int = 0
    """Open segments whose files are damaged or foreign: see ``model.segment.Segment.problem``."""
    decisions: tuple[Decision, ...] = ()
    """The last ones of this leader, the newest last."""
    etcd: str = ETCD_OK
    """``ETCD_OK``, or the reason why etcd refuses calls of a broker."""
