"""Consumer groups: what members and the coordinator on the leader say to each other, and what administration sees.

A group reads one topic together; of several topics, each is shared out by itself. A member keeps one stream to the
coordinator (through any broker) and is told, whenever that changes, the whole set of segments it should own. What is
new in it, it begins to read; what is gone from it, it stops reading, commits, and reports as released; only then does
another member get it. Every ownership carries the generation it was given in; a commit that names another is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.subscribe import Start
from seaweedmq.model.topic import TopicName

# --- member to coordinator ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOpen:
    """First message of a stream, also after a reconnect."""

    group: str
    topic: TopicName
    member: str
    """Chosen by the member, or by its user. A later incarnation of the same id fences the earlier."""
    incarnation: int
    """Random 63 bits a subscriber: tells a reconnect from another subscriber of the same name."""
    start: Start
    """Where the group begins if it never read this topic; ignored otherwise."""
    client: str
    """Host and process, for people."""
    held: Mapping[int, int]
    """Segment -> generation of what this incarnation still reads; empty at first. What the member was told to let go
    and does not hold any more counts as released: the report may have been lost with the last stream."""
    topic_uid: int = 0
    """Of the topic that the member means; 0: whichever has the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Everything of a segment below ``offset`` is dealt with."""

    segment: int
    generation: int
    """Of the ownership under which it was read."""
    offset: int
    deliveries: Mapping[int, int]
    """Offset -> how often delivered, of records at or above ``offset`` that were delivered and refused before. Sparse,
    at most ``DELIVERIES_KEPT_MAX``."""


DELIVERIES_KEPT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """Answered by :class:`GroupCommitted` with the same number once it is in etcd, or by the end of the stream."""

    number: int
    """Rises with each commit of a stream, from 1."""
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class GroupReleased:
    """The member reads these no more, and has committed all it will. Segment -> generation of the ownership."""

    segments: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GroupLeave:
    """Last message: the member's segments are free at once."""


GroupRequest: TypeAlias = GroupOpen | GroupCommit | GroupReleased | GroupLeave

# --- coordinator to member ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A segment that a member should read."""

    segment: int
    generation: int
    start: Start
    """An offset once something was committed, else the group's start."""
    deliveries: Mapping[int, int]
    """As committed last, see :class:`Position`."""
    crashes: int
    """How many owners in a row were lost without committing anything: counts as deliveries of the first record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAssignment:
    """The whole of what the member should own from now on. An ownership (segment and generation) that was withdrawn
    never comes back; the segment may, in a later generation."""

    generation: int
    """Of the group; rises with each change of owners."""
    owned: tuple[Ownership, ...]
    trust_s: float | None = None
    """How long a member that hears nothing of the coordinator may believe this: others get nothing of it before. None:
    the coordinator does not say."""


@dataclass(frozen=True, slots=True)
class GroupCommitted:
    number: int
    refused: Mapping[int, str]
    """Segment -> why: it belongs to another generation now, or the offset lies beyond the end. The rest is kept."""


GroupReply: TypeAlias = GroupAssignment | GroupCommitted
"""The stream ends with Fenced when another incarnation joined under the same id, or the member was thrown out."""

# --- administration -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    id: str
    client: str
    connected: bool
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLag:
    """One segment that the group has not finished."""

    segment: int
    owner: str
    """Member id, "" while nobody owns it."""
    committed: int | None
    """None: nothing yet, reading begins at the group's start."""
    end_offset: int
    """High watermark of an open segment, end of a sealed one."""
    lag_records: int
    """What is committed by publishers and not by the group. Counts from the segment's start if nothing is committed,
    although a group that began later will not read all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopic:
    """A group's reading of one topic."""

    topic: TopicName
    generation: int
    start: Start
    members: tuple[GroupMember, ...]
    segments: tuple[SegmentLag, ...]
    finished: tuple[int, ...]
    """Sealed segments that the group has read to the end and that are still known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    topics: tuple[GroupTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One line of ``group list``."""

    group: str
    topic: TopicName
    members: int
    generation: int
