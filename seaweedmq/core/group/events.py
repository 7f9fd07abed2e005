"""What a group's state machine takes and what it gives: see ``core.group.machine``.

A ``stream`` is the shell's number of one connection of one member; it is never used twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.groups import GroupCommit, GroupReply
from seaweedmq.model.segment import Segment
from seaweedmq.model.subscribe import Start


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """See ``BrokerConfig``."""

    session_timeout_s: float
    revoke_timeout_s: float
    rebalance_delay_s: float
    members_max: int
    detection_s: float
    """A connection that is gone is seen to be by both of its ends within this time: by one at once, perhaps, and by the
    other as late as that."""

    @property
    def trust_s(self) -> float:
        """See ``GroupAssignment``."""
        return min(self.session_timeout_s, self.revoke_timeout_s) / 2

    @property
    def away_s(self) -> float:
        """How long a member without a stream is waited for: until it trusts nothing any more, however short its session
        is."""
        return max(self.session_timeout_s, self.detection_s + self.trust_s)

    @property
    def revoking_s(self) -> float:
        """How long a member may keep what was taken from it. It may be out of reach, so the same holds."""
        return max(self.revoke_timeout_s, self.detection_s + self.trust_s)


# --- what comes in --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A member opened a stream: see ``GroupOpen``."""

    stream: int
    member: str
    incarnation: int
    client: str
    held: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class StreamLost:
    """A stream ended without a word."""

    stream: int


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """The member said that it leaves."""

    stream: int


@dataclass(frozen=True, slots=True)
class Released:
    """The member let go of segments: id -> generation."""

    stream: int
    segments: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Committing:
    """The member has dealt with records. ``at_us``: wall clock."""

    stream: int
    commit: GroupCommit
    at_us: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The topic's metadata: all its segments by id, and the id the next one will get."""

    segments: Mapping[int, Segment]
    next_segment: int


@dataclass(frozen=True, slots=True)
class Learned:
    """High watermarks of open segments, as their primaries say."""

    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Tick:
    """``wake_at`` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Read from elsewhere: everything committed is replaced by ``offsets`` (segment -> offset), the rest begins at
    ``start``, or at the earliest from ``horizon`` on."""

    start: Start
    horizon: int
    offsets: Mapping[int, int]
    at_us: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The group, or its topic, is no more."""

    error: SeaweedMQError


Event: TypeAlias = Opened | StreamLost | MemberLeft | Released | Committing | Changed | Learned | Tick | Reset | Deleted

# --- what comes out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """To be sent on a stream."""

    stream: int
    message: GroupReply


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The stream ends: well, or with an error."""

    stream: int
    error: SeaweedMQError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What to persist first, and what to say afterwards."""

    record: GroupRecord | None = None
    """To be written; None: it did not change."""
    committed: Mapping[int, CommittedOffset | None] = field(default_factory=dict)
    """Segment -> what to write, or None to delete it."""
    replies: tuple[Reply | Goodbye, ...] = ()

    def then(self, later: "Outcome") -> "Outcome":
        """Both at once."""
        return replace(
            self,
            record=later.record or self.record,
            committed={**self.committed, **later.committed},
            replies=self.replies + later.replies,
        )
