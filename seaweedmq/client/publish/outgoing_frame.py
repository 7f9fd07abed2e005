"""A frame on its way, and the ways in which rows end it."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from seaweedmq.client.publish.promise import Positions, Promise
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.messages.frames import Frames


@dataclass(frozen=True, slots=True)
class OutgoingFrame:
    """A frame to be delivered, and whose rows it carries. Its sequences never change once it may have been stored."""

    data: Frames
    first_sequence: int
    positions: Positions
    promise: Promise

    @property
    def record_count(self) -> int:
        return len(self.positions)

    @property
    def end_sequence(self) -> int:
        return self.first_sequence + len(self.positions)


class FrameAcked(NamedTuple):
    """The rows are kept; ``base_offset`` is None if nobody knows where."""

    positions: Positions
    promise: Promise
    segment: int
    base_offset: int | None


class FrameFailed(NamedTuple):
    """The rows are not kept, or not for sure."""

    positions: Positions
    promise: Promise
    error: SeaweedMQError


class FrameRerouted(NamedTuple):
    """The frame's rows are to be routed anew."""

    frame: OutgoingFrame


FrameOutcome: TypeAlias = FrameAcked | FrameFailed | FrameRerouted
