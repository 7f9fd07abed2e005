"""Groups of Kafka's consumers as administration sees them. Beside them there are those of native subscribers.

A group's id is any text. Topics are named as elsewhere, ``namespace/name``, without being checked: what a consumer says
that it was assigned is its own affair.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.model.topic import TopicName


class GroupKind(StrEnum):
    """Whose members a group has."""

    NATIVE = "native"
    KAFKA = "kafka"


TopicPartition: TypeAlias = tuple[str, int]
"""``namespace/name`` and the number of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupSummary:
    """One line of ``group list``."""

    group: str
    state: str
    """As Kafka's tools name it: ``Stable``, ``Empty``."""
    protocol_type: str
    """``consumer``, ``connect``; empty: offsets alone, nobody ever joined."""
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupMember:
    id: str
    instance: str
    """Of a static member; else empty."""
    client: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """What the group's leader gave it, as far as that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupOffset:
    """Where the group goes on in one partition that it committed, or that a member has."""

    partition: TopicPartition
    owner: str
    """Member id, "" while nobody has it."""
    committed: int | None
    """None: nothing yet."""
    end_offset: int | None
    """High watermark; None: not known at the moment."""

    @property
    def lag_records(self) -> int | None:
        """What is stored and not committed by the group; None: not known."""
        if self.end_offset is None or self.committed is None:
            return None
        return max(0, self.end_offset - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupDescription:
    group: str
    state: str
    protocol_type: str
    protocol: str
    """How members share out; empty unless the group is stable."""
    coordinator: str
    """Broker id."""
    members: tuple[KafkaGroupMember, ...]
    offsets: tuple[KafkaGroupOffset, ...]
    """By topic, then partition."""


GROUPS = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({GROUPS, "__transaction_state"})
"""Kafka's own, by name. What they keep is found by the number of its partition, so that they never get more."""


def groups_topic(namespace: str) -> TopicName:
    """The topic that Kafka's groups are kept in."""
    return TopicName(namespace, GROUPS)
