"""The unary calls of brokers, one frozen value each: ``await api.call(CreateTopic(spec))``.

The type parameter of a call is the type of its result. ``broker.api`` has the handlers, ``rpc.methods``
the encodings. ``topic_uid`` is the uid of the topic that the caller means: the call fails with NotFound if another
topic has its name by now. 0 means any topic of this name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from seaweedmq.model.broker import ClusterStatus, Decision
from seaweedmq.model.description import (
    ALL,
    AwaitedTopic,
    SegmentSelection,
    SegmentStats,
    TopicDescription,
    UpdatedTopics,
)
from seaweedmq.model.kafka.group_admin import KafkaGroupDescription, KafkaGroupSummary
from seaweedmq.model.messages.groups import GroupDescription, GroupSummary
from seaweedmq.model.messages.replication import FenceReply, SealedLog, SegmentRef
from seaweedmq.model.messages.subscribe import Start
from seaweedmq.model.topic import Topic, TopicChange, TopicName, TopicSpec

R_co = TypeVar("R_co", covariant=True)


class Call(Generic[R_co]):
    """A request to a broker with one ``R_co`` as its result."""

    __slots__ = ()


# --- topics and the cluster -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopic(Call[TopicDescription]):
    """Create a topic.

    Raises:
        InvalidArgument: If the spec breaks a rule, or there is no room.
        AlreadyExists: If there is such a topic.
    """

    spec: TopicSpec


@dataclass(frozen=True, slots=True)
class CreateTopics(Call[tuple[TopicDescription, ...]]):
    """Create up to ``TOPICS_AT_ONCE_MAX`` topics, many per transaction.

    If the broker rejects one, it creates none. If etcd fails in the middle, the topics before it exist.
    """

    specs: tuple[TopicSpec, ...]


@dataclass(frozen=True, slots=True)
class AlterTopic(Call[TopicDescription]):
    """Change the settings of a topic; an empty change returns the topic as the leader knows it.

    Raises:
        StaleMetadata: If the topic has changed since ``revision``; it stays as it is.
    """

    name: TopicName
    change: TopicChange
    topic_uid: int = 0
    revision: int = 0
    """Revision of the description that the change was made for; 0: any."""


@dataclass(frozen=True, slots=True)
class DeleteTopic(Call[None]):
    """Delete a topic and its records."""

    name: TopicName
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class RaiseLowWatermark(Call[Mapping[int, int]]):
    """Delete the records of partitions before an offset: partition -> offset.

    Returns the low watermarks of these partitions. They only rise: a lower offset than before changes nothing.

    Raises:
        InvalidArgument: If the topic has no such partition, or none at all.
        OutOfRange: If an offset is above the high watermark; nothing was changed.
    """

    name: TopicName
    before: Mapping[int, int]
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class ListTopics(Call[tuple[Topic, ...]]):
    """List the topics by name."""


@dataclass(frozen=True, slots=True)
class DescribeTopic(Call[TopicDescription]):
    """Describe a topic and the selected segments, of many sealed ones one page.

    Raises:
        NotFound: If there is no such topic.
    """

    name: TopicName
    which: SegmentSelection = ALL
    topic_uid: int = 0


AWAITED_AT_ONCE_MAX = 1_000
"""Topics of one call that waits for changes."""
AWAIT_S_MAX = 10.0
"""Longest wait of such a call, in seconds."""


@dataclass(frozen=True, slots=True)
class AwaitTopics(Call[UpdatedTopics]):
    """Wait for a change of the topics, at most ``patience_s``, and return the newer descriptions."""

    topics: tuple[AwaitedTopic, ...]
    patience_s: float


@dataclass(frozen=True, slots=True)
class AdoptSchema(Call[TopicDescription]):
    """Give an empty topic the schema of its first table.

    The same schema again is not an error.
    """

    name: TopicName
    schema: bytes
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class TopicStats(Call[tuple[SegmentStats, ...]]):
    """Return the statistics of a topic's open segments, except those that cannot be recovered."""

    name: TopicName


@dataclass(frozen=True, slots=True)
class GetClusterStatus(Call[ClusterStatus]):
    """Return the brokers, their loads, and the recent decisions of the leader."""


@dataclass(frozen=True, slots=True)
class DrainBroker(Call[None]):
    """Move every segment off a broker, by id or address, and give it no new ones."""

    broker: str


# --- manual changes of segments, which return the topic after the change --------------------------------------------
# Errors: NotFound, InvalidArgument, StaleMetadata (the segment is not open).


