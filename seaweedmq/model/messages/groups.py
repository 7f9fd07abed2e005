"""Consumer groups: messages between members and the coordinator on the leader, and their administration.

A group reads one topic together; it divides the segments of each of several topics separately. A member keeps one
stream to the coordinator, through any broker. On each change the coordinator sends it the complete set of segments that
it should own. The member begins to read a new segment. It stops reading a missing one, commits, and reports the
release; only then does another member get the segment. Every ownership carries the generation of its assignment; a
commit with another one is rejected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.messages.subscribe import Start
from seaweedmq.model.topic import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOpen:
    """The first message of a stream, also after a reconnect."""

    group: str
    topic: TopicName
    member: str
    """Member id, chosen by the member or its user. A later incarnation of the same id fences the earlier."""
    incarnation: int
    """Random 63 bits per subscriber: distinguishes a reconnect from another subscriber of the same name."""
    start: Start
    """Start of a group that never read this topic; ignored otherwise."""
    client: str
    """Host and process, for display."""
    held: Mapping[int, int]
    """Segment -> generation of the segments that this incarnation still reads; empty at first. A revoked segment that
    is missing counts as released: the report may have been lost with the last stream."""
    topic_uid: int = 0
    """Uid of the topic that the member means; 0: any topic of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A commit of one segment: the group has handled every record below ``offset``."""

    segment: int
    generation: int
    """Generation of the ownership under which the member read the segment."""
    offset: int
    deliveries: Mapping[int, int]
    """Offset -> number of deliveries of records at or above ``offset`` that were delivered and rejected before. Sparse,
    at most ``DELIVERIES_KEPT_MAX``."""


DELIVERIES_KEPT_MAX = 1_000
"""Offsets in the ``deliveries`` of a position."""


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A commit, answered once in etcd by :class:`GroupCommitted` of the same number, or the stream's end."""

    number: int
    """Number of the commit, which rises in a stream from 1."""
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class GroupReleased:
    """Released segments: segment -> generation of the ownership, whose last commit the member has sent."""

    segments: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GroupLeave:
    """The last message: the member's segments are free at once."""


GroupRequest: TypeAlias = GroupOpen | GroupCommit | GroupReleased | GroupLeave


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A segment that a member should read."""

    segment: int
    generation: int
    start: Start
    """Committed offset, or the group's start before the first commit."""
    deliveries: Mapping[int, int]
    """Last committed deliveries, see :class:`Position`."""
    crashes: int
    """Consecutive owners that were lost without a commit; they count as deliveries of the first record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAssignment:
    """The complete set of segments that a member should own.

    A withdrawn ownership (segment and generation) never returns; the segment may, in a later generation.
    """

    generation: int
    """Generation of the group, which rises with each change of owners."""
    owned: tuple[Ownership, ...]
    trust_s: float | None = None
    """Seconds for which the member may trust the assignment without hearing from the coordinator; other members get its
    segments only later. None: the coordinator does not set it."""


@dataclass(frozen=True, slots=True)
class GroupCommitted:
    """The reply to a commit."""

    number: int
    refused: Mapping[int, str]
    """Segment -> reason of its rejection: it belongs to another generation now, or the offset lies beyond the end. The
    rest is committed."""


GroupReply: TypeAlias = GroupAssignment | GroupCommitted
"""Message of the coordinator. The stream ends with Fenced if another incarnation joined under the same id, or the group
removed the member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, for display."""

    id: str
    client: str
    connected: bool
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLag:
    """One segment that the group has not finished."""

    segment: int
    owner: str
    """Member id, "" without an owner."""
    committed: int | None
    """Committed offset. None: nothing yet, reading begins at the group's start."""
    end_offset: int
    """High watermark of an open segment, end of a sealed one."""
    lag_records: int
    """Records that publishers have committed and the group has not. Without a commit it counts from the segment's
    start, although a group that began later will not read all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopic:
    """A group's progress in one topic."""

    topic: TopicName
    generation: int
    start: Start
    members: tuple[GroupMember, ...]
    segments: tuple[SegmentLag, ...]
    finished: tuple[int, ...]
    """Sealed segments that the group has read to the end and that are still known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and its progress in each of its topics."""

    group: str
    topics: tuple[GroupTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One line of ``group list``."""

    group: str
    topic: TopicName
    members: int
    generation: int
