"""``seaweedmq broker`` on a disk that is full while its storage holds a file named ``filler``.

For machines where no small file system can be mounted: writes of the broker itself fail as they do there, in the
middle of a write too. What the converter process writes does not.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seaweedmq.cli.main import run
from seaweedmq.storage.store import file_io

FILLER = "filler"


class Quota:
    """Refuses what needs room while the filler is there."""

    def __init__(self, storage: Path) -> None:
        self._filler = storage / FILLER
        self._write_all = file_io.write_all
        self._written_aside = file_io.temporary_file

    def write_all(self, fd: int, chunks: Sequence[bytes | memoryview]) -> None:
        """In place of ``file_io.write_all``: the first half fits."""
        if self._filler.exists():
            self._write_all(fd, chunks[: len(chunks) // 2] or [bytes(chunks[0])[: len(chunks[0]) // 2]])
            raise self._error()
        self._write_all(fd, chunks)

    @contextlib.contextmanager
    def temporary_file(self, directory: Path) -> Iterator[Path]:
        """In place of ``file_io.temporary_file``."""
        if self._filler.exists():
            raise self._error()
        with self._written_aside(directory) as path:
            yield path

    def _error(self) -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


if __name__ == "__main__":
    quota = Quota(Path(sys.argv[sys.argv.index("--storage") + 1]))
    file_io.write_all = quota.write_all
    file_io.temporary_file = quota.temporary_file
    run()
