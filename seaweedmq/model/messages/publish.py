"""The messages of a publish stream, which serves one segment and one producer.

The client opens the stream, then sends frames. The broker answers ``PublishReady``, then acknowledgements in the order
of the frames, and ``PublishSealed`` at the end of the segment.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, FrameHead, Frames
from seaweedmq.model.topic import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOpen:
    """The first message of a client: segment and producer."""

    topic: TopicName
    segment: int
    epoch: int
    producer_id: int
    """Producer id; not 0, which names no producer."""
    producer_epoch: int
    first_sequence: int = 0
    """Lowest sequence that the producer may repeat: those below are acknowledged or failed. A broker that does not know
    the producer begins here."""
    topic_uid: int = 0
    """Uid of the topic that the client means; 0: any topic of this name."""


@dataclass(frozen=True, slots=True)
class PublishFrames:
    """Frames of the producer in sequence order."""

    data: Frames


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReady:
    """The first reply of the broker: its limits and the producer's position."""

    next_sequence: int
    """Lowest sequence that is not stored; the client starts here or repeats frames below."""
    frame_bytes_max: int
    in_flight_frames_max: int
    """Unacknowledged frames of the client."""
    in_flight_bytes_max: int
    message_bytes_max: int = LARGE_MESSAGE_BYTES
    """Bytes of frames in one message; a larger frame is sent as ``FrameHead`` and pieces."""
    is_new_epoch: bool = False
    """Whether the broker remembers only an earlier epoch of the producer: it has stored nothing of this epoch.
    Otherwise ``next_sequence`` may repeat the client's own ``first_sequence``."""


@dataclass(frozen=True, slots=True)
class FrameAck:
    """An acknowledged frame: its first sequence and record count, and its offsets from ``base_offset``."""

    first_sequence: int
    record_count: int
    base_offset: int

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.record_count

    @property
    def end_sequence(self) -> int:
        """The sequence after the last record."""
        return self.first_sequence + self.record_count


@dataclass(frozen=True, slots=True)
class PublishAck:
    """Acknowledgements in the order of the frames."""

    frames: tuple[FrameAck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSealed:
    """The last message of a stream whose segment is sealed; what was not committed goes to the successors."""

    end_offset: int
    next_sequence: int
    """Sequence of this producer below which everything is committed here; nothing else ever will be."""
    recent: tuple[FrameAck, ...]
    """The producer's last committed frames, which replace a lost acknowledgement."""
    successors: tuple[int, ...]
    is_new_epoch: bool = False
    """Flag of the epoch, see :class:`PublishReady`."""


PublishRequest: TypeAlias = PublishOpen | FrameHead | PublishFrames


PublishReply: TypeAlias = PublishReady | PublishAck | PublishSealed
