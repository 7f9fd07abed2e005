"""Administration of Kafka consumer groups, which exist beside those of native subscribers.

A group's id is any text. Topics have their usual names, ``namespace/name``, which are not checked: a consumer may
report any name in its assignment.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.model.topic import TopicName


class GroupKind(StrEnum):
    """The kind of a group's members."""

    NATIVE = "native"
    KAFKA = "kafka"


TopicPartition: TypeAlias = tuple[str, int]
"""``namespace/name`` and the number of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupSummary:
    """One line of ``group list``."""

    group: str
    state: str
    """State in the names of Kafka's tools: ``Stable``, ``Empty``."""
    protocol_type: str
    """``consumer``, ``connect``; empty: the group has only offsets, no member ever joined."""
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupMember:
    """A member of a Kafka group, for display."""

    id: str
    instance: str
    """Instance id of a static member; empty for others."""
    client: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """Assignment from the group's leader, as far as it is readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupOffset:
    """The group's position in one partition that it committed, or that a member has."""

    partition: TopicPartition
    owner: str
    """Member id, "" without an owner."""
    committed: int | None
    """Committed offset. None: nothing yet."""
    end_offset: int | None
    """High watermark; None: unknown at the moment."""

    @property
    def lag_records(self) -> int | None:
        """The records that are committed in the partition and not by the group; None: unknown."""
        if self.end_offset is None or self.committed is None:
            return None
        return max(0, self.end_offset - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupDescription:
    """A Kafka group with its members and offsets."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    """Protocol of the assignment; empty unless the group is stable."""
    coordinator: str
    """Broker id of the coordinator."""
    members: tuple[KafkaGroupMember, ...]
    offsets: tuple[KafkaGroupOffset, ...]
    """Positions by topic, then partition."""


GROUPS = "__consumer_offsets"
"""Name of the topic with the records of Kafka groups."""
INTERNAL_TOPICS = frozenset({GROUPS, "__transaction_state"})
"""Names of Kafka's own topics; a key's partition locates its records, so these get no more partitions."""


def groups_topic(namespace: str) -> TopicName:
    """Return the topic with the records of Kafka groups."""
    return TopicName(namespace, GROUPS)
