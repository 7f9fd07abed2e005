"""What etcd keeps of a group and a topic: enough for the next leader to go on where the last one was."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.model.subscribe import Start

FORMER_INCARNATIONS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member, connected or expected back."""

    incarnation: int
    client: str
    former: tuple[int, ...] = ()
    """Incarnations of this id that were fenced, the latest first, at most ``FORMER_INCARNATIONS_MAX``: a zombie that
    comes back must not fence its successor."""


@dataclass(frozen=True, slots=True)
class SegmentOwner:
    """Who owns a segment."""

    member: str
    generation: int
    """When it was given."""
    revoking: bool = False
    """The owner was told to let go and did not say yet that it has. Nobody else may have it until then."""
    void: bool = False
    """A reset came since: what its owner commits counts no more. It is ``revoking``, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """Rewritten when members or owners change; commits do not touch it."""

    topic_uid: int
    start: Start
    """Where segments below ``horizon`` begin of which nothing is committed; the others begin at the earliest."""
    horizon: int
    """The first segment id that did not exist when the group was created, or reset."""
    generation: int
    """Rises with each change of owners."""
    members: Mapping[str, MemberRecord]
    owners: Mapping[int, SegmentOwner]
    crashes: Mapping[int, int]
    """Segment -> how many owners in a row were lost without committing anything although there was something to read;
    segments without such a loss are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a group committed of one segment."""

    offset: int
    """Everything below is dealt with."""
    deliveries: Mapping[int, int]
    """See ``model.groups.Position``."""
    at_us: int
    """Wall clock of the leader, microseconds since 1970 UTC."""
