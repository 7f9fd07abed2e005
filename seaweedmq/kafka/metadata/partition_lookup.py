"""Lookup of a partition that this broker leads, or of its leader, from the topic and partition in a request."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from seaweedmq.broker.local import LocalPartition
from seaweedmq.broker.ports import PartitionAccess
from seaweedmq.core.kafka.epochs import NO_EPOCH
from seaweedmq.core.kafka.topic_ids import NO_TOPIC_ID
from seaweedmq.errors import Corrupt, SeaweedMQError, StaleMetadata
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic, TopicDirectory
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.fields import Endpoint
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.nodes import Node


class LeaderHint(NamedTuple):
    """The current leader of a partition (KIP-951)."""

    node: Node
    epoch: int


class PartitionLookup:
    """The partitions of this broker, by the names in requests."""

    def __init__(self, partitions: PartitionAccess, directory: TopicDirectory) -> None:
        self._partitions = partitions
        self._directory = directory

    def topic(self, name_or_id: str | bytes) -> PartitionedTopic:
        """Return a topic by its name or its id, or raise KafkaError if there is none."""
        return self._directory.find(name_or_id)

    def led(self, topic: PartitionedTopic, partition: int, leader_epoch: int = NO_EPOCH) -> LocalPartition:
        """Return a partition that this broker leads, at the client's ``leader_epoch`` (-1: any).

        Raises KafkaError if there is no such partition, the epoch differs, or its files are damaged, so that no broker
        can lead it; StaleMetadata if another broker leads it, and Unavailable if none does.
        """
        slot = topic.slot(partition)
        if leader_epoch != NO_EPOCH:
            self._check_epoch(topic, slot, leader_epoch)
        try:
            return self._partitions.leads(topic.topic.name, slot)
        except Corrupt as error:  # as in Apache Kafka for an offline log directory; Java's consumer retries
            raise KafkaError(Code.KAFKA_STORAGE_ERROR, str(error)) from error

    def hint(self, topic: PartitionedTopic, partition: int, error: SeaweedMQError) -> LeaderHint | None:
        """Return the current leader of a partition if ``error`` is StaleMetadata, which the leader remedies.

        The lookup is repeated, since ``topic`` may be old: the failed request may have waited for long.
        """
        if not isinstance(error, StaleMetadata):
            return None
        try:
            segment = self._directory.find(topic.id).segment(partition)
        except KafkaError:  # the topic was deleted or hidden
            return None
        node = self._directory.nodes.of_broker(segment.primary) if segment is not None and segment.is_open else None
        return None if segment is None or node is None else LeaderHint(node, segment.id)

    def _check_epoch(self, topic: PartitionedTopic, slot: int, epoch: int) -> None:
        lineage = self._partitions.lineages(topic.topic.name).get(slot)
        if lineage is None or epoch == lineage[-1].id:
            return
        if epoch < lineage[-1].id:
            raise KafkaError(
                Code.FENCED_LEADER_EPOCH, f"epoch {epoch} of {topic.name} is over, the current one is {lineage[-1].id}"
            )
        raise KafkaError(Code.UNKNOWN_LEADER_EPOCH, f"epoch {epoch} of {topic.name} is not known here yet: retry")


def key_of(name: str | None, topic_id: Any, *, by_id: bool) -> str | bytes:
    """Return the topic's name, or its id where the version of the request names topics by their ids."""
    if by_id:
        return NO_TOPIC_ID if topic_id is None else bytes(topic_id.bytes)
    return name or ""


def endpoints(hints: Iterable[LeaderHint]) -> list[Endpoint]:
    """Return the nodes of the hints as endpoints of a reply, each once."""
    nodes = {hint.node.id: hint.node for hint in hints}
    return [Endpoint(n.id, n.host, n.port) for n in nodes.values()]
