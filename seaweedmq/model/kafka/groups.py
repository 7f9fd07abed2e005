"""Kafka consumer groups: their records and their descriptions.

A group follows Kafka's classic protocol: its members choose the assignment, the coordinator only runs the rebalance.
All state is in records, those of Kafka's ``__consumer_offsets``: ``codec.kafka.group_records`` encodes them,
``core.kafka.shard_state`` decides which are written. Times are in milliseconds, those of Kafka's records.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class GroupState(Enum):
    """The state of a group, in the names of Kafka's tools."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member of a generation."""

    id: str
    instance: str | None = None
    """Instance id of a static member: it survives restarts, unlike ``id``."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    """Metadata of the member for the selected protocol."""
    assignment: bytes
    """Assignment from the leader; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """A complete generation, without members if the group is empty."""

    generation: int
    protocol_type: str | None
    """Protocol type. None: no member ever joined."""
    protocol: str | None
    """Protocol of the assignment; None without members."""
    leader: str | None
    since_ms: int | None
    """Wall clock of the last change of state. None: written by an old Kafka."""
    members: tuple[MemberValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetValue:
    """A committed offset of a partition."""

    offset: int
    leader_epoch: int = -1
    """Leader epoch of the record before; -1: unknown."""
    metadata: str = ""
    commit_ms: int
    expire_ms: int | None = None
    """Wall clock of the expiry that an old client requested. None: the coordinator's retention applies."""
    topic_id: bytes | None = None
    """Id of the topic, 16 bytes, which distinguishes it from an earlier one of its name. None: written by an earlier
    release, or by a Kafka before 4.1."""


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """The new value of a group; None deletes it."""

    group: str
    value: GroupValue | None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """The new value of a committed offset; None deletes it."""

    group: str
    topic: str
    partition: int
    value: OffsetValue | None


ShardRecord: TypeAlias = GroupMetadataRecord | OffsetRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A line of ListGroups."""

    group: str
    protocol_type: str
    """Protocol type; empty: the group has only offsets, no member ever joined."""
    state: GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member, for display; ``metadata`` is empty unless the group is stable."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group, for display; ``state`` is ``DEAD`` for a group that does not exist."""

    group: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    """Protocol; empty unless the group is stable."""
    members: tuple[DescribedMember, ...] = ()
