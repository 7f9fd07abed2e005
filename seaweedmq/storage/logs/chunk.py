"""What both kinds of file are read as."""

from typing import Final, NamedTuple

from seaweedmq.model.messages.frames import Frames

CHUNKS_AT_ONCE: Final = 4
"""Made from a table in one visit to a thread: a visit costs as much as a tenth of a frame of 1 MiB."""


class Chunk(NamedTuple):
    """Frames back to back, and the offset after the last of them."""

    end_offset: int
    data: Frames
