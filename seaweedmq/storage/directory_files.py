"""Open files of a mounted directory: reads of ranges, and a new file that is written under its own name. Blocking."""

import os
from collections.abc import Sequence
from pathlib import Path

from seaweedmq.model.messages.frames import Frames
from seaweedmq.storage import file_io


class DirectoryReader:
    """A reader of ranges of an open file."""

    def __init__(self, fd: int, *, once: bool) -> None:
        self._fd = fd
        self._once = file_io.OnceReader(fd) if once else None

    def read_at(self, position: int, length: int) -> Frames:
        """Read ``length`` bytes from ``position``; fewer only at the end of the file."""
        if self._once is not None:
            return self._once.read_at(position, length)
        return file_io.read_at(self._fd, position, length)

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class DirectoryWriter:
    """A new file that is written under its own name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, chunks: Sequence[Frames]) -> None:
        """Append bytes."""
        file_io.write_all(self._fd, chunks)

    def finish(self) -> None:
        """Flush the file."""
        file_io.sync_file(self._fd)

    def close(self, *, keep: bool) -> None:
        """Close the file, and delete it unless ``keep``; a second call has no effect."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if not keep:
                self._path.unlink(missing_ok=True)  # first: closing may fail for lack of space
            os.close(fd)
