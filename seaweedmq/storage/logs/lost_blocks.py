"""What power loss makes of a write that was never fsynced, told apart from damage.

A file system writes back in blocks, in any order: after power loss a block holds what was written, or reads as zeros
(an extent that was never converted, a hole), or the file ends before it. It never shows other bytes: those are damage.
A block that was written before, when the file ended inside of it, may come back as it was then: zeros behind that end,
or, if the device tore its rewriting, in some of its sectors. That end is the end of a frame, since all of a frame is
written at once. So what was lost of a bad frame is a whole block of zeros behind the block in which the frame begins,
and in that one a sector of zeros, or the rest of one.

A frame may hold such zeros as they came from its publisher. If one of these is damaged, that is taken for a lost write:
there is no telling, and a segment that nobody can seal is worse. Recovery knows more (``recovery``): what it can prove
to have been fsynced, it misses.
"""

BLOCK_BYTES = 4096
"""Of file systems and page caches; larger ones are multiples."""
SECTOR_BYTES = 512
"""What a device writes whole."""


class LostBlocks:
    """Looks for lost blocks from the start of a bad frame on, in what is read of the file piece by piece."""

    def __init__(self, start: int, end: int | None) -> None:
        """File positions of the bad frame; ``end`` is None if its header does not tell."""
        self._first_block_end = start - start % BLOCK_BYTES + BLOCK_BYTES
        self._end = end
        self._next = start
        """Begin of the first unit that was not looked at."""

    @property
    def next(self) -> int | None:
        """The position that the next piece must begin at or before; None if there is nothing left to look at."""
        return None if self._end is not None and self._next >= self._end else self._next

    def found_in(self, data: bytes, at: int, until: int, *, is_last: bool) -> bool:
        """Whether a lost block begins below ``until``, in bytes of the file from position ``at`` on.

        A unit that the data holds in part is looked at only if ``is_last``.
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
