"""Brokers: their registration, load and status."""

from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.model.topic import TopicName

ETCD_OK = "ok"
"""Text of a status: etcd answers all calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One run of a broker process, as registered in etcd under its lease."""

    id: str
    """Broker id, unique to this run: a restarted process is another broker."""
    address: str
    """``host:port`` that clients and peers dial."""
    started_us: int
    pid: int
    version: str
    draining: bool = False
    """Whether the broker hands over its segments and gets no new ones."""
    kafka_address: str = ""
    """``host:port`` that Kafka clients dial; "" if the broker does not listen for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Access of a broker to etcd."""

    trouble: str = ""
    """Reason why etcd rejects calls of the broker at present; "" if it answers all."""
    lease_s: float = 0.0
    """Seconds for which its lease surely lives, by its own clock; 0 or less: not surely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoad:
    """Traffic of one open segment on its primary, as decaying averages with two time constants."""

    topic: TopicName
    segment: int
    bytes_per_s: float
    """Average over ``load_short_s``."""
    records_per_s: float
    unwritten_bytes: int
    """Accepted bytes that are not yet written."""
    long_bytes_per_s: float = 0.0
    """Average over ``load_long_s``."""
    long_records_per_s: float = 0.0
    histogram: tuple[float, ...] = ()
    """Records/s per sixteenth of the segment's range, over ``load_short_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """A broker's load report to the leader."""

    broker: str
    cpu_share: float
    """Share of one core, 0 to about 1 (threads may exceed it)."""
    memory_bytes: int
    """Resident set."""
    buffered_bytes: int
    """Log buffers, part of ``memory_bytes_max``."""
    segments: tuple[SegmentLoad, ...] = ()
    etcd: EtcdAccess | None = None
    """Access to etcd; None if an older broker reports."""


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
    """The kind of a leader's decision about segments."""

    SPLIT = "split"
    MERGE = "merge"
    MOVE = "move"
    REPAIR = "repair"
    """Replacement of lost or missing replicas."""
    SEAL = "seal"
    """Manual sealing."""
    HOLD = "hold"
    """No change although one is due, since none is possible (a single hot key)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A change of segments by the leader, or one that was impossible, with its reason in words."""

    at_us: int
    """Wall clock."""
    topic: TopicName
    segments: tuple[int, ...]
    """Segments before the change."""
    kind: str
    """A :class:`DecisionKind`, or one that a newer leader knows."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster as seen by its leader, or by another broker while etcd lets no broker lead."""

    leader: str
    """Broker id; "" if no broker leads."""
    brokers: tuple[BrokerStatus, ...]
    topics: int
    open_segments: int
    under_replicated_segments: int = 0
    """Open segments with fewer live replicas than their topic requires."""
    unrecoverable_segments: int = 0
    """Open segments whose files are damaged or foreign: see ``model.segment.Segment.problem``."""
    decisions: tuple[Decision, ...] = ()
    """Recent decisions of this leader, the newest last."""
    etcd: str = ETCD_OK
    """``ETCD_OK``, or the reason why etcd rejects calls of a broker."""
