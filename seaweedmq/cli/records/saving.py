"""Saving of records to files, one a record, named after its key: for `subscribe --save-to`.

A key is any bytes, so a name is made of it that no file system takes for anything but a file of the folder: letters,
digits and ` ._-` stay, and every other byte is `%` and two hex digits, as are a dot or a dash at the beginning and a
space at the end. Longer names are cut, and get `~` and a hash. A file appears once it is complete, and never in place
of another one: later records of a key have `~`, their segment and their offset in their name, and those of other topics
also a number. Only a record that was saved before under such a name, with the same content, is not saved again.
"""

import contextlib
import errno
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from xxhash import xxh3_64_hexdigest

from seaweedmq.client.subscribe.messages import Message
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import MIB
from seaweedmq.storage.file_io import NO_LINKS, unique_suffix

NAME_LENGTH_MAX: Final = 100
"""Limit of a key's part of a name. File systems take 255 bytes, encrypted ones 143."""
COPY_BYTES: Final = 1 * MIB
_ESCAPED = re.compile(rb"[^A-Za-z0-9 ._-]|\A[.-]| \Z")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}$")


def file_name(key: bytes | None, segment: int, offset: int) -> str:
    """Return the name of a record's file: of its key, or of its position if it has none."""
    if not key:
        return _of_position("record", segment, offset)
    escaped = _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], key).decode("ascii")
    if len(escaped) <= NAME_LENGTH_MAX:
        return escaped
    mark = f"~{xxh3_64_hexdigest(key)}"
    suffix = _suffix_of(escaped)
    return escaped[: NAME_LENGTH_MAX - len(mark) - len(suffix)] + mark + suffix


def other_name(name: str, segment: int, offset: int, number: int = 1) -> str:
    """Return the name of another record with this name: with its position before the suffix, `film~0-17.mp4`.

    If several records have this position, in different topics, the second one has number 2: `film~0-17~2.mp4`.
    """
    suffix = _suffix_of(name)
    counted = "" if number == 1 else f"~{number}"
    return _of_position(name.removesuffix(suffix), segment, offset) + counted + suffix


def _suffix_of(name: str) -> str:
    found = _SUFFIX.search(name, 1)
    return "" if found is None else found[0]


def _of_position(what: str, segment: int, offset: int) -> str:
    return f"{what}~{segment}-{offset}"


class SaveFolder:
    """An open folder in which records are saved. Use it in ``with``."""

    def __init__(self, path: Path) -> None:
        """Open the folder, and create it if its parent exists.

        Raises:
            InvalidArgument: If it is not a folder, or cannot be created.
        """
        self.path = path
        try:
            path.mkdir(exist_ok=True)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidArgument(
                f"--save-to {path}: {error.strerror}: give a folder that exists, or whose parent does"
            ) from error

    def __enter__(self) -> "SaveFolder":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def save(self, message: Message) -> str | None:
        """Save a record's value, and return the name of the file; None for a record without a value.

        The file is durable on return. If anything fails, no part of it remains.

        Raises:
            PayloadLost: If its payload by reference is missing, changed, cut short, or of another topic.
            OSError: If the folder takes no more, or was deleted.
        """
        if message.reference is None and message.value is None:
            return None
        with self._temporary() as (file, temporary):
            with contextlib.closing(message.open()) as payload:
                shutil.copyfileobj(payload, file, COPY_BYTES)
            file.flush()
            os.fsync(file.fileno())
            name = self._named(temporary, message)
        os.fsync(self._fd)
        return name

    def _named(self, temporary: str, message: Message) -> str:
        """Name a file after its record, and return the first name that is not taken by another one."""
        first = name = file_name(message.key, message.segment, message.offset)
        for number in itertools.count(1):
            try:
                self._give_name(temporary, name)
            except FileExistsError:
                if number > 1 and self._is_equal(temporary, name):
                    break  # the same record of an earlier run
                name = other_name(first, message.segment, message.offset, number)
            else:
                break
        return name

    def _is_equal(self, temporary: str, name: str) -> bool:
        """Whether a name is that of a file with the same content."""
        # Neither the target of a symbolic link, nor a pipe or a folder, which cannot be opened like this.
        if not stat.S_ISREG(os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode):
            return False
        with self._opened(temporary) as saved, self._opened(name) as found:
            if os.fstat(saved.fileno()).st_size != os.fstat(found.fileno()).st_size:
                return False
            while content := saved.read(COPY_BYTES):
                if found.read(COPY_BYTES) != content:
                    return False
            return True

    def _opened(self, name: str) -> IO[bytes]:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.fdopen(os.open(name, flags, dir_fd=self._fd), "rb")

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[tuple[IO[bytes], str]]:
        name = f".{unique_suffix()}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with contextlib.ExitStack() as stack:
            fd = os.open(name, flags, 0o644, dir_fd=self._fd)
            stack.callback(self._remove, name)
            yield stack.enter_context(os.fdopen(fd, "wb")), name

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def _give_name(self, temporary: str, name: str) -> None:
        """Name a file; raises FileExistsError if the name is taken, also by a symbolic link."""
        try:
            os.link(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            # A file system without hard links: nothing else writes to the folder under this name.
            with contextlib.suppress(FileNotFoundError):
                os.lstat(name, dir_fd=self._fd)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
