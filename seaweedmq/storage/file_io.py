"""Blocking calls on files and folders of a file system; each completes or raises OSError."""

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from seaweedmq.model.messages.frames import Frames
from seaweedmq.ports import StorageSpace
from seaweedmq.storage.faults import NO_SPACE

IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if "SC_IOV_MAX" in os.sysconf_names else 16
"""Limit of the buffers of one writev; POSIX guarantees 16."""

_RWF_DONTCACHE = 0x80
"""Flag of linux/fs.h that Python 3.11 does not name."""
_NO_FLAGS = frozenset({errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of a system or file system that does not support the flag."""

NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV})
"""Errors of a file system without hard links, in general, in this folder, or for this file.

EACCES is not included: it means a missing permission to write in a folder, and is reported.
"""

TEMPORARY_PREFIX = ".tmp-"
"""Prefix of temporary files: Spark, Hadoop and Arrow ignore names with a dot, so readers see only complete files."""
TEMPORARY_AGE_S_MAX = 86_400.0

_counter = itertools.count()
_process = os.urandom(4).hex()  # noqa: TID251 - names of temporary files on a real disk
"""Random id of the process: process ids often coincide in containers and on machines that share the storage."""


def write_all(fd: int, chunks: Sequence[bytes | memoryview]) -> None:
    """Write all chunks, in several calls if one call writes only a part."""
    waiting = [memoryview(c).cast("B") for c in chunks if len(c)]
    first = 0
    while first < len(waiting):
        written = os.writev(fd, waiting[first : first + IOV_MAX])
        while first < len(waiting) and written >= len(waiting[first]):
            written -= len(waiting[first])
            first += 1
        if written:
            waiting[first] = waiting[first][written:]


def read_at(fd: int, position: int, length: int) -> bytes:
    """Read ``length`` bytes from ``position``; fewer only at the end of the file."""
    data = os.pread(fd, length, position)
    if len(data) == length or not data:
        return data
    parts = [data]
    missing = length - len(data)
    while missing and (data := os.pread(fd, missing, position + length - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


class OnceReader:
    """A reader of an open file for bytes that are not read again soon.

    Its reads add nothing to the page cache, so they neither evict other pages nor clear new ones. Linux 6.14 supports
    this on most of its file systems; elsewhere the reads are plain.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._flags = _RWF_DONTCACHE if hasattr(os, "preadv") and sys.platform == "linux" else 0

    def read_at(self, position: int, length: int, *, known: Frames = b"") -> memoryview:
        """Read ``length`` bytes from ``position``, of which the first ones may be ``known``; fewer only at the end."""
        data = np.empty(length, np.uint8).data
        done = len(known)
        data[:done] = known
        while self._flags and done < length:
            try:
                read = os.preadv(self._fd, [data[done:]], position + done, self._flags)
            except OSError as e:
                if e.errno not in _NO_FLAGS:
                    raise
                self._flags = 0
                break
            if not read:
                return data[:done]
            done += read
        return data if done == length else memoryview(read_at(self._fd, position, length))


def sync_file(fd: int) -> None:
    """Make the content and the size of an open file durable."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_path(path: Path) -> None:
    """Make the content of a file durable that another process wrote; ignore a deleted file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def sync_with_dates(path: Path, flags: int = 0) -> None:
    """Make the content and the dates of a file durable."""
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def drop_cache(fd: int, start: int, end: int) -> None:
    """Drop flushed bytes between two positions from the page cache."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable, but not its own."""
    sync_with_dates(path, os.O_DIRECTORY)


def unique_suffix() -> str:
    """Return a suffix for a file name that no other process on any machine uses."""
    return f"{os.getpid()}-{_process}-{next(_counter)}"


def temporary_name(directory: Path) -> Path:
    """Return a path in ``directory`` that no other process uses and that readers ignore."""
    return directory / f"{TEMPORARY_PREFIX}{unique_suffix()}"


@contextlib.contextmanager
def temporary_file(directory: Path) -> Iterator[Path]:
    """Yield a new temporary path in ``directory``, and delete its file at the end unless it was renamed."""
    path = temporary_name(directory)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def refresh_cache(directory: Path) -> None:
    """Refresh a network file system's cache of a folder, which may lack new names for half a minute, by changing it."""
    clock_s(directory)


def clock_s(directory: Path) -> float:
    """Read the clock that dates files, in seconds since 1970 UTC, by a change of a folder.

    The file server dates a new file. On a full disk, which may accept no file, this sets the folder's own date, which
    takes no space.
    """
    try:
        with temporary_file(directory) as temporary:
            temporary.touch()
            return temporary.stat().st_mtime
    except OSError as e:
        if e.errno not in NO_SPACE:
            raise
    os.utime(directory)
    return directory.stat().st_mtime


def create_in_place(path: Path, content: bytes | memoryview) -> None:
    """Create a file on a file system without hard links."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, [content])
        os.fsync(fd)
    except BaseException:
        path.unlink(missing_ok=True)  # an incomplete document would be used
        raise
    finally:
        os.close(fd)


def remove_stale_temporaries(directory: Path, now_s: float | None = None) -> None:
    """Delete temporary files older than a day, by the clock that dates them; reading that changes the folder."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY_PREFIX):
                with contextlib.suppress(FileNotFoundError):
                    now_s = clock_s(directory) if now_s is None else now_s
                    if now_s - entry.stat().st_mtime > TEMPORARY_AGE_S_MAX:
                        Path(entry.path).unlink()


def space(folder: Path) -> StorageSpace | None:
    """Return the space that this user may still write to a folder's file system; None if it does not report that."""
    status = os.statvfs(folder)
    if not status.f_blocks:
        return None
    return StorageSpace(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)
