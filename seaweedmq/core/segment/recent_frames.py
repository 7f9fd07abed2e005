"""Compact memory of the last frames of one producer: 16 bytes each, at a cost per call that does not grow with them."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from seaweedmq.model.messages.publish import FrameAck

SLACK_FRAMES = 64
"""Dropped frames that may occupy memory until they are cut off."""


class RecentFrames:
    """Contiguous frames, the oldest first, each ending where the next begins; the owner knows the last one's end."""

    __slots__ = ("_bases", "_firsts", "_start")

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._bases = array("Q")
        self._start = 0
        """Index of the oldest remembered frame."""

    def __len__(self) -> int:
        return len(self._firsts) - self._start

    def append(self, first_sequence: int, base_offset: int) -> None:
        """Add the next frame."""
        self._firsts.append(first_sequence)
        self._bases.append(base_offset)

    @property
    def first_sequence(self) -> int:
        """First sequence of the oldest frame. Requires that there is one."""
        return self._firsts[self._start]

    def put_before(self, frames: Sequence[FrameAck], lap: int) -> None:
        """Insert frames that end where the oldest begins, the oldest first, after raising all sequences by ``lap``."""
        firsts = [f.first_sequence for f in frames] + list(self._firsts[self._start :])
        self._firsts = array("Q", [first + lap for first in firsts])
        self._bases = array("Q", [*(f.base_offset for f in frames), *self._bases[self._start :]])
        self._start = 0

    def trim(self, frames_max: int, floor: int) -> None:
        """Drop the oldest frames beyond ``frames_max``, but none at or above offset ``floor``."""
        start, surplus = self._start, len(self._firsts) - frames_max
        if start >= surplus:
            return
        while start < surplus and self._bases[start] < floor:
            start += 1
        if start >= SLACK_FRAMES or 2 * start >= len(self._firsts):
            del self._firsts[:start]
            del self._bases[:start]
            start = 0
        self._start = start

    def find(self, first_sequence: int, next_sequence: int) -> FrameAck | None:
        """Return the frame that begins at ``first_sequence``, or None; the last one ends at ``next_sequence``."""
        index = bisect_left(self._firsts, first_sequence, self._start)
        if index == len(self._firsts) or self._firsts[index] != first_sequence:
            return None
        return self._ack(index, next_sequence)

    def end_below(self, offset: int, next_sequence: int) -> int:
        """Return the sequence at which the frames below ``offset`` end; the last one ends at ``next_sequence``."""
        cut = bisect_left(self._bases, offset, self._start)
        return self._firsts[cut] if cut < len(self._firsts) else next_sequence

    def last(self, frames_max: int, next_sequence: int) -> tuple[FrameAck, ...]:
        """Return up to ``frames_max`` frames that end at or below ``next_sequence``, which is the end of a frame."""
        cut = bisect_left(self._firsts, next_sequence, self._start)
        return tuple(self._ack(i, next_sequence) for i in range(max(self._start, cut - frames_max), cut))

    def _ack(self, index: int, next_sequence: int) -> FrameAck:
        first, following = self._firsts[index], index + 1
        end = self._firsts[following] if following < len(self._firsts) else next_sequence
        return FrameAck(first, end - first, self._bases[index])
