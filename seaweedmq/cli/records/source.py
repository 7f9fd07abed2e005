"""Input of `publish`: a file or stdin, in pieces of bounded size."""

import contextlib
import fcntl
import io
import os
import select
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument

PIECE_BYTES = 1 << 20
LINGER_S = 0.02
"""Longest time in seconds to wait for more input, so that a slow writer's lines are published as they come."""
LINE_BYTES_MAX = 64 << 20
"""Longest line in bytes. Longer ones are rejected while reading, so that any input takes bounded memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """An open input."""

    name: str
    file: io.BufferedReader
    size_bytes: int | None
    """Size of a regular file; None for a pipe or terminal."""
    begin: int = 0
    """Position of a regular file when it was opened; :meth:`rewind` returns to it."""

    @property
    def interactive(self) -> bool:
        """Whether the input is a terminal."""
        return self.file.isatty()

    def position(self) -> int:
        """Return the bytes read so far; 0 unless the input is a regular file."""
        return os.lseek(self.file.fileno(), 0, os.SEEK_CUR) if self.size_bytes is not None else 0

    def rewind(self) -> None:
        """Return a regular file to its beginning."""
        self.file.seek(self.begin)


@contextlib.contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open a file, or stdin for ``-``."""
    if name == "-":
        # Not sys.stdin: consumers close its buffer or read ahead.
        file, name = open(0, "rb", closefd=False), "stdin"  # noqa: SIM115
        # A larger pipe means fewer, larger reads; not every pipe may be enlarged.
        with contextlib.suppress(OSError):
            fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, PIECE_BYTES)
    else:
        file = open(name, "rb")  # noqa: PTH123, SIM115
    with file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise InvalidArgument(f"{name} is a folder: name a file")
        if stat.S_ISREG(status.st_mode):
            yield Source(name, file, status.st_size, file.tell())
        else:
            yield Source(name, file, None)


def pieces(file: io.BufferedReader) -> Iterator[bytes]:
    """Yield the input in pieces of about PIECE_BYTES, or as much as arrives within LINGER_S."""
    fd = file.fileno()
    while data := os.read(fd, PIECE_BYTES):
        parts, size = [data], len(data)
        deadline_s = time.monotonic() + LINGER_S
        while size < PIECE_BYTES:
            wait_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([fd], [], [], wait_s)[0] or not (data := os.read(fd, PIECE_BYTES - size)):
                break
            parts.append(data)
            size += len(data)
        yield b"".join(parts)


def line_blocks(source: Source) -> Iterator[list[bytes]]:
    """Yield the lines of the input without their newline, many at a time; the last needs no newline."""
    rest: list[bytes] = []
    rest_bytes = 0
    for piece in pieces(source.file):
        end = piece.rfind(b"\n")
        if end < 0:
            rest.append(piece)
            rest_bytes += len(piece)
            if rest_bytes > LINE_BYTES_MAX:
                raise InvalidArgument(
                    f"a line of {source.name} is longer than {LINE_BYTES_MAX >> 20} MiB: is it the right --format?"
                )
            continue
        lines = b"".join((*rest, piece[:end])).split(b"\n")
        tail = piece[end + 1 :]
        rest, rest_bytes = [tail] if tail else [], len(tail)
        yield lines
    if rest:
        yield [b"".join(rest)]


@contextlib.contextmanager
def seekable(source: Source) -> Iterator[io.BufferedReader]:
    """Yield the input as a seekable file; a pipe is first copied to a temporary file."""
    if source.size_bytes is not None:
        yield source.file
        return
    with tempfile.TemporaryFile(prefix="seaweedmq-") as copy:
        shutil.copyfileobj(source.file, copy, PIECE_BYTES)
        copy.seek(0)
        yield copy  # type: ignore[misc]
