"""Detection of blocks that power loss took from an unflushed write, as distinct from damage.

A file system writes blocks back in any order. After power loss, a block holds the written bytes, or reads as zeros (an
unconverted extent, a hole), or the file ends before it. Any other bytes are damage. A block that was written earlier,
while the file ended inside it, may return in that state. It has zeros after that end, or only in some sectors if the
device tore the rewrite. That end is the end of a frame, since a frame is written at once. So the lost part of a bad
frame is a whole block of zeros after the frame's first block; within the first block, it is a sector of zeros, or the
rest of one.

A frame may contain such zeros from its publisher. If such a frame is damaged, it counts as a lost write: the cases
cannot be distinguished, and a segment that cannot be sealed would be worse. Recovery (``recovery``) knows which records
were flushed for certain, and reports those that are missing.
"""

BLOCK_BYTES = 4096
"""Block size of file systems and page caches; larger sizes are multiples."""
SECTOR_BYTES = 512
"""Size that a device writes atomically."""


class LostBlocks:
    """A search for lost blocks in consecutive reads of a file, from the start of a bad frame."""

    def __init__(self, start: int, end: int | None) -> None:
        """Create a search of the bad frame at these file positions; ``end`` is None if its header is bad."""
        self._first_block_end = start - start % BLOCK_BYTES + BLOCK_BYTES
        self._end = end
        self._next = start
        """Position of the first unit that is not checked."""

    @property
    def next(self) -> int | None:
        """Position that the next read must include or precede; None if the search is complete."""
        return None if self._end is not None and self._next >= self._end else self._next

    def found_in(self, data: bytes, at: int, until: int, *, is_last: bool) -> bool:
        """Whether a lost block begins below ``until``, in bytes of the file from position ``at``.

        A unit that the data holds only in part is checked only if ``is_last``.
        """
        stop = min(until, at + len(data), until if self._end is None else self._end)
        while self._next < stop:
            unit = SECTOR_BYTES if self._next < self._first_block_end else BLOCK_BYTES
            end = self._next - self._next % unit + unit
            held = data[self._next - at : end - at]
            if len(held) < end - self._next and not is_last:
                break
            if not held.strip(b"\0"):
                return True
            self._next = end
        return False
