"""Messages between the replicas of a segment and the leader.

A replicate stream goes from the primary to one follower and serves one segment and epoch. It begins at the segment's
start offset and never resumes: if it breaks, the segment is sealed and continues in a successor.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES, FrameHead, Frames
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """A segment at an epoch; a follower that knows a newer epoch rejects the primary with Fenced."""

    topic: TopicName
    topic_uid: int
    """Uid of the topic: an earlier topic of this name has other segments of the same numbers."""
    segment: int
    epoch: int

    @classmethod
    def of(cls, topic: Topic, segment: Segment, epoch: int | None = None) -> "SegmentRef":
        """Return the reference of a segment, at its own epoch if none is given."""
        return cls(
            topic=topic.name, topic_uid=topic.uid, segment=segment.id, epoch=segment.epoch if epoch is None else epoch
        )

    @property
    def key(self) -> SegmentId:
        """The name of the segment, without the uid of its topic."""
        return SegmentId(self.topic, self.segment)

    def __str__(self) -> str:
        return f"{self.topic}#{self.segment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateOpen:
    """The first message of a primary: its broker id and its segment."""

    ref: SegmentRef
    primary: str
    """Broker id."""


@dataclass(frozen=True, slots=True)
class ReplicateFrames:
    """Stamped frames, back to back, that follow the previous message."""

    data: Frames


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateHeld:
    """The follower's report that it holds everything below ``end_offset``."""

    end_offset: int
    message_bytes_max: int = SMALL_MESSAGE_BYTES
    """Bytes of frames in one message; a larger frame is sent as ``FrameHead`` and pieces."""


ReplicateRequest: TypeAlias = ReplicateOpen | FrameHead | ReplicateFrames
ReplicateReply: TypeAlias = ReplicateHeld


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceReply:
    """A follower's answer to a fence, after which it rejects frames of an older epoch."""

    end_offset: int | None
    """End of the follower's log; None if the primary never reached it, so nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLog:
    """A log that is complete in the files, flushed, and closed."""

    end_offset: int
    sequences: tuple[ProducerSequence, ...]
    """Every producer that may not have received all of its acknowledgements, the longest idle first."""
    sequences_complete: bool = True
    """Whether ``sequences`` is complete. False: log files that would name further producers no longer exist."""
