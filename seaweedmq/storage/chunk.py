"""What both kinds of file are read as."""

from typing import NamedTuple


class Chunk(NamedTuple):
    """Frames back to back, and the offset after the last of them."""

    end_offset: int
    data: bytes | memoryview
