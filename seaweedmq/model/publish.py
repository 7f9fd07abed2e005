"""The publish stream, as values: one segment and one producer.

The client opens it, then sends frames; the broker answers ``PublishReady``, then acknowledgements in the order of the
frames, and at the end of the segment ``PublishSealed``.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.frames import LARGE_MESSAGE_BYTES, FrameHead, Frames
from seaweedmq.model.topic import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOpen:
    topic: TopicName
    segment: int
    epoch: int
    producer_id: int
    """Not 0, which is nobody's."""
    producer_epoch: int
    first_sequence: int = 0
    """The producer repeats nothing below: it is acknowledged, or given up. A broker that does not know it begins
    here."""
    topic_uid: int = 0
    """Of the topic that the client means; 0: whichever has the name."""


@dataclass(frozen=True, slots=True)
class PublishFrames:
    data: Frames


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReady:
    next_sequence: int
    """Sequences below are stored already; the client starts here or repeats frames below."""
    frame_bytes_max: int
    in_flight_frames_max: int
    """Frames the client may have sent and not seen acknowledged."""
    in_flight_bytes_max: int
    message_bytes_max: int = LARGE_MESSAGE_BYTES
    """Most frames of one message; a larger frame is sent as ``FrameHead`` and pieces."""
    is_new_epoch: bool = False
    """An earlier epoch of the producer is remembered, with what it stored: of this one nothing is stored. Otherwise
    ``next_sequence`` may be the client's own word."""


@dataclass(frozen=True, slots=True)
class FrameAck:
    """Records ``first_sequence ... + record_count`` of the producer are kept at ``base_offset ...``."""

    first_sequence: int
    record_count: int
    base_offset: int

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.record_count

    @property
    def end_sequence(self) -> int:
        """Sequence after the last record."""
        return self.first_sequence + self.record_count


@dataclass(frozen=True, slots=True)
class PublishAck:
    frames: tuple[FrameAck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSealed:
    """Last message of a stream whose segment is closed: what was not committed goes to the successors."""

    end_offset: int
    next_sequence: int
    """Of this producer: everything below is committed here, nothing else ever will be."""
    recent: tuple[FrameAck, ...]
    """The producer's last committed frames, so that a lost acknowledgement can be made good."""
    successors: tuple[int, ...]
    is_new_epoch: bool = False
    """The same as that of :class:`PublishReady`."""


PublishRequest: TypeAlias = PublishOpen | FrameHead | PublishFrames


PublishReply: TypeAlias = PublishReady | PublishAck | PublishSealed
