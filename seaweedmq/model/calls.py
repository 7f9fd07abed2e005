"""The unary calls of brokers, one frozen value each: ``await api.call(CreateTopic(spec))``.

What a call answers is its type parameter. Who answers it stands in ``broker.api``, how it travels in ``rpc.topics``,
``rpc.admin`` and ``rpc.cluster``. ``topic_uid`` is that of the topic that the caller means: NotFound if another one has
its name by now; 0: whichever has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from seaweedmq.model.broker import ClusterStatus, Decision
from seaweedmq.model.description import ALL, SegmentSelection, SegmentStats, TopicDescription
from seaweedmq.model.groups import GroupDescription, GroupSummary
from seaweedmq.model.kafka_group_admin import KafkaGroupDescription, KafkaGroupSummary
from seaweedmq.model.replication import FenceReply, SealedLog, SegmentRef
from seaweedmq.model.subscribe import Start
from seaweedmq.model.topic import Topic, TopicChange, TopicName, TopicSpec

R_co = TypeVar("R_co", covariant=True)


class Call(Generic[R_co]):
    """A question to a broker that is answered with one ``R_co``."""

    __slots__ = ()


# --- topics and the cluster -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopic(Call[TopicDescription]):
    spec: TopicSpec


@dataclass(frozen=True, slots=True)
class CreateTopics(Call[tuple[TopicDescription, ...]]):
    """Up to ``TOPICS_AT_ONCE_MAX`` topics, many a transaction. If one is refused, none is made; if etcd goes away in
    the middle, those before it are there."""

    specs: tuple[TopicSpec, ...]


@dataclass(frozen=True, slots=True)
class AlterTopic(Call[TopicDescription]):
    """Nothing to change: the topic as the leader knows it. StaleMetadata: it has changed, and was left alone."""

    name: TopicName
    change: TopicChange
    topic_uid: int = 0
    revision: int = 0
    """Of the description that the change was made for; 0: whatever the topic is now."""


@dataclass(frozen=True, slots=True)
class DeleteTopic(Call[None]):
    name: TopicName
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class RaiseLowWatermark(Call[Mapping[int, int]]):
    """Delete the records of partitions before an offset: partition -> offset. Answered with the low watermarks of these
    partitions, which only rise: a lower offset than before changes nothing. InvalidArgument: the topic has no such
    partition, or none at all. OutOfRange: an offset is above the high watermark, and nothing was changed."""

    name: TopicName
    before: Mapping[int, int]
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class ListTopics(Call[tuple[Topic, ...]]):
    """By name."""


@dataclass(frozen=True, slots=True)
class DescribeTopic(Call[TopicDescription]):
    """The topic with the segments that are asked for, of many sealed ones a page. NotFound."""

    name: TopicName
    which: SegmentSelection = ALL
    topic_uid: int = 0


AWAITED_AT_ONCE_MAX = 1_000
"""Topics of one call that waits for changes."""
AWAIT_S_MAX = 10.0
"""So long it may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedTopic:
    """A topic, and what the caller knows of it."""

    name: TopicName
    topic_uid: int
    above: int
    """``TopicDescription.revision`` of what the caller knows."""
    ids: tuple[int, ...] = ()
    """Segments that the caller wants to hear of beside the open ones."""


@dataclass(frozen=True, slots=True)
class UpdatedTopics:
    """What a broker tells of topics that somebody waits for."""

    changed: tuple[TopicDescription, ...] = ()
    """Newer than what the caller knows."""
    unknown: tuple[int, ...] = ()
    """Uids of those that the broker does not know, or not any more. It may lag: whoever asks for such a topic is told
    for sure."""


@dataclass(frozen=True, slots=True)
class AwaitTopics(Call[UpdatedTopics]):
    """Which of the topics are newer than what the caller knows: as soon as one is, or after ``patience_s``."""

    topics: tuple[AwaitedTopic, ...]
    patience_s: float


@dataclass(frozen=True, slots=True)
class AdoptSchema(Call[TopicDescription]):
    """Give an empty topic the schema of its first table; the same schema again is no error."""

    name: TopicName
    schema: bytes
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class TopicStats(Call[tuple[SegmentStats, ...]]):
    """Request for the figures of a topic's open segments, but those that cannot be recovered."""

    name: TopicName


@dataclass(frozen=True, slots=True)
class GetClusterStatus(Call[ClusterStatus]):
    """Brokers, their loads, and what the leader decided lately."""


@dataclass(frozen=True, slots=True)
class DrainBroker(Call[None]):
    """Move every segment away from a broker, by id or address, and give it no new ones."""

    broker: str


