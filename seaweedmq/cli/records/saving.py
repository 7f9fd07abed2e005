"""Saving of records to files, one a record, named after its key: for `subscribe --save-to`.

A key is any bytes, so a name is made of it that no file system takes for anything but a file of the folder: letters,
digits and ` ._-` stay, and every other byte is `%` and two hex digits, as are a dot or a dash at the beginning and a
space at the end. Longer names are cut, and get `~` and a hash. A file appears once it is complete, and never in place
of that of another record: later records of a key have `~`, their segment and their offset in their name.
"""

import contextlib
import errno
import os
import re
import shutil
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


def other_name(name: str, segment: int, offset: int) -> str:
    """Return the name of another record with this name: with its position before the suffix, `film~0-17.mp4`."""
    suffix = _suffix_of(name)
    return _of_position(name.removesuffix(suffix), segment, offset) + suffix


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
            name = file_name(message.key, message.segment, message.offset)
            try:
                self._give_name(temporary, name)
            except FileExistsError:
                name = other_name(name, message.segment, message.offset)
                # The same record of an earlier run, if there is one.
                os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)
        return name

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
