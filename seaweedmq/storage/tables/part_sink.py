"""A Parquet file that is written to an object in parts, while its end stays in memory until the footer is sealed."""

import io
import os

from seaweedmq.ports import PART_BYTES
from seaweedmq.storage.place import PlaceWriter

TAIL_BYTES = 16 * 1024 * 1024
"""Bytes at the end of the file that can be read and written again, more than any footer needs."""


class PartSink(io.BufferedIOBase):
    """A file open for writing at its end, and for reading and writing in its last ``TAIL_BYTES``."""

    def __init__(self, path: str, writer: PlaceWriter) -> None:
        super().__init__()
        self.path = path
        """Path of the object in the storage."""
        self._writer = writer
        self._tail = bytearray()
        self._tail_start = 0
        """Position of the tail in the file."""
        self._position = 0

    def writable(self) -> bool:
        """Whether it can be written."""
        return True

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def seekable(self) -> bool:
        """Whether it can be positioned."""
        return True

    def write(self, data: object, /) -> int:
        """Write at the position, and pass on the parts that are further than ``TAIL_BYTES`` from the end."""
        chunk = memoryview(data).cast("B")  # type: ignore[arg-type] # any buffer
        at = self._in_tail()
        self._tail[at : at + len(chunk)] = chunk
        self._position += len(chunk)
        while len(self._tail) >= TAIL_BYTES + PART_BYTES:
            self._writer.write([bytes(self._tail[:PART_BYTES])])
            del self._tail[:PART_BYTES]
            self._tail_start += PART_BYTES
        return len(chunk)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read from the position, which must be in the tail."""
        at = self._in_tail()
        data = bytes(self._tail[at:] if size is None or size < 0 else self._tail[at : at + size])
        self._position += len(data)
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position, and return it."""
        end = self._tail_start + len(self._tail)
        self._position = position + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: end}[whence]
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def finish(self) -> None:
        """Write the rest, and complete the object."""
        self._writer.write([bytes(self._tail)])
        self._writer.finish()
        self._writer.close(keep=True)
        self._tail.clear()

    def abandon(self) -> None:
        """Drop the file."""
        self._writer.close(keep=False)

    def _in_tail(self) -> int:
        at = self._position - self._tail_start
        if not 0 <= at <= len(self._tail):
            raise io.UnsupportedOperation(f"{self.path}: position {self._position} is no longer in memory")
        return at
