"""Events and outcomes of a group's state machine, see ``core.group.group_state_machine``.

A ``stream`` is the shell's number of one connection of one member; it is never reused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.messages.groups import GroupCommit, GroupReply
from seaweedmq.model.messages.subscribe import Start
from seaweedmq.model.segment import Segment


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of a group, see ``BrokerConfig``."""

    session_timeout_s: float
    revoke_timeout_s: float
    rebalance_delay_s: float
    members_max: int
    detection_s: float
    """Longest time until both ends of a broken connection detect it. One end may detect it at once, the other only at
    the end of this time."""

    @property
    def trust_s(self) -> float:
        """The trust in an assignment, see ``GroupAssignment``."""
        return min(self.session_timeout_s, self.revoke_timeout_s) / 2

    @property
    def return_timeout_s(self) -> float:
        """The longest time for a member to return without a stream; by its end it trusts nothing any longer."""
        return max(self.session_timeout_s, self.detection_s + self.trust_s)

    @property
    def revoking_s(self) -> float:
        """The longest time that a member, maybe unreachable, may keep a revoked segment: ``return_timeout_s``."""
        return max(self.revoke_timeout_s, self.detection_s + self.trust_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A stream that a member opened, see ``GroupOpen``."""

    stream: int
    member: str
    incarnation: int
    client: str
    held: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class StreamLost:
    """The end of a stream without a message."""

    stream: int


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """The member's request to leave."""

    stream: int


@dataclass(frozen=True, slots=True)
class Released:
    """Segments that the member released: id -> generation."""

    stream: int
    segments: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Committing:
    """A commit of the member; ``at_us`` is the wall clock."""

    stream: int
    commit: GroupCommit
    at_us: int


@dataclass(frozen=True, slots=True)
class Changed:
    """New metadata of the topic: all its segments by id, and the id of the next one."""

    segments: Mapping[int, Segment]
    next_segment: int


@dataclass(frozen=True, slots=True)
class Learned:
    """High watermarks of open segments, as their primaries report."""

    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Tick:
    """The time ``wake_at``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A reset: ``offsets`` (segment -> offset) replaces all commits.

    Other segments begin at ``start``, or at the earliest from ``horizon`` up.
    """

    start: Start
    horizon: int
    offsets: Mapping[int, int]
    at_us: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deletion of the group, or its topic."""

    error: SeaweedMQError


Event: TypeAlias = Opened | StreamLost | MemberLeft | Released | Committing | Changed | Learned | Tick | Reset | Deleted


@dataclass(frozen=True, slots=True)
class Reply:
    """A message to send on a stream."""

    stream: int
    message: GroupReply


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream, with an error unless the member left."""

    stream: int
    error: SeaweedMQError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The state to persist, and the replies to send afterwards."""

    record: GroupRecord | None = None
    """Record to write; None: unchanged."""
    committed: Mapping[int, CommittedOffset | None] = field(default_factory=dict)
    """Segment -> commit to write, or None to delete it."""
    replies: tuple[Reply | StreamEnd, ...] = ()

    def then(self, later: "Outcome") -> "Outcome":
        """Combine with a later outcome."""
        return replace(
            self,
            record=later.record or self.record,
            committed={**self.committed, **later.committed},
            replies=self.replies + later.replies,
        )
