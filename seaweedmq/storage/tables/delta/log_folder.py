"""Reads and writes of versions in ``_delta_log`` beside a topic's tables, on any kind of storage. Blocking."""

import contextlib
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from seaweedmq.codec.tables.delta import Commit, decode_commit
from seaweedmq.codec.tables.delta_checkpoint import Checkpoint, checkpoint_of, checkpoint_table
from seaweedmq.errors import Corrupt

_NAME = re.compile(
    r"(?P<version>[0-9]{20})(?:(?P<commit>\.json)|(?P<checkpoint>\.checkpoint\.parquet)|\.\S+)", re.ASCII
)
_HINT = "_last_checkpoint"

Stamp: TypeAlias = tuple[Hashable, int, int]
"""Identity of a file: inode or e_tag, modification time in ns, size; it differs for another file of the same name."""


class Listing(NamedTuple):
    """The versions with a file in the folder, ascending."""

    commits: list[int]
    checkpoints: list[int]


class LogFolder(ABC):
    """An open Delta log folder."""

    def __init__(self, where: str) -> None:
        self.where = where
        """Location of the folder, for messages."""

    def listing(self) -> Listing:
        """List the versions with a commit or checkpoint file; raises Corrupt for checkpoints in parts or version 2."""
        commits, checkpoints = [], []
        for name in self._names():
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

    @abstractmethod
    def stamp(self, version: int) -> Stamp | None:
        """Return the stamp of a commit; None if there is no such file."""

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

    @abstractmethod
    def put_commit(self, version: int, data: bytes) -> Stamp:
        """Add a version atomically and durably; raises Conflict if another process did, or the log was moved aside."""

    def put_checkpoint(self, version: int, checkpoint: Checkpoint) -> None:
        """Write the checkpoint of a version, and point the hint to it."""
        table = checkpoint_table(checkpoint)
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd", compression_level=1)
        self._replace(checkpoint_name(version), sink.getvalue())
        self._put_hint(version, table.num_rows)

    def repair_hint(self, checkpoints: list[int]) -> None:
        """Correct the hint if its checkpoint does not exist: readers trust it."""
        data = self._read(_HINT)
        if data is None:
            return
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if json.loads(data)["version"] in checkpoints:
                return
        newest = self._read(checkpoint_name(checkpoints[-1])) if checkpoints else None
        if newest is None:
            self._remove([_HINT])
        else:
            self._put_hint(checkpoints[-1], pq.read_metadata(pa.BufferReader(newest)).num_rows)

    def _put_hint(self, version: int, actions: int) -> None:
        self._replace(_HINT, json.dumps({"version": version, "size": actions}).encode())

    def commit_times(self, versions: list[int]) -> list[tuple[int, int]]:
        """Return existing versions with the time of their file, in microseconds since 1970 UTC."""
        found = [(version, self.stamp(version)) for version in versions]
        return [(version, stamp[1] // 1_000) for version, stamp in found if stamp is not None]

    def remove_below(self, version: int, listing: Listing) -> None:
        """Remove commits and checkpoints below a version."""
        names = [checkpoint_name(v) for v in listing.checkpoints if v < version]
        self._remove([*names, *(commit_name(v) for v in listing.commits if v < version)])

    @abstractmethod
    def remove_stale_temporaries(self, now_s: float) -> None:
        """Delete temporary files of killed processes."""

    @abstractmethod
    def _names(self) -> Iterable[str]:
        """Return the names in the folder."""

    @abstractmethod
    def _read(self, name: str) -> bytes | None:
        """Read a file; None if there is none."""

    @abstractmethod
    def _replace(self, name: str, data: bytes) -> None:
        """Create or replace a file atomically."""

    @abstractmethod
    def _remove(self, names: Iterable[str]) -> None:
        """Remove files; ignore missing ones."""


def commit_name(version: int) -> str:
    """Return the file name of a commit."""
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Return the file name of a checkpoint."""
    return f"{version:020d}.checkpoint.parquet"
