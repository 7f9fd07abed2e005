"""Topics as Kafka clients see them: names of one namespace, partitions, leaders, epochs, replicas.

``core/kafka/visibility.py`` decides which topics are visible. Each lookup reads the live view; only the mapping of
partitions to segments is cached until the topic changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.kafka import visibility
from seaweedmq.core.kafka.epochs import NO_EPOCH
from seaweedmq.core.kafka.topic_ids import topic_id_of, uid_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.kafka.metadata.nodes import NO_NODE, Nodes
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """The leader and the replicas of a partition at the moment."""

    number: int
    error: Code
    """``LEADER_NOT_AVAILABLE`` while the partition has no leader."""
    leader: int
    """Number of the leader's node, -1 for none."""
    leader_epoch: int
    """Id of the segment, -1 for none."""
    replicas: tuple[int, ...]
    """The replicas of the segment, the primary first, then numbers that stand for missing ones of the topic."""
    isr: tuple[int, ...]
    """Registered replicas of the segment. A commit needs all replicas; a segment that loses one is replaced."""
    offline: tuple[int, ...]
    """Those of ``replicas`` that are not the number of a registered broker."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The slots of the partitions of a topic, and their newest known segments."""

    slots: tuple[KeyRange, ...]
    segments: tuple[Segment | None, ...]


class PartitionedTopic:
    """A topic that Kafka clients see, at one state of the view."""

    def __init__(self, topic: Topic, layout: _Layout, nodes: Nodes) -> None:
        self.topic = topic
        self._layout = layout
        self._nodes = nodes

    @property
    def name(self) -> str:
        """The name that Kafka clients use."""
        return self.topic.name.name

    @property
    def id(self) -> bytes:
        """The topic id, 16 bytes."""
        return topic_id_of(self.topic.uid)

    @property
    def is_internal(self) -> bool:
        """Whether it is an internal topic of Kafka."""
        return visibility.is_internal(self.topic)

    @property
    def is_writable(self) -> bool:
        """Whether producers may write to its partitions."""
        return visibility.is_writable(self.topic)

    @property
    def count(self) -> int:
        """The number of partitions."""
        return len(self._layout.slots)

    def slot(self, partition: int) -> int:
        """Return the first slot of a partition, its name at the broker, or raise KafkaError if there is none."""
        return self._layout.slots[self._checked(partition)].lo

    def segment(self, partition: int) -> Segment | None:
        """Return the newest segment of a partition, open or not. Raises as :meth:`slot`."""
        return self._layout.segments[self._checked(partition)]

    def partition(self, number: int) -> PartitionInfo:
        """Return the leader and the replicas of a partition. Raises as :meth:`slot`."""
        segment, nodes = self.segment(number), self._nodes
        placed = () if segment is None else segment.replicas
        primary = nodes.of_broker(segment.primary) if segment is not None and segment.is_open else None
        known = tuple(dict.fromkeys(n for n in map(nodes.number_of, placed) if n is not None))
        unnumbered = sum(nodes.is_registered(broker) and nodes.of_broker(broker) is None for broker in placed)
        missing = self.topic.replicas - unnumbered - len(known)
        replicas = (*known, *nodes.absent_replicas(missing, known))
        return PartitionInfo(
            number=number,
            error=Code.NONE if primary is not None else Code.LEADER_NOT_AVAILABLE,
            leader=NO_NODE if primary is None else primary.id,
            leader_epoch=NO_EPOCH if segment is None else segment.id,
            replicas=replicas,
            isr=tuple(node.id for node in map(nodes.of_broker, placed) if node is not None),
            offline=tuple(node for node in replicas if not nodes.is_live(node)),
        )

    def partitions(self) -> list[PartitionInfo]:
        """Return all partitions, by number."""
        return [self.partition(number) for number in range(self.count)]

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < self.count:
            raise KafkaError(
                Code.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {self.name} has no partition {partition}: it has {self.count}, from 0",
            )
        return partition


