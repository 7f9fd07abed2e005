"""Frames to be sent, and the outcomes of their rows."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.messages.frames import Frames

Positions = range | npt.NDArray[np.int64]
"""Positions of rows in the batch or table they were sent with, in the order of the frame that carries them."""


class Promise(Protocol):
    """A receiver of the outcomes of one batch or table. Called in the loop's thread, once per row."""

    @property
    def deadline_s(self) -> float:
        """The loop time by which every row must have an outcome."""

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        """Settle rows as acknowledged, at consecutive offsets from ``base_offset`` if it is known."""

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        """Settle rows as not stored, or possibly not."""


@dataclass(frozen=True, slots=True)
class OutgoingFrame:
    """A frame to be sent, with the promise of its rows. Its sequences never change once it may have been appended."""

    data: Frames
    first_sequence: int
    positions: Positions
    promise: Promise

    @property
    def record_count(self) -> int:
        """The number of records."""
        return len(self.positions)

    @property
    def end_sequence(self) -> int:
        """The sequence after the last record's."""
        return self.first_sequence + len(self.positions)


class FrameAcked(NamedTuple):
    """The outcome of acknowledged rows; ``base_offset`` is None if their offset is unknown."""

    positions: Positions
    promise: Promise
    segment: int
    base_offset: int | None


class FrameFailed(NamedTuple):
    """The outcome of rows that are not stored, or possibly not."""

    positions: Positions
    promise: Promise
    error: SeaweedMQError


class FrameRerouted(NamedTuple):
    """The outcome of a frame whose rows must be routed again."""

    frame: OutgoingFrame


FrameOutcome: TypeAlias = FrameAcked | FrameFailed | FrameRerouted
