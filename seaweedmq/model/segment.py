"""Segments: one slot range of one topic during one stretch of time, owned by a fixed list of brokers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from seaweedmq.model.publish import FrameAck
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.topic import TopicName

PROBLEM_CHARS_MAX = 1_000
"""Length of ``Segment.problem``."""


class SegmentState(StrEnum):
    OPEN = "open"
    SEALED = "sealed"


class SegmentId(NamedTuple):
    """Names one segment of a topic, for good: numbers are never used again. An earlier topic of the same name, told
    apart by its uid, had segments of the same names."""

    topic: TopicName
    number: int

    def __str__(self) -> str:
        return f"{self.topic}#{self.number}"


class ReplicaKey(NamedTuple):
    """Names one segment where an earlier topic of the same name may still be known, whose segments had the same ids."""

    topic_uid: int
    segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSequence:
    """How far a producer's stream got: every sequence below ``next_sequence`` is committed. Sequences count records."""

    producer_id: int
    producer_epoch: int
    next_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """How far a producer's stream in one segment got, and its last frames."""

    producer_id: int
    producer_epoch: int
    next_sequence: int
    recent: tuple[FrameAck, ...] = ()
    """The oldest first, contiguous, up to ``next_sequence``."""

    @property
    def sequence(self) -> ProducerSequence:
        """The part that is kept in the metadata of a sealed segment."""
        return ProducerSequence(
            producer_id=self.producer_id, producer_epoch=self.producer_epoch, next_sequence=self.next_sequence
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment as recorded in etcd. It never changes its owners or its range; change means seal and succeed."""

    topic: TopicName
    id: int
    slots: KeyRange
    epoch: int
    """Fencing number, at least 1. Rises when the segment is fenced."""
    state: SegmentState
    replicas: tuple[str, ...]
    """Broker ids, the primary first. A broker id names one run of a broker process, never a later one."""
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    start_offset: int = 0
    """Largest ``end_offset`` of the predecessors, or more: see ``core.lineage.topology.succeed``."""
    end_offset: int | None = None
    """First offset that does not belong to the segment; None while open. What files hold beyond it is ignored."""
    sequences: tuple[ProducerSequence, ...] = ()
    """Sealed producer sequences, the most recently active first; empty while open. Only etcd and brokers have them:
    neither descriptions nor documents do."""
    sequences_complete: bool = False
    """Whether they name every producer that may not have heard yet of all it stored. Else nobody may take one that is
    missing for one that stored nothing: the log files tell."""
    opened_us: int = 0
    """Wall clock of the leader that opened it, microseconds since 1970 UTC. A hint for cool-downs; 0: not known."""
    sealed_us: int = 0
    """Wall clock of the leader that sealed it, microseconds since 1970 UTC; 0: open, or not known."""
    problem: str = ""
    """Reason, with the file's name, why an open segment whose brokers are all gone cannot be recovered from its files;
    "" if it can, or is sealed. At most ``PROBLEM_CHARS_MAX`` characters."""

    @property
    def key(self) -> SegmentId:
        """Its name in the cluster."""
        return SegmentId(self.topic, self.id)

    @property
    def primary(self) -> str:
        """Broker id of the primary."""
        return self.replicas[0]

    @property
    def is_open(self) -> bool:
        return self.state is SegmentState.OPEN

    def __str__(self) -> str:
        return f"{self.topic}#{self.id}"