class TopicDirectory:
    """The topics of the cluster that Kafka clients see."""

    def __init__(self, view: ClusterView, nodes: Nodes, namespace: str) -> None:
        self.view = view
        self.nodes = nodes
        self.namespace = namespace
        self._layouts: dict[TopicName, tuple[int, _Layout | None]] = {}
        """Name -> version of the topic in the view, and the layout made of it."""
        self._found: dict[str | bytes, PartitionedTopic] = {}
        """Found topics by the requested name or id, valid for ``_found_at`` changes of the view."""
        self._found_at = -1
        self._alike: dict[str, str] = {}
        """Names of topics by their names in Kafka's metrics, valid for ``_alike_at`` changes of the view."""
        self._alike_at = -1
        self._names: dict[int, TopicName] = {}
        """Names of topics by uid, valid for ``_named`` changes of the view."""
        self._named = -1

    def topics(self) -> list[PartitionedTopic]:
        """Return the visible topics, by name."""
        if len(self._layouts) > 2 * len(self.view.topics) + 100:
            self._layouts.clear()
        mine = sorted(name for name in self.view.topics if name.namespace == self.namespace)
        return [shown for shown in map(self._shown, mine) if shown is not None]

    def find(self, name_or_id: str | bytes) -> PartitionedTopic:
        """Return a visible topic by its name or by its id of 16 bytes.

        Raises KafkaError if there is none, or it is hidden: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
        """
        if self._found_at != self.view.changes:
            self._found_at = self.view.changes
            self._found.clear()
        shown = self._found.get(name_or_id)
        if shown is None:
            name = self._by_id(name_or_id) if isinstance(name_or_id, bytes) else self._by_name(name_or_id)
            shown = self._shown(name)
            if shown is None:
                raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, self.why_hidden(name))
            self._found[name_or_id] = shown
        return shown

    def topic_name(self, name: str) -> TopicName:
        """Return the SeaweedMQ name of a Kafka topic, or raise KafkaError INVALID_TOPIC_EXCEPTION."""
        try:
            return TopicName(self.namespace, name)
        except InvalidArgument as error:
            raise KafkaError(Code.INVALID_TOPIC_EXCEPTION, str(error)) from error

    def new_name(self, name: str) -> TopicName:
        """Return the SeaweedMQ name of a Kafka topic that exists or may be created, else INVALID_TOPIC_EXCEPTION.

        As in Apache Kafka, a new name must differ from all others in more than dots and underscores: Kafka's metrics
        have one name for both.
        """
        made = self.topic_name(name)
        if made in self.view.topics:
            return made
        if self._alike_at != self.view.changes:
            self._alike_at = self.view.changes
            mine = (topic.name for topic in self.view.topics if topic.namespace == self.namespace)
            self._alike = {_in_metrics(other): other for other in mine}
        other = self._alike.get(_in_metrics(name))
        if other is not None:
            raise KafkaError(
                Code.INVALID_TOPIC_EXCEPTION,
                f"topic {name} differs from topic {other} in dots and underscores only: choose a name that differs in "
                "other characters",
            )
        return made

    def why_hidden(self, name: TopicName) -> str:
        """Return the reason why Kafka clients do not see a topic, with the remedy."""
        topic = self.view.topics.get(name)
        if topic is None:
            return f"there is no topic {name.name} (SeaweedMQ knows it as {name}): create it"
        return visibility.why_hidden(topic, self.view.segments_of(name).values())

    def _by_name(self, name: str) -> TopicName:
        try:
            return TopicName(self.namespace, name)
        except InvalidArgument as error:
            raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from error

    def _by_id(self, topic_id: bytes) -> TopicName:
        uid = uid_of(topic_id)
        if uid is not None and uid not in self._names and self._named != self.view.changes:
            self._named = self.view.changes
            mine = (topic for topic in self.view.topics.values() if topic.name.namespace == self.namespace)
            self._names = {topic.uid: topic.name for topic in mine}
        name = self._names.get(uid) if uid is not None else None
        topic = self.view.topics.get(name) if name is not None else None
        if name is None or topic is None or topic.uid != uid:
            raise KafkaError(
                Code.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}: refresh the metadata"
            )
        return name

    def _shown(self, name: TopicName) -> PartitionedTopic | None:
        topic = self.view.topics.get(name)
        layout = None if topic is None else self._layout(topic)
        return None if topic is None or layout is None else PartitionedTopic(topic, layout, self.nodes)

    def _layout(self, topic: Topic) -> _Layout | None:
        revision = self.view.topic_version(topic.name)
        known = self._layouts.get(topic.name)
        if known is None or known[0] != revision:
            known = self._layouts[topic.name] = revision, _layout_of(topic, self.view)
        return known[1]


def _in_metrics(name: str) -> str:
    return name.replace(".", "_")


def _layout_of(topic: Topic, view: ClusterView) -> _Layout | None:
    """Return the layout of a topic; None if it has no partitions that Kafka clients can see."""
    slots = visibility.shown_slots(topic, view.segments_of(topic.name).values())
    if slots is None:
        return None
    segments: Iterable[Segment] = view.open_of(topic.name).values()
    if len(view.open_of(topic.name)) < len(slots):  # a partition is between a segment and its successor
        segments = sorted(view.segments_of(topic.name).values(), key=lambda segment: segment.id)
    newest = {segment.slots: segment for segment in segments}
    return _Layout(slots, tuple(newest.get(of_one) for of_one in slots))
