"""Reads and writes of versions in the folder ``_delta_log`` beside a topic's tables. Blocking.

All calls use one open folder. If the log is moved aside meanwhile, alone or with its topic, writes go to the moved log,
and not to the one that replaces it.
"""

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.codec.tables.delta import Commit, decode_commit
from seaweedmq.codec.tables.delta_checkpoint import Checkpoint, checkpoint_of, checkpoint_table
from seaweedmq.errors import Conflict, Corrupt
from seaweedmq.storage import file_io

_NAME = re.compile(
    r"(?P<version>[0-9]{20})(?:(?P<commit>\.json)|(?P<checkpoint>\.checkpoint\.parquet)|\.\S+)", re.ASCII
)
_HINT = "_last_checkpoint"

Stamp = tuple[int, int, int]
"""Identity of a file: inode, modification time in ns, size; it differs for another file of the same name."""


class Listing(NamedTuple):
    """The versions with a file in the folder, ascending."""

    commits: list[int]
    checkpoints: list[int]


class LogFolder:
    """An open Delta log folder."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> "Iterator[LogFolder]":
        """Open a log for the length of a block. Raises FileNotFoundError if there is no log."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield cls(path, fd)
        finally:
            os.close(fd)

    def listing(self) -> Listing:
        """List the versions with a commit or checkpoint file; raises Corrupt for checkpoints in parts or version 2."""
        commits, checkpoints = [], []
        for name in os.listdir(self._fd):  # noqa: PTH208 - an open folder
            match = _NAME.fullmatch(name)
            if match is None or name.endswith(".crc"):
                continue
            if match["commit"]:
                commits.append(int(match["version"]))
            elif match["checkpoint"]:
                checkpoints.append(int(match["version"]))
            elif ".checkpoint." in name:
                raise Corrupt(f"{name} is a checkpoint of another program, in parts or of version 2")
        return Listing(sorted(commits), sorted(checkpoints))

    def stamp(self, version: int) -> Stamp | None:
        """Return the stamp of a commit; None if there is no such file."""
        try:
            stat = os.stat(commit_name(version), dir_fd=self._fd)
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def commit(self, version: int) -> tuple[Commit, int] | None:
        """Read a commit and its size in bytes; None if there is no such file."""
        data = self._read(commit_name(version))
        return None if data is None else (decode_commit(data, commit_name(version)), len(data))

    def checkpoint(self, version: int) -> Checkpoint:
        """Read a checkpoint. Raises Corrupt if the checkpoint is missing or damaged."""
        name = checkpoint_name(version)
        data = self._read(name)
        if data is None:
            raise Corrupt(f"{name} is missing")
        try:
            table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as e:
            raise Corrupt(f"{name} is damaged ({str(e).splitlines()[0] if str(e) else e!r})") from e
        return checkpoint_of(table, name)

    def put_commit(self, version: int, data: bytes) -> Stamp:
        """Add a version atomically and durably; raises Conflict if another process did, or the log was moved aside."""
        name = commit_name(version)
        with self._written(data) as temporary:
            try:
                os.link(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except FileExistsError:
                # Over a network, the reply to a link call may be lost and the call repeated.
                if os.stat(temporary, dir_fd=self._fd).st_ino != os.stat(name, dir_fd=self._fd).st_ino:
                    raise Conflict(f"{self.path}: version {version} was written by another process") from None
            except OSError as e:
                if e.errno not in file_io.NO_LINKS:
                    raise
                self._create(name, version, data)
        os.fsync(self._fd)
        stamp = self.stamp(version)
        if stamp is None or not self._is_at_path():
            raise Conflict(f"{self.path} was moved aside by another process")
        return stamp

    def _create(self, name: str, version: int, data: bytes) -> None:
        """Create a commit without hard links: readers may see an incomplete one, which ``table rebuild`` repairs."""
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=self._fd)
        except FileExistsError:
            raise Conflict(f"{self.path}: version {version} was written by another process") from None
        try:
            try:
                file_io.write_all(fd, [data])
                os.fsync(fd)
            except BaseException:
                os.unlink(name, dir_fd=self._fd)  # an incomplete commit would fail every reader until a rebuild
                raise
        finally:
            os.close(fd)

    def put_checkpoint(self, version: int, checkpoint: Checkpoint) -> None:
        """Write the checkpoint of a version, and point the hint to it."""
        table = checkpoint_table(checkpoint)
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd", compression_level=1)
        with self._written(sink.getvalue()) as temporary:
            os.replace(temporary, checkpoint_name(version), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self._put_hint(version, table.num_rows)

    def repair_hint(self, checkpoints: list[int]) -> None:
        """Correct the hint if its checkpoint does not exist: readers trust it."""
        data = self._read(_HINT)
        if data is None:
            return
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if json.loads(data)["version"] in checkpoints:
                return
        if checkpoints:
            self._put_hint(checkpoints[-1], pq.read_metadata(self.path / checkpoint_name(checkpoints[-1])).num_rows)
        else:
            os.unlink(_HINT, dir_fd=self._fd)

    def _put_hint(self, version: int, actions: int) -> None:
        with self._written(json.dumps({"version": version, "size": actions}).encode()) as temporary:
            os.replace(temporary, _HINT, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def commit_times(self, versions: list[int]) -> list[tuple[int, int]]:
        """Return existing versions with the time of their file, in microseconds since 1970 UTC."""
        found = [(version, self.stamp(version)) for version in versions]
        return [(version, stamp[1] // 1_000) for version, stamp in found if stamp is not None]

    def remove_below(self, version: int, listing: Listing) -> None:
        """Remove commits and checkpoints below a version."""
        names = [checkpoint_name(v) for v in listing.checkpoints if v < version]
        names += [commit_name(v) for v in listing.commits if v < version]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)

    def remove_stale_temporaries(self, now_s: float) -> None:
        """Delete temporary files of killed processes."""
        file_io.remove_stale_temporaries(self.path, now_s)

    def _is_at_path(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(self.path.stat(), os.fstat(self._fd))
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


def commit_name(version: int) -> str:
    """Return the file name of a commit."""
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Return the file name of a checkpoint."""
    return f"{version:020d}.checkpoint.parquet"
