"""Chunk of frames read from a log file or a table."""

from typing import Final, NamedTuple

from seaweedmq.model.messages.frames import Frames

CHUNKS_AT_ONCE: Final = 4
"""Chunks made from a table per thread call: a call costs as much as a tenth of a frame of 1 MiB."""


class Chunk(NamedTuple):
    """A sequence of frames back to back, and the offset after the last of them."""

    end_offset: int
    data: Frames