# --- segments by hand: answered with the topic after the change. NotFound, InvalidArgument, StaleMetadata (not open)


@dataclass(frozen=True, slots=True)
class SplitSegment(Call[TopicDescription]):
    """Cut a segment in two at slot ``at``, the first of the upper one; None: where its load halves."""

    name: TopicName
    segment: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class MergeSegments(Call[TopicDescription]):
    """Make one segment of two neighbours."""

    name: TopicName
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class SealSegment(Call[TopicDescription]):
    """Close a segment and open a successor of the same range, wherever there is room."""

    name: TopicName
    segment: int


@dataclass(frozen=True, slots=True)
class MoveSegment(Call[TopicDescription]):
    """Give a segment's range to these brokers (ids or addresses), the primary first."""

    name: TopicName
    segment: int
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rebalance(Call[tuple[Decision, ...]]):
    """Do now what the balancer would do, without waiting for cool-downs; answered with what was decided."""


# --- groups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListGroups(Call[tuple[GroupSummary, ...]]):
    """One entry for each group and topic, by group, then topic."""


@dataclass(frozen=True, slots=True)
class DescribeGroup(Call[GroupDescription]):
    """Members, owners, committed offsets and lag; NotFound."""

    group: str


@dataclass(frozen=True, slots=True)
class ResetGroup(Call[GroupDescription]):
    """Have the group read the topic from ``start``. NotFound; InvalidArgument while it has members, unless forced: then
    they go on from there, too."""

    group: str
    name: TopicName
    start: Start
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteGroup(Call[None]):
    """Forget a group and all its offsets. NotFound; InvalidArgument while it has members, unless forced."""

    group: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class ListKafkaGroups(Call[tuple[KafkaGroupSummary, ...]]):
    """Of Kafka's consumers, by id. Unavailable: a coordinator could not be asked."""


@dataclass(frozen=True, slots=True)
class DescribeKafkaGroup(Call[KafkaGroupDescription]):
    """Members, what each has, committed offsets and lag; NotFound."""

    group: str


@dataclass(frozen=True, slots=True)
class ResetKafkaGroup(Call[KafkaGroupDescription]):
    """Have the group read the topic from ``start``. NotFound; InvalidArgument while it has members: these keep where
    they are themselves."""

    group: str
    name: TopicName
    start: Start


@dataclass(frozen=True, slots=True)
class DeleteKafkaGroup(Call[None]):
    """Forget a group and all its offsets. NotFound; InvalidArgument while it has members."""

    group: str


# --- between brokers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalStats(Call[tuple[SegmentStats, ...]]):
    """Of the open segments whose primary the called broker is."""

    name: TopicName
    topic_uid: int = 0


@dataclass(frozen=True, slots=True)
class LogEnds(Call[Mapping[int, int]]):
    """Segment -> where it ends, committed or not, of the open segments whose primary the called broker is; answered
    once it knows the metadata at ``revision``, and does as they say."""

    name: TopicName
    topic_uid: int
    revision: int


@dataclass(frozen=True, slots=True)
class Fence(Call[FenceReply]):
    """Leader to follower: take nothing of an epoch below ``ref.epoch`` any more."""

    ref: SegmentRef


@dataclass(frozen=True, slots=True)
class WriteOut(Call[SealedLog]):
    """Leader to a fenced follower: write what it holds to the storage and fsync it."""

    ref: SegmentRef
    end_offset: int


@dataclass(frozen=True, slots=True)
class Seal(Call[SealedLog]):
    """Leader to primary: take nothing more, write and fsync everything, say where it ends."""

    ref: SegmentRef


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteProgress(Call[None]):
    """How far a primary is: its followers may forget what is flushed. Fenced: the epoch is over.

    It does not travel on the replicate stream: there it would wait behind frames that wait for the memory it frees.
    """

    ref: SegmentRef
    committed: int
    flushed: int


SUSPICIONS_AT_ONCE_MAX = 1_000
"""Segments of one report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSuspicions(Call[None]):
    """To the leader, which decides whether to seal: replicas of these segments can not reach another broker.

    Fenced: none of them is open at its epoch any more.
    """

    refs: tuple[SegmentRef, ...]
    suspect: str
    """Broker id; "" when the segments have to be replaced, but nobody is to blame."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEmptied(Call[None]):
    """To the leader: sealed segments of a topic have no files left; it forgets them, if they were sealed long ago.

    Reported again as long as they are known. NotFound: the topic was deleted.
    """

    topic: TopicName
    topic_uid: int
    segments: tuple[int, ...]
