"""Blocking file calls that the file store runs in its threads. Each finishes what it began or raises OSError."""

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
from seaweedmq.storage.store.faults import NO_SPACE

IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if "SC_IOV_MAX" in os.sysconf_names else 16
"""Buffers one writev takes. POSIX promises 16."""

_RWF_DONTCACHE = 0x80
"""Of linux/fs.h; Python 3.11 has no name for it."""
_NO_FLAGS = frozenset({errno.EOPNOTSUPP, errno.EINVAL})
"""What a system or file system says that does not know it."""

NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV})
"""What a file system says that has no hard links, or not here, or not for this file. EACCES is none of them: who may
not write in a folder is to be told so."""

TEMPORARY_PREFIX = ".tmp-"
"""Spark, Hadoop and Arrow ignore names that begin with a dot, so nobody who reads a folder sees half a file."""
TEMPORARY_AGE_S_MAX = 86_400.0

_counter = itertools.count()
_process = os.urandom(4).hex()  # noqa: TID251 - names of temporary files on a real disk
"""Process ids are not enough: in containers, on machines that share the storage, they are often the same."""


def write_all(fd: int, chunks: Sequence[bytes | memoryview]) -> None:
    """Write every chunk, however little one call takes."""
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
    """``length`` bytes from ``position``; fewer only at the end of the file."""
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
    """Reads of an open file what nobody reads again soon, and leaves nothing of it in the page cache that was not there
    before: neither do others lose theirs to it, nor are pages cleared for it. Linux 6.14 can do that, on most of its
    file systems; elsewhere it is a plain read."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._flags = _RWF_DONTCACHE if hasattr(os, "preadv") and sys.platform == "linux" else 0

    def read_at(self, position: int, length: int, *, known: Frames = b"") -> memoryview:
        """``length`` bytes from ``position``; fewer only at the end of the file. ``known``: the first of them, if they
        were read before."""
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
    """Make the content of a file durable that somebody else wrote; one that is gone has none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def drop_cache(fd: int, start: int, end: int) -> None:
    """Let the system forget its copy of what is durable between two positions."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)


def make_directories(root: Path, relative: str, *, beside: str = "") -> Path:
    """Make ``root/relative`` and what is missing on the way to it, but never ``root``.

    A root that is missing is an unmounted disk: creating it would put the data in the wrong place. The root may
    also fall away at any moment and show the folder beneath its mount, so a folder directly below it is made only where
    the file ``beside`` lies, in one open directory; deeper ones need their parents.

    Raises:
        FileNotFoundError: If the root, or ``beside`` in it, is missing.
    """
    path = root / relative
    try:
        if "/" in relative:
            path.mkdir()
        elif not path.is_dir():
            _make_top(root, relative, beside)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if "/" not in relative:
            raise
        make_directories(root, relative.rpartition("/")[0], beside=beside)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
    return path


def _make_top(root: Path, name: str, beside: str) -> None:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if beside:
            os.stat(beside, dir_fd=fd)
        os.mkdir(name, dir_fd=fd)
    finally:
        os.close(fd)


def sync_directories(root: Path, directory: Path) -> None:
    """Make the names in ``directory``, and its own name up to ``root``, durable."""
    for path in (directory, *directory.parents):
        sync_directory(path)
        if path == root:
            return


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable, but not its own."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unique_suffix() -> str:
    """For a file name: no other process makes it, on whatever machine."""
    return f"{os.getpid()}-{_process}-{next(_counter)}"


def temporary_name(directory: Path) -> Path:
    """A name in ``directory`` that no other process uses and no reader looks at."""
    return directory / f"{TEMPORARY_PREFIX}{unique_suffix()}"


@contextlib.contextmanager
def written_aside(directory: Path) -> Iterator[Path]:
    """A new temporary name in ``directory``; removed at the end unless it was renamed."""
    path = temporary_name(directory)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def look_anew(directory: Path) -> None:
    """Make a client of a network file system forget what it knew of a folder, by a change of its own: what others put
    there may be missing in its cache of names for half a minute."""
    clock_s(directory)


def clock_s(directory: Path) -> float:
    """Read the clock that dates files, in seconds since 1970 UTC, by a change of a folder.

    A new file is dated by the file server. A full disk may take none; there the folder's own date is set, which takes
    no space.
    """
    try:
        with written_aside(directory) as temporary:
            temporary.touch()
            return temporary.stat().st_mtime
    except OSError as e:
        if e.errno not in NO_SPACE:
            raise
    os.utime(directory)
    return directory.stat().st_mtime


def publish(root: Path, *renames: tuple[Path, Path]) -> None:
    """fsync temporary files, give each its final name, all in one folder, and make the names durable."""
    for temporary, _ in renames:
        fd = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    for temporary, final in renames:
        temporary.replace(final)
    sync_directories(root, renames[0][1].parent)


def create_whole(root: Path, path: Path, content: bytes) -> None:
    """Create a file durably with all of its content, in a folder that exists.

    Raises:
        FileExistsError: If there is one of that name.
        OSError: If the file system refuses.
    """
    with written_aside(path.parent) as aside:
        aside.write_bytes(content)
        sync_path(aside)
        try:
            os.link(aside, path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _create_in_place(path, content)
    sync_directories(root, path.parent)


def _create_in_place(path: Path, content: bytes) -> None:
    """Create a file where no file can have two names."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, [content])
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_stale_temporaries(directory: Path, now_s: float) -> None:
    """Remove temporary files that a process left behind more than a day ago."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY_PREFIX):
                with contextlib.suppress(FileNotFoundError):
                    if now_s - entry.stat().st_mtime > TEMPORARY_AGE_S_MAX:
                        Path(entry.path).unlink()


def space(folder: Path) -> StorageSpace | None:
    """Return how much this user may still write to a folder's file system; None if it does not report that."""
    status = os.statvfs(folder)
    if not status.f_blocks:
        return None
    return StorageSpace(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)
