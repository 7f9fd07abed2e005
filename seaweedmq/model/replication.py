"""What the replicas of a segment and the leader say to each other.

A replicate stream goes from the primary to one follower and serves one segment and epoch. It begins at the segment's
start offset and is never resumed: a stream that breaks means the segment is sealed and goes on elsewhere.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.frames import SMALL_MESSAGE_BYTES, FrameHead, Frames
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """A segment at an epoch. A primary that names an older epoch than its follower knows is refused with Fenced."""

    topic: TopicName
    topic_uid: int
    """The same segment of an earlier topic of this name is another one."""
    segment: int
    epoch: int

    @classmethod
    def of(cls, topic: Topic, segment: Segment, epoch: int | None = None) -> "SegmentRef":
        """At its own epoch, if no other is given."""
        return cls(
            topic=topic.name,
            topic_uid=topic.uid,
            segment=segment.id,
            epoch=segment.epoch if epoch is None else epoch,
        )

    @property
    def key(self) -> SegmentId:
        """Its name, whichever topic of that name there is."""
        return SegmentId(self.topic, self.segment)

    def __str__(self) -> str:
        return f"{self.topic}#{self.segment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateOpen:
    """Who speaks, and for which segment."""

    ref: SegmentRef
    primary: str
    """Broker id."""


@dataclass(frozen=True, slots=True)
class ReplicateFrames:
    """Stamped frames, back to back, where the last ones ended."""

    data: Frames


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateHeld:
    """The follower holds everything below ``end_offset``."""

    end_offset: int
    message_bytes_max: int = SMALL_MESSAGE_BYTES
    """Most frames of one message; a larger frame is sent as ``FrameHead`` and pieces."""


ReplicateRequest: TypeAlias = ReplicateOpen | FrameHead | ReplicateFrames
ReplicateReply: TypeAlias = ReplicateHeld


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceReply:
    """A follower's answer to a fence: it takes no frames of an older epoch from now on."""

    end_offset: int | None
    """Where the follower's log ends; None if the primary never reached it, so nothing was ever committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLog:
    """A log that is complete in the files, fsynced, and takes nothing more."""

    end_offset: int
    sequences: tuple[ProducerSequence, ...]
    """Every producer that may not have heard yet of all it stored, the longest idle first."""
    sequences_complete: bool = True
    """False: log files that would name further ones are gone."""
