"""A Delta log folder of a mounted directory. Blocking.

All calls use one open folder. If the log is moved aside meanwhile, alone or with its topic, writes go to the moved log,
and not to the one that replaces it.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from seaweedmq.errors import Conflict
from seaweedmq.storage import file_io
from seaweedmq.storage.tables.delta.log_folder import LogFolder, Stamp, commit_name


class DirectoryLog(LogFolder):
    """An open Delta log folder of a directory."""

    def __init__(self, path: Path, fd: int) -> None:
        super().__init__(str(path))
        self._path = path
        self._fd = fd

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> "Iterator[DirectoryLog]":
        """Open a log for the length of a block. Raises FileNotFoundError if there is no log."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield cls(path, fd)
        finally:
            os.close(fd)

    def stamp(self, version: int) -> Stamp | None:
        """Return the stamp of a commit; None if there is no such file."""
        try:
            stat = os.stat(commit_name(version), dir_fd=self._fd)
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def put_commit(self, version: int, data: bytes) -> Stamp:
        """Add a version atomically and durably; raises Conflict if another process did, or the log was moved aside."""
        name = commit_name(version)
        with self._written(data) as temporary:
            try:
                os.link(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except FileExistsError:
                # Over a network, the reply to a link call may be lost and the call repeated.
                if os.stat(temporary, dir_fd=self._fd).st_ino != os.stat(name, dir_fd=self._fd).st_ino:
                    raise Conflict(f"{self._path}: version {version} was written by another process") from None
            except OSError as e:
                if e.errno not in file_io.NO_LINKS:
                    raise
                self._create(name, version, data)
        os.fsync(self._fd)
        stamp = self.stamp(version)
        if stamp is None or not self._is_at_path():
            raise Conflict(f"{self._path} was moved aside by another process")
        return stamp

    def _create(self, name: str, version: int, data: bytes) -> None:
        """Create a commit without hard links: readers may see an incomplete one, which ``table rebuild`` repairs."""
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=self._fd)
        except FileExistsError:
            raise Conflict(f"{self._path}: version {version} was written by another process") from None
        try:
            try:
                file_io.write_all(fd, [data])
                os.fsync(fd)
            except BaseException:
                os.unlink(name, dir_fd=self._fd)  # an incomplete commit would fail every reader until a rebuild
                raise
        finally:
            os.close(fd)

    def _replace(self, name: str, data: bytes) -> None:
        with self._written(data) as temporary:
            os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)

    def _names(self) -> list[str]:
        return os.listdir(self._fd)  # noqa: PTH208 - an open folder

    def remove_stale_temporaries(self, now_s: float) -> None:
        """Delete temporary files of killed processes."""
        file_io.remove_stale_temporaries(self._path, now_s)

    def _is_at_path(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(self._path.stat(), os.fstat(self._fd))
        return False

    def _read(self, name: str) -> bytes | None:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        with open(fd, "rb") as file:  # noqa: PTH123 - an open folder
            return file.read()

    @contextlib.contextmanager
    def _written(self, data: bytes) -> Iterator[str]:
        """Yield the temporary name of a durable file with this content; delete it at the end unless it was renamed."""
        name = f"{file_io.TEMPORARY_PREFIX}{file_io.unique_suffix()}"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=self._fd)
        try:
            try:
                file_io.write_all(fd, [data])
                os.fsync(fd)
            finally:
                os.close(fd)
            yield name
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)
