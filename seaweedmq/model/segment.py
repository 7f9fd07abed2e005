"""Segments: one slot range of one topic until sealed, owned by a fixed list of brokers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.topic import TopicName

PROBLEM_CHARS_MAX = 1_000
"""Length of ``Segment.problem``, in characters."""


class SegmentState(StrEnum):
    """The state of a segment."""

    OPEN = "open"
    SEALED = "sealed"


class SegmentId(NamedTuple):
    """The permanent name of one segment of a topic: numbers are never reused.

    An earlier topic of the same name, distinguished by its uid, had segments of the same names.
    """

    topic: TopicName
    number: int

    def __str__(self) -> str:
        return f"{self.topic}#{self.number}"


class ReplicaKey(NamedTuple):
    """The name of one segment where an earlier topic of the same name, with the same ids, may still be known."""

    topic_uid: int
    segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSequence:
    """The end of a producer's stream: all sequences, which count records, below ``next_sequence`` are committed."""

    producer_id: int
    producer_epoch: int
    next_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The end of a producer's stream in one segment, and its last frames."""

    producer_id: int
    producer_epoch: int
    next_sequence: int
    recent: tuple[FrameAck, ...] = ()
    """Last frames up to ``next_sequence``, the oldest first, contiguous."""

    @property
    def sequence(self) -> ProducerSequence:
        """The part that the metadata of a sealed segment holds."""
        return ProducerSequence(
            producer_id=self.producer_id, producer_epoch=self.producer_epoch, next_sequence=self.next_sequence
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment in etcd, whose owners and range never change: a change seals it and opens successors."""

    topic: TopicName
    id: int
    slots: KeyRange
    epoch: int
    """Fencing number, at least 1. It rises when the segment is fenced."""
    state: SegmentState
    replicas: tuple[str, ...]
    """Broker ids, the primary first. A broker id names one run of a broker process, never a later one."""
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    start_offset: int = 0
    """Largest ``end_offset`` of the predecessors, or more: see ``core.lineage.topology.succeed``."""
    end_offset: int | None = None
    """First offset that does not belong to the segment; None while open. Readers ignore file content beyond it."""
    sequences: tuple[ProducerSequence, ...] = ()
    """Sealed producer sequences, the most recently active first; empty while open. Only etcd and brokers have them:
    neither descriptions nor documents do."""
    sequences_complete: bool = False
    """Whether ``sequences`` has every producer that may not have received all of its acknowledgements. Otherwise a
    missing producer may have stored records: the log files show it."""
    opened_us: int = 0
    """Wall clock of the leader that opened it, microseconds since 1970 UTC. A hint for cool-downs; 0: unknown."""
    sealed_us: int = 0
    """Wall clock of the leader that sealed it, microseconds since 1970 UTC; 0: open, or unknown."""
    problem: str = ""
    """Reason, with the file's name, why an open segment without live brokers cannot be recovered from its files; "" if
    it can, or is sealed. At most ``PROBLEM_CHARS_MAX`` characters."""

    @property
    def key(self) -> SegmentId:
        """The name of the segment in the cluster."""
        return SegmentId(self.topic, self.id)

    @property
    def primary(self) -> str:
        """The broker id of the primary."""
        return self.replicas[0]

    @property
    def is_open(self) -> bool:
        """Whether the segment is open."""
        return self.state is SegmentState.OPEN

    def __str__(self) -> str:
        return f"{self.topic}#{self.id}"
