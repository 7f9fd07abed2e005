"""From what a client names, topic and partition, to the partition that is led here, or to who leads it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from seaweedmq.broker.local import LocalBroker, LocalPartition
from seaweedmq.errors import Corrupt, SeaweedMQError, StaleMetadata
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic, TopicDirectory
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.fields import Endpoint
from seaweedmq.model.kafka_nodes import Node

NO_EPOCH = -1
NO_TOPIC_ID = bytes(16)


class LeaderHint(NamedTuple):
    """Where to go on (KIP-951)."""

    node: Node
    epoch: int


class PartitionLookup:
    """Partitions as clients name them."""

    def __init__(self, local: LocalBroker, directory: TopicDirectory) -> None:
        self._local = local
        self._directory = directory

    def topic(self, name_or_id: str | bytes) -> PartitionedTopic:
        """By its name, or its id. KafkaRefusal: there is none."""
        return self._directory.find(name_or_id)

    def led(self, topic: PartitionedTopic, partition: int, leader_epoch: int = NO_EPOCH) -> LocalPartition:
        """The partition, if it is led here.

        Args:
            leader_epoch: of the leader whom the client believes to ask; -1: it does not say.

        Raises:
            KafkaRefusal: no such partition; or another epoch; or its files are damaged, and no broker can lead it.
            StaleMetadata, Unavailable: it is led elsewhere, or by nobody.
        """
        slot = topic.slot(partition)
        if leader_epoch != NO_EPOCH:
            self._check_epoch(topic, slot, leader_epoch)
        try:
            return self._local.leads(topic.topic.name, slot)
        except Corrupt as error:  # as Apache Kafka says of an offline log directory; Java's consumer retries
            raise KafkaError(Code.KAFKA_STORAGE_ERROR, str(error)) from error

    def hint(self, topic: PartitionedTopic, partition: int, error: SeaweedMQError) -> LeaderHint | None:
        """Who leads the partition by now, where to know that is the remedy: ``topic`` was looked up before what failed,
        which may have waited for long."""
        if not isinstance(error, StaleMetadata):
            return None
        try:
            segment = self._directory.find(topic.id).segment(partition)
        except KafkaError:  # it is deleted, or not shown any more
            return None
        node = self._directory.nodes.of_broker(segment.primary) if segment is not None and segment.is_open else None
        return None if segment is None or node is None else LeaderHint(node, segment.id)

    def _check_epoch(self, topic: PartitionedTopic, slot: int, epoch: int) -> None:
        lineage = self._local.lineages(topic.topic.name).get(slot)
        if lineage is None or epoch == lineage[-1].id:
            return
        if epoch < lineage[-1].id:
            raise KafkaError(
                Code.FENCED_LEADER_EPOCH, f"epoch {epoch} of {topic.name} is over, it is {lineage[-1].id} by now"
            )
        raise KafkaError(Code.UNKNOWN_LEADER_EPOCH, f"epoch {epoch} of {topic.name} is not known here yet: ask again")


def key_of(name: str | None, topic_id: Any, *, by_id: bool) -> str | bytes:
    """Return the topic's name, or its id where the version of the request names topics by their ids."""
    if by_id:
        return NO_TOPIC_ID if topic_id is None else bytes(topic_id.bytes)
    return name or ""


def endpoints(hints: Iterable[LeaderHint]) -> list[Endpoint]:
    """The nodes that are named in hints, once each, as a reply has them."""
    nodes = {hint.node.id: hint.node for hint in hints}
    return [Endpoint(n.id, n.host, n.port) for n in nodes.values()]
