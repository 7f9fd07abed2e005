"""What a classic group's state machine takes and what it gives: see ``core.kafka.classic_group``.

A ``token`` is the shell's number of one request, never used twice; every token is answered by exactly one reply, or
dropped with all the shard's state when its segment is over. Timeouts are in milliseconds, as Kafka's clients send them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from seaweedmq.model.kafka_groups import GroupError, GroupValue, ShardRecord

Partition: TypeAlias = tuple[str, int]
"""A topic, as Kafka names it, and the number of a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLimits:
    """Of a coordinator."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    rebalance_delay_ms: int = 500
    """How long the first members of an empty group wait for others; again and again while others come."""
    new_member_join_ms: int = 300_000
    """A member that was never in a generation has no session yet: how long its first JoinGroup may wait."""
    string_bytes_max: int = 4_096
    """Of an id or a name that is kept."""
    members_max: int = 1_000
    group_bytes_max: int = 4 << 20
    """Subscriptions and assignments of a group: all of it is one record."""
    groups_max: int = 10_000
    """Of a shard."""
    group_id_bytes_max: int = 32_767
    """Length of a string in Kafka's protocol, and in the records that groups are kept in."""
    offset_metadata_length_max: int = 4_096
    """Java's characters, which Apache Kafka counts for ``offset.metadata.max.bytes``."""
    offsets_per_group_max: int = 100_000
    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
    offsets_check_ms: int = 600_000
    """How often old offsets and empty groups are looked for."""
    offsets_checked_max: int = 10_000
    """In one go, whole groups: the others are looked at ``offsets_check_pause_ms`` later."""
    offsets_check_pause_ms: int = 50


# --- what comes in --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup."""

    token: int
    group: str
    member: str
    """Empty: not a member yet."""
    new_member: str
    """The id it gets if it needs one: random, never used before."""
    instance: str | None = None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the preferred first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Before v1 there was none: the session timeout."""
    require_known_member_id: bool = True
    """From v4 on: who comes without an id is told one and comes again (MEMBER_ID_REQUIRED)."""
    can_skip_assignment: bool = False
    """From v9 on: a static leader that restarted is told that everything is assigned already (KIP-814)."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. ``protocol_type`` and ``protocol``: from v5 on."""

    token: int
    group: str
    member: str
    instance: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """Member -> its share, from the leader; empty from the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat."""

    token: int
    group: str
    member: str
    instance: str | None = None
    generation: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """One of those that leave: by its id, or, if that is empty, by its instance id."""

    member: str
    instance: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup."""

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
    """OffsetCommit, of partitions that exist."""

    token: int
    group: str
    member: str = ""
    instance: str | None = None
    generation: int = -1
    retention_ms: int | None = None
    """v2 to v4: kept for so long. None: as the coordinator's retention says."""
    offsets: tuple[OffsetToCommit, ...]
    is_v9: bool = False
    """From v9 on a group that does not exist is GROUP_ID_NOT_FOUND, before that ILLEGAL_GENERATION."""


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """OffsetDelete."""

    token: int
    group: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """DeleteGroups, one of them."""

    token: int
    group: str


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics are no more, and their offsets go."""

    topics: Mapping[str, bytes | None]
    """Name -> id of the topic that has the name now, whose offsets stay; None: no topic has it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """``GroupShard.wake_at`` has come."""


class Timer(Enum):
    """What a group waits for."""

    SESSION = "session"
    """Of one member: it said nothing for too long."""
    JOIN = "join"
    """The join phase ends."""
    SYNC = "sync"
    """The sync phase ends."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """Its deadline has come. ``member``: empty unless the timer is of one."""

    timer: Timer
    member: str = ""


GroupEvent: TypeAlias = Join | Sync | Heartbeat | Leave | TimerFired
"""What one group takes."""
ShardEvent: TypeAlias = (
    Join | Sync | Heartbeat | Leave | CommitOffsets | DeleteOffsets | RemoveGroup | TopicsDeleted | Tick
)
"""What a shard takes."""

# --- what comes out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedMember:
    """A member, to the leader."""

    id: str
    instance: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """To JoinGroup. With an error all but ``member`` is as by default."""

    token: int
    error: GroupError = GroupError.NONE
    member: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[SubscribedMember, ...] = ()
    """Everybody, to the leader; nobody, to the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """To SyncGroup."""

    token: int
    error: GroupError = GroupError.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """To Heartbeat. It may be said at once."""

    token: int
    error: GroupError = GroupError.NONE


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """To LeaveGroup. ``members``: what became of each, in the order of the request; none if ``error`` is one."""

    token: int
    error: GroupError = GroupError.NONE
    members: tuple[tuple[Leaving, GroupError], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitReply:
    """To OffsetCommit. ``errors``: of each partition, in the order of the request."""

    token: int
    errors: tuple[GroupError, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    """To OffsetDelete. ``errors``: of each partition, in the order of the request; none if ``error`` is one."""

    token: int
    error: GroupError = GroupError.NONE
    errors: tuple[GroupError, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroupReply:
    """To DeleteGroups."""

    token: int
    error: GroupError = GroupError.NONE


Reply: TypeAlias = (
    JoinReply | SyncReply | HeartbeatReply | LeaveReply | CommitReply | DeleteOffsetsReply | DeleteGroupReply
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """What one group has to say."""

    value: GroupValue | None = None
    """To be written; None: nothing."""
    replies: tuple[Reply, ...] = ()
    timers: Mapping[tuple[Timer, str], float | None] = field(default_factory=dict)
    """Timer and member -> its new deadline, or None: it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """What to append first, and what to say afterwards.

    ``records`` keep their order; if they are too many for one frame they may be cut: nothing relies on all or none.
    """

    records: tuple[ShardRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    """To be said once all that was handed out so far, ``records`` included, is committed: they tell of it."""
    prompt: tuple[Reply, ...] = ()
    """To heartbeats: to be said at once."""
