"""The place of a cluster's storage: the only module that joins a path of the layout to the root.

``codec.paths`` names the files and folders; a ``Place`` reads, writes and lists them. Its calls are blocking, and
complete or raise OSError unless they say otherwise.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from seaweedmq.codec import paths
from seaweedmq.errors import InvalidArgument, NotFound
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import file_io
from seaweedmq.storage.faults import GONE, storage_failed

logger = logging.getLogger(__name__)

LISTINGS_MAX = 5
"""Limit of the listings of a folder that changes continuously."""
State = tuple[int, int, int]
"""Inode, modification time in ns, and size of a file or folder."""

_reported: set[str] = set()
_REPORTED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a storage: a mounted directory. Paths are relative to it, as ``codec.paths`` returns them."""

    root: Path

    @classmethod
    def parse(cls, uri: str) -> "Place":
        """Return the place of a path or ``file://`` URI, without access to it; raises InvalidArgument for others."""
        if "://" not in uri and not uri.startswith("file:"):
            if not uri:
                raise InvalidArgument("the storage URI is empty: give a directory, like /mnt/shared/mq")
            return cls(Path(uri).expanduser().absolute())
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidArgument(
                f"storage {uri!r} is not supported: give the path of a mounted directory, or file:///its/absolute/path"
            )
        return cls(Path(unquote(parts.path)))

    def __str__(self) -> str:
        return str(self.root)

    def path(self, relative: str) -> Path:
        """Return the real path, for what only a file system has: descriptors, hard links, locks, dates, renames."""
        return self.root / relative

    def exists(self) -> bool:
        """Whether the directory exists, which may also be an empty mount point."""
        return self.root.is_dir()

    def read(self, relative: str) -> bytes:
        """Read a whole file."""
        return self.path(relative).read_bytes()

    def open_input(self, file: SegmentFile) -> pa.OSFile:
        """Open a log file or table as a ``ports.BlockingInput`` of Arrow."""
        path = self.path(file.path)
        try:
            return pa.OSFile(str(path))
        except OSError as e:
            if e.errno in GONE:
                raise NotFound(f"{file.path} was deleted: list the segment's files again") from e
            raise storage_failed("open", str(path), e) from e

    def state(self, relative: str) -> State | None:
        """Return a state that differs for another content of the name; None if there is none."""
        try:
            found = self.path(relative).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def create(self, relative: str, content: bytes) -> None:
        """Create a file durably, with all of its content, in a folder that exists; raises FileExistsError."""
        path = self.path(relative)
        with file_io.temporary_file(path.parent) as aside:
            aside.write_bytes(content)
            file_io.sync_path(aside)
            try:
                os.link(aside, path)
            except OSError as error:
                if error.errno not in file_io.NO_LINKS:
                    raise
                file_io.create_in_place(path, content)
        self.sync_names(path.parent)

    def replace(self, relative: str, content: bytes) -> None:
        """Create or replace a file atomically and durably, in a folder that exists."""
        path = self.path(relative)
        with file_io.temporary_file(path.parent) as aside:
            aside.write_bytes(content)
            self.publish((aside, path))

    def delete(self, *relative: str) -> None:
        """Delete files; ignore deleted ones."""
        for each in relative:
            self.path(each).unlink(missing_ok=True)

    def publish(self, *renames: tuple[Path, Path]) -> None:
        """Flush temporary files, rename each to its final name in one folder, and make the names durable."""
        for temporary, _ in renames:
            file_io.sync_with_dates(temporary)
        for temporary, final in renames:
            temporary.replace(final)
        self.sync_names(renames[0][1].parent)

    def sync_names(self, folder: Path) -> None:
        """Make the names in a folder, and its own name up to the root, durable."""
        for path in (folder, *folder.parents):
            file_io.sync_directory(path)
            if path == self.root:
                return

    def make_folder(self, relative: str, *, sibling: str = "") -> Path:
        """Create a folder and its missing parents, but never the root.

        A missing root is an unmounted disk: creating it would put the data in the wrong place. The mount may also
        vanish at any moment and expose the folder beneath it. So a folder directly below the root is created only
        beside its ``sibling`` file, by one open directory; deeper folders need their parents. Raises FileNotFoundError
        if the root, or ``sibling`` in it, is missing.
        """
        path, parent = self.path(relative), relative.rpartition("/")[0]
        try:
            if parent:
                path.mkdir()
            elif not path.is_dir():
                self._make_top(relative, sibling)
        except FileExistsError:
            pass
        except FileNotFoundError:
            if not parent:
                raise
            self.make_folder(parent, sibling=sibling)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
        return path

    def _make_top(self, name: str, sibling: str) -> None:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if sibling:
                os.stat(sibling, dir_fd=fd)
            os.mkdir(name, dir_fd=fd)
        finally:
            os.close(fd)

    def names(self, folder: str, suffix: str = "") -> list[str]:
        """Return the sorted names in a folder that are not hidden and end with ``suffix``; none without a folder."""
        try:
            names = os.listdir(self.path(folder))  # noqa: PTH208 - names suffice
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.startswith(".") and name.endswith(suffix))

    def topics(self) -> list[TopicName]:
        """Return the topics that have a non-empty folder, ordered by name; deleted ones have hidden names."""
        found = []
        for namespace in self.names(paths.TOPICS):
            for name in self.names(f"{paths.TOPICS}/{namespace}"):
                with contextlib.suppress(InvalidArgument):
                    topic = TopicName(namespace, name)
                    if self.names(paths.topic_dir(topic)):
                        found.append(topic)
        return sorted(found)

    def holds_something(self, folder: str) -> bool:
        """Whether a folder exists and is not empty."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path(folder)) as entries:
            return next(entries, None) is not None
        return False

    def logs(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """List the log files of a segment; none if it has no folder."""
        return self._scan(paths.log_dir(topic, segment), None)

    def tables(self, topic: TopicName, segments: Iterable[int]) -> list[SegmentFile]:
        """List the tables of some segments; tables of other segments cost only their name."""
        return self._scan_steady(paths.table_dir(topic), {paths.table_prefix(segment) for segment in segments})

    def segment_files(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """List the log and table files of a segment, unordered.

        Logs are listed first, so that a log converted meanwhile appears as a table. Names that begin with a dot are
        temporary, and fences are markers: both are skipped. Other foreign names, and entries that are not plain files,
        are skipped and logged once.
        """
        return self.logs(topic, segment) + self.tables(topic, [segment])

    def topic_files(self, topic: TopicName) -> list[SegmentFile]:
        """List the files of all segments by the rules of ``segment_files``; each folder is listed once."""
        logs: list[SegmentFile] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path(paths.logs_dir(topic))) as folders:
            for folder in folders:
                logs += self._scan(f"{paths.logs_dir(topic)}/{folder.name}", None) if folder.is_dir() else []
        return logs + self._scan_steady(paths.table_dir(topic), None)

    def _scan_steady(self, folder: str, prefixes: Set[str] | None) -> list[SegmentFile]:
        """List files like ``_scan``, and repeat that if the folder changed meanwhile.

        A listing of many names takes several calls. If a merge replaces tables by another between two of them, the
        listing may show neither.
        """
        path = self.path(folder)
        try:
            for _ in range(LISTINGS_MAX):
                before_ns = path.stat().st_mtime_ns
                files = self._scan(folder, prefixes)
                if path.stat().st_mtime_ns == before_ns:
                    return files
        except FileNotFoundError:
            return []
        return files

    def _scan(self, folder: str, prefixes: Set[str] | None) -> list[SegmentFile]:
        """List the segment files of a folder whose name up to the first dash is one of the prefixes."""
        files = []
        try:
            entries = os.scandir(self.path(folder))
        except FileNotFoundError:
            return []
        with entries:
            for entry in entries:
                if entry.name.startswith((".", paths.FENCE_PREFIX)) or entry.name == paths.DELTA_LOG:
                    continue
                if prefixes is not None and entry.name[0].isdigit() and _prefix(entry.name) not in prefixes:
                    continue  # a file of another segment
                path = f"{folder}/{entry.name}"
                if paths.parse_segment_file(path) is None or not entry.is_file():
                    _report_foreign(self.path(path))
                    continue
                with contextlib.suppress(FileNotFoundError):  # deleted since the listing
                    files.append(segment_file(path, entry.stat()))
        return files


def segment_file(path: str, stat: os.stat_result) -> SegmentFile:
    """Return the log file or table of a path that ``codec.paths`` made, with its size and date."""
    name = paths.parse_segment_file(path)
    assert name is not None, f"{path} names neither a log file nor a table"
    return SegmentFile(
        topic=name.topic,
        segment=name.segment,
        kind=FileKind(name.kind),
        base_offset=name.base_offset,
        end_offset=name.end_offset,
        writer=name.writer,
        size_bytes=stat.st_size,
        path=path,
        modified_us=stat.st_mtime_ns // 1_000,
    )


def _prefix(name: str) -> str:
    return name[: name.find("-") + 1]


def _report_foreign(path: Path) -> None:
    if str(path) not in _reported and len(_reported) < _REPORTED_MAX:
        _reported.add(str(path))
        logger.warning("foreign file ignored: %s is not a file of SeaweedMQ; move it away", path)
