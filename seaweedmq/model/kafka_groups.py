"""Kafka's consumer groups: what is kept of them, and what is told of them.

A group is one of Kafka's classic protocol: its members choose who gets what, the coordinator only keeps the round. All
of it is in records, those of Kafka's ``__consumer_offsets``: ``codec.kafka.group_records`` has their bytes,
``core.kafka.shard_state`` decides what is written. Times are in milliseconds, those of Kafka's records.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias


class GroupError(IntEnum):
    """Kafka's numbers for what a coordinator may answer."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    """A limit of ours that Kafka does not have."""
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86


class GroupState(Enum):
    """As Kafka's tools show it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# --- what is kept ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member of a generation."""

    id: str
    instance: str | None = None
    """Of a static member: stays the same over its restarts, when ``id`` does not."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    """Its metadata for the protocol that was selected."""
    assignment: bytes
    """What the leader gave it; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """A generation that is complete; without members: the group is empty."""

    generation: int
    protocol_type: str | None
    """None: nobody ever joined."""
    protocol: str | None
    """How it was assigned; None without members."""
    leader: str | None
    since_ms: int | None
    """Wall clock: since when it is in its state. None: written by an old Kafka."""
    members: tuple[MemberValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetValue:
    """Where a group goes on reading a partition."""

    offset: int
    leader_epoch: int = -1
    """Of the record before; -1: not said."""
    metadata: str = ""
    commit_ms: int
    expire_ms: int | None = None
    """Wall clock: an old client's own wish. None: as the coordinator's retention says."""
    topic_id: bytes | None = None
    """Id of the topic, 16 bytes, which tells it from an earlier one of its name. None: written by an earlier release,
    or by a Kafka before 4.1."""


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """A group as it is from here on; None: it is no more."""

    group: str
    value: GroupValue | None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset; None: it is no more."""

    group: str
    topic: str
    partition: int
    value: OffsetValue | None


ShardRecord: TypeAlias = GroupMetadataRecord | OffsetRecord


# --- what is told ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A line of ListGroups."""

    group: str
    protocol_type: str
    """Empty: of offsets only, nobody ever joined."""
    state: GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member, to people. ``metadata`` is empty unless the group is stable."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group, to people. ``state`` is ``DEAD`` for one that does not exist."""

    group: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    """Empty unless the group is stable."""
    members: tuple[DescribedMember, ...] = ()
