"""Events and outcomes of the state machine of a classic group, see ``core.kafka.classic_group``.

A ``token`` is the shell's number of one request, never reused. Every token gets exactly one reply, or is dropped with
the state of the shard when its segment is sealed. Timeouts are in milliseconds, as Kafka clients send them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import GroupValue, ShardRecord

Partition: TypeAlias = tuple[str, int]
"""A topic, by its Kafka name, and the number of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLimits:
    """The limits of a coordinator."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    rebalance_delay_ms: int = 500
    """Time that the first members of an empty group wait for others; repeated while others join."""
    new_member_join_ms: int = 300_000
    """Longest wait of the first JoinGroup of a member, which has no session before its first generation."""
    string_bytes_max: int = 4_096
    """Size of a stored id or name."""
    members_max: int = 1_000
    group_bytes_max: int = 4 << 20
    """Size of the subscriptions and assignments of a group, which are one record."""
    groups_max: int = 10_000
    """Groups of a shard."""
    group_id_bytes_max: int = 32_767
    """Length of a string in Kafka's protocol, and in the records of groups."""
    offset_metadata_length_max: int = 4_096
    """Length in Java's characters, which Apache Kafka counts for ``offset.metadata.max.bytes``."""
    offsets_per_group_max: int = 100_000
    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
    offsets_check_ms: int = 600_000
    """Time between two checks for expired offsets and empty groups."""
    offsets_checked_max: int = 10_000
    """Offsets per check, in whole groups; the check continues after ``offsets_check_pause_ms``."""
    offsets_check_pause_ms: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request."""

    token: int
    group: str
    member: str
    """Member id; empty before the first join."""
    new_member: str
    """Id for a new member: random, never used before."""
    instance: str | None = None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the preferred first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Rebalance timeout; before v1, which has none, the session timeout."""
    require_known_member_id: bool = True
    """Whether a client without an id must join again with the new id (MEMBER_ID_REQUIRED): from v4."""
    can_skip_assignment: bool = False
    """Whether a restarted static leader accepts that the assignment is complete (KIP-814): from v9."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup request; ``protocol_type`` and ``protocol`` are set from v5 on."""

    token: int
    group: str
    member: str
    instance: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """Member -> its assignment, from the leader; empty from the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A Heartbeat request."""

    token: int
    group: str
    member: str
    instance: str | None = None
    generation: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """A leaving member: by its id, or, if that is empty, by its instance id."""

    member: str
    instance: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A LeaveGroup request."""

    token: int
    group: str
    members: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    """One partition of an OffsetCommit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes | None = None
    """Id of the topic that has the name now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """An OffsetCommit request, of partitions that exist."""

    token: int
    group: str
    member: str = ""
    instance: str | None = None
    generation: int = -1
    retention_ms: int | None = None
    """Retention requested by v2 to v4. None: the coordinator's retention applies."""
    offsets: tuple[OffsetToCommit, ...]
    is_v9: bool = False
    """Whether a missing group is GROUP_ID_NOT_FOUND, from v9, and not ILLEGAL_GENERATION."""


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """An OffsetDelete request."""

    token: int
    group: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """One group of a DeleteGroups request."""

    token: int
    group: str


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Deleted topics, whose offsets are removed."""

    topics: Mapping[str, bytes | None]
    """Name -> id of the topic that has the name now, whose offsets stay; None: no topic has it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time ``GroupShard.wake_at``."""


class Timer(Enum):
    """A timer of a group."""

    SESSION = "session"
    """End of one member's session: it sent nothing for too long."""
    JOIN = "join"
    """End of the join phase."""
    SYNC = "sync"
    """End of the sync phase."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The deadline of a timer; ``member`` is empty unless the timer belongs to one."""

    timer: Timer
    member: str = ""


GroupEvent: TypeAlias = Join | Sync | Heartbeat | Leave | TimerFired
"""Event of one group."""
ShardEvent: TypeAlias = (
    Join | Sync | Heartbeat | Leave | CommitOffsets | DeleteOffsets | RemoveGroup | TopicsDeleted | Tick
)
"""Event of a shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedMember:
    """A member in the reply to the leader."""

    id: str
    instance: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """The reply to JoinGroup; with an error, all fields but ``member`` keep their defaults."""

    token: int
    error: Code = Code.NONE
    member: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[SubscribedMember, ...] = ()
    """All members, for the leader; empty for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """The reply to SyncGroup."""

    token: int
    error: Code = Code.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to Heartbeat, which needs no commit."""

    token: int
    error: Code = Code.NONE


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """The reply to LeaveGroup: each member's result, in the order of the request; none if ``error`` is set."""

    token: int
    error: Code = Code.NONE
    members: tuple[tuple[Leaving, Code], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitReply:
    """The reply to OffsetCommit: an error per partition, in the order of the request."""

    token: int
    errors: tuple[Code, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    """The reply to OffsetDelete: an error per partition, in the order of the request; none if ``error`` is set."""

    token: int
    error: Code = Code.NONE
    errors: tuple[Code, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroupReply:
    """The reply to DeleteGroups, for one group."""

    token: int
    error: Code = Code.NONE


Reply: TypeAlias = (
    JoinReply | SyncReply | HeartbeatReply | LeaveReply | CommitReply | DeleteOffsetsReply | DeleteGroupReply
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """The outcome of an event for one group."""

    value: GroupValue | None = None
    """Value to write; None: unchanged."""
    replies: tuple[Reply, ...] = ()
    timers: Mapping[tuple[Timer, str], float | None] = field(default_factory=dict)
    """Timer and member -> its new deadline, or None to cancel it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """The records to append in order, in any number of frames (nothing relies on atomicity), then the replies."""

    records: tuple[ShardRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    """Replies to send once all earlier outcomes and these ``records``, which they report, are committed."""
    prompt: tuple[Reply, ...] = ()
    """Replies to heartbeats, to send at once."""
