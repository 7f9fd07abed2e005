"""The frames in flight on one publish stream, within the limits of its broker. Pure."""

from collections import deque
from typing import NamedTuple

from seaweedmq.errors import ProtocolViolation
from seaweedmq.model.messages.publish import FrameAck, PublishReady


class SentFrame(NamedTuple):
    """A frame in flight. Its broker acknowledges it by its sequences."""

    first_sequence: int
    record_count: int
    size_bytes: int


class InFlight:
    """The frames that were sent and not acknowledged, in order. Brokers acknowledge them in that order."""

    def __init__(self) -> None:
        self._frames: deque[SentFrame] = deque()
        self._frames_max = 0
        self._bytes_max = 0
        self.size_bytes = 0
        """The bytes of the frames."""

    def __len__(self) -> int:
        return len(self._frames)

    def opened(self, ready: PublishReady) -> None:
        """Take over the limits of a new stream, on which no frame was sent."""
        self.clear()
        self._frames_max = ready.in_flight_frames_max
        self._bytes_max = ready.in_flight_bytes_max

    def has_room(self, count: int, size_bytes: int) -> bool:
        """Whether ``count`` frames of ``size_bytes`` together may be sent. Without others, they always may."""
        is_within = len(self) + count <= self._frames_max and self.size_bytes + size_bytes <= self._bytes_max
        return not self._frames or is_within

    def add(self, frame: SentFrame) -> None:
        """Add a frame that is sent now."""
        self._frames.append(frame)
        self.size_bytes += frame.size_bytes

    def acked(self, ack: FrameAck) -> None:
        """Remove the first frame, which is acknowledged, or raise ProtocolViolation if it is another frame's ack."""
        first = self._frames[0] if self._frames else None
        if first is None or (first.first_sequence, first.record_count) != (ack.first_sequence, ack.record_count):
            expected = (
                "none is in flight" if first is None else f"{first.first_sequence} + {first.record_count} is next"
            )
            raise ProtocolViolation(
                f"the broker acknowledged sequences {ack.first_sequence} + {ack.record_count}, but {expected}: "
                "it violates the protocol"
            )
        self._frames.popleft()
        self.size_bytes -= first.size_bytes

    def clear(self) -> None:
        """Remove all frames: their stream is lost."""
        self._frames.clear()
        self.size_bytes = 0
