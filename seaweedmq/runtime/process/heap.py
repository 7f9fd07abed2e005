"""Configuration of the allocator for memory that is used in large blocks for short times."""

from functools import cache
from typing import Final

MAPPED_BYTES: Final = 31 * 1024 * 1024
"""Block size just below 32 MiB, the largest block that adjusts glibc's threshold."""


@cache
def keep_freed_blocks() -> None:
    """Make glibc keep up to about 60 MiB of freed memory for the next blocks of one or two mebibytes.

    glibc adjusts its threshold to the largest mapped block that was freed: from then on, blocks up to that size come
    from the heap, and twice as much stays at its end. Before that, most messages of a subscriber occupy memory that is
    new to the process, and clearing its pages costs more than receiving the content. Any program that frees a large
    array once has the same effect. With other allocators than glibc's there is no effect.
    """
    bytes(MAPPED_BYTES)  # never touched, so that none of its pages ever exists
