"""Open objects: reads of ranges through blocks, for readers that seek, and writes in parts. Blocking.

A request to an object store takes milliseconds even for few bytes. So a short read gets the whole block around it,
and a long one gets exactly its range. An object never changes, so blocks need no check.
"""

import errno
import io
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence

from seaweedmq.errors import NotFound
from seaweedmq.model.messages.frames import Frames
from seaweedmq.storage.objects.blocking import BlockingObjects, BlockingWriter

BLOCK_BYTES = 4 * 1024 * 1024
BLOCKS_MAX = 8
"""Limit of the blocks in memory for each open object: a row group, whose columns are read in turns, lies in five."""


class BlockReader:
    """A reader of ranges of one object."""

    def __init__(self, name: str, get_range: Callable[[int, int], memoryview]) -> None:
        """Create a reader; ``get_range`` returns the bytes from a start up to an end, fewer beyond the object's end."""
        self._name = name
        self._get_range = get_range
        self._blocks: OrderedDict[int, memoryview] = OrderedDict()

    def read_at(self, position: int, length: int) -> Frames:
        """Read ``length`` bytes from ``position``; fewer only at the end. Raises FileNotFoundError, StorageFailed."""
        if length >= BLOCK_BYTES:
            return self._get(position, position + length)
        first, last = position // BLOCK_BYTES, max(position, position + length - 1) // BLOCK_BYTES
        parts = [self._block(number) for number in range(first, last + 1)]
        start = position - first * BLOCK_BYTES
        if first == last:
            return parts[0][start : start + length]
        return b"".join((parts[0][start:], parts[1][: position + length - last * BLOCK_BYTES]))

    def close(self) -> None:
        """Free the memory; a second call has no effect."""
        self._blocks.clear()

    def _block(self, number: int) -> memoryview:
        if number not in self._blocks:
            self._blocks[number] = self._get(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES)
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]

    def _get(self, start: int, end: int) -> memoryview:
        try:
            return self._get_range(start, end)
        except NotFound:
            raise FileNotFoundError(errno.ENOENT, "the object was deleted", self._name) from None


class BlockInput:
    """A ``ports.BlockingInput`` of an object of a known size."""

    def __init__(self, reader: BlockReader, size_bytes: int) -> None:
        self._reader = reader
        self._size_bytes = size_bytes
        self._position = 0
        self._is_closed = False

    def read(self, nbytes: int = -1, /) -> bytes:
        """Read up to ``nbytes`` bytes from the position on; all remaining ones if negative."""
        left = max(0, self._size_bytes - self._position)
        wanted = left if nbytes < 0 else min(nbytes, left)
        if not wanted:
            return b""
        data = bytes(self._reader.read_at(self._position, wanted))
        self._position += len(data)
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position, as in ``io.IOBase``, and return it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        if start + position < 0:
            raise io.UnsupportedOperation(f"position {start + position} is before the start of the object")
        self._position = start + position
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def close(self) -> None:
        """Free the memory."""
        self._is_closed = True
        self._reader.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._is_closed

    def readable(self) -> bool:
        """Whether it can be read, which Arrow asks."""
        return True

    def seekable(self) -> bool:
        """Whether it can be positioned, which Arrow asks."""
        return True

    def writable(self) -> bool:
        """Whether it can be written, which Arrow asks."""
        return False


class ObjectFileWriter:
    """A large object that is being written in parts."""

    def __init__(self, objects: BlockingObjects, key: str, writer: BlockingWriter) -> None:
        self._objects = objects
        self._key = key
        self._writer: BlockingWriter | None = writer
        self._is_finished = False

    def write(self, chunks: Sequence[Frames]) -> None:
        """Append bytes."""
        assert self._writer is not None, f"{self._key} is closed"
        for chunk in chunks:
            self._writer.write(chunk)

    def finish(self) -> None:
        """Complete the object."""
        assert self._writer is not None, f"{self._key} is closed"
        self._writer.close()
        self._is_finished = True

    def close(self, *, keep: bool) -> None:
        """Drop an unfinished object; delete a finished one unless ``keep``."""
        writer, self._writer = self._writer, None
        if writer is not None and self._is_finished and not keep:
            self._objects.delete([self._key])
