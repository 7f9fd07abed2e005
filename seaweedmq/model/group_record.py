"""Records in etcd of a group and a topic, from which the next leader resumes."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.model.messages.subscribe import Start

FORMER_INCARNATIONS_MAX = 8
"""Fenced incarnations that a member's record keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member, connected or expected to reconnect."""

    incarnation: int
    client: str
    former: tuple[int, ...] = ()
    """Fenced incarnations of this id, the latest first, at most ``FORMER_INCARNATIONS_MAX``. A zombie that returns must
    not fence its successor."""


@dataclass(frozen=True, slots=True)
class SegmentOwner:
    """The owner of a segment."""

    member: str
    generation: int
    """Generation in which the owner got the segment."""
    revoking: bool = False
    """Whether the segment is revoked and not yet released. No other member may get it until then."""
    void: bool = False
    """Whether a reset followed: its owner's commits are rejected. The segment is also ``revoking``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The record of a group, rewritten when members or owners change; commits do not touch it."""

    topic_uid: int
    start: Start
    """Start of segments below ``horizon`` without a commit; the others begin at the earliest."""
    horizon: int
    """Lowest segment id that did not exist when the group was created, or reset."""
    generation: int
    """Generation, which rises with each change of owners."""
    members: Mapping[str, MemberRecord]
    owners: Mapping[int, SegmentOwner]
    crashes: Mapping[int, int]
    """Segment -> number of consecutive owners that were lost without a commit although there was something to read.
    Segments without such a loss are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A group's commit of one segment."""

    offset: int
    """Offset below which the group has handled everything."""
    deliveries: Mapping[int, int]
    """Numbers of deliveries, see ``model.groups.Position``."""
    at_us: int
    """Wall clock of the leader, microseconds since 1970 UTC."""
