"""What the allocator does with memory that comes and goes in large blocks."""

from functools import cache
from typing import Final

MAPPED_BYTES: Final = 31 * 1024 * 1024
"""Just below 32 MiB, the largest block that glibc learns from."""


@cache
def keep_freed_blocks() -> None:
    """Have glibc keep up to some 60 MiB of freed memory for the next blocks of a mebibyte or two.

    It learns from the largest block that was mapped and freed: blocks up to that size come from the heap from then on,
    and twice as much stays at its end. Until it has seen a large one, most messages of a subscriber are memory that is
    new to the process, and pages that have to be cleared cost more than receiving what goes into them. Any program
    that once frees a large array has the same effect; elsewhere than on glibc there is none.
    """
    bytes(MAPPED_BYTES)  # never touched, so no page of it ever exists