@dataclass(frozen=True, slots=True)
class SplitSegment(Call[TopicDescription]):
    """Split a segment at slot ``at``, the first of the upper part.

    None: the slot that halves its load.
    """

    name: TopicName
    segment: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class MergeSegments(Call[TopicDescription]):
    """Merge two neighboring segments into one."""

    name: TopicName
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class SealSegment(Call[TopicDescription]):
    """Seal a segment and open a successor of the same range on brokers with room."""

    name: TopicName
    segment: int


@dataclass(frozen=True, slots=True)
class MoveSegment(Call[TopicDescription]):
    """Move a segment's range to these brokers (ids or addresses), the primary first."""

    name: TopicName
    segment: int
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rebalance(Call[tuple[Decision, ...]]):
    """Balance now, without waiting for cool-downs, and return the decisions."""


# --- groups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListGroups(Call[tuple[GroupSummary, ...]]):
    """List one entry for each group and topic, by group, then topic."""


@dataclass(frozen=True, slots=True)
class DescribeGroup(Call[GroupDescription]):
    """Describe the members, owners, committed offsets and lag of a group.

    Raises:
        NotFound: If there is no such group.
    """

    group: str


@dataclass(frozen=True, slots=True)
class ResetGroup(Call[GroupDescription]):
    """Reset a group to read the topic from ``start``.

    With ``force``, members of the group also continue from there.

    Raises:
        NotFound: If there is no such group.
        InvalidArgument: If the group has members and ``force`` is not set.
    """

    group: str
    name: TopicName
    start: Start
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteGroup(Call[None]):
    """Delete a group and all its offsets.

    Raises:
        NotFound: If there is no such group.
        InvalidArgument: If the group has members and ``force`` is not set.
    """

    group: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class ListKafkaGroups(Call[tuple[KafkaGroupSummary, ...]]):
    """List the Kafka groups by id.

    Raises:
        Unavailable: If a coordinator does not answer.
    """


@dataclass(frozen=True, slots=True)
class DescribeKafkaGroup(Call[KafkaGroupDescription]):
    """Describe the members, assignments, committed offsets and lag of a Kafka group.

    Raises:
        NotFound: If there is no such group.
    """

    group: str


@dataclass(frozen=True, slots=True)
class ResetKafkaGroup(Call[KafkaGroupDescription]):
    """Reset a Kafka group to read the topic from ``start``.

    Raises:
        NotFound: If there is no such group.
        InvalidArgument: If the group has members: these keep their own positions.
    """

    group: str
    name: TopicName
    start: Start


@dataclass(frozen=True, slots=True)
class DeleteKafkaGroup(Call[None]):
    """Delete a Kafka group and all its offsets.

    Raises:
        NotFound: If there is no such group.
        InvalidArgument: If the group has members.
    """

    group: str


# --- between brokers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalStats(Call[tuple[SegmentStats, ...]]):
    """Return the statistics of the open segments whose primary is the called broker."""

    name: TopicName
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class LogEnds(Call[Mapping[int, int]]):
    """Return the end of the log, committed or not, of the open segments whose primary is the called broker.

    The broker answers once it knows and applies the metadata at ``revision``.
    """

    name: TopicName
    topic_uid: int
    revision: int


@dataclass(frozen=True, slots=True)
class Fence(Call[FenceReply]):
    """Reject frames of epochs below ``ref.epoch`` from now on: leader to follower."""

    ref: SegmentRef


@dataclass(frozen=True, slots=True)
class WriteOut(Call[SealedLog]):
    """Write the held frames to the storage and flush them: leader to a fenced follower."""

    ref: SegmentRef
    end_offset: int


@dataclass(frozen=True, slots=True)
class Seal(Call[SealedLog]):
    """Close the log, write and flush everything, and return its end: leader to primary."""

    ref: SegmentRef


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteProgress(Call[None]):
    """Report the progress of a primary, whose followers may drop flushed frames.

    It is not part of the replicate stream. There it would wait behind frames that wait for the memory it frees.

    Raises:
        Fenced: If the epoch is over.
    """

    ref: SegmentRef
    committed: int
    flushed: int


SUSPICIONS_AT_ONCE_MAX = 1_000
"""Segments of one report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSuspicions(Call[None]):
    """Report that replicas of these segments cannot reach a broker; the leader decides whether to seal.

    Raises:
        NotFound: If none of them is open at its epoch.
    """

    refs: tuple[SegmentRef, ...]
    suspect: str
    """Broker id; "" if the segments need a replacement for another reason."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEmptied(Call[None]):
    """Report sealed segments without files; the leader prunes those that were sealed long ago.

    Brokers repeat the report as long as the segments are known.

    Raises:
        NotFound: If the topic was deleted.
    """

    topic: TopicName
    topic_uid: int
    segments: tuple[int, ...]
