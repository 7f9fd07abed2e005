"""``seaweedmq broker`` on a disk that is full while its storage has a file named ``filler``.

For machines that cannot mount a small file system: the broker's own writes fail as on a full disk, even in the middle
of a write. The converter process's writes do not.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seaweedmq.cli.main import run
from seaweedmq.storage import file_io

FILLER = "filler"


class Quota:
    """A quota that rejects writes while the filler exists."""

    def __init__(self, storage: Path) -> None:
        self._filler = storage / FILLER
        self._write_all = file_io.write_all
        self._written_aside = file_io.temporary_file

    def write_all(self, fd: int, chunks: Sequence[bytes | memoryview]) -> None:
        """Replace ``file_io.write_all``: the first half fits."""
        if self._filler.exists():
            self._write_all(fd, chunks[: len(chunks) // 2] or [bytes(chunks[0])[: len(chunks[0]) // 2]])
            raise self._error()
        self._write_all(fd, chunks)

    @contextlib.contextmanager
    def temporary_file(self, directory: Path) -> Iterator[Path]:
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
