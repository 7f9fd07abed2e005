"""The place of a storage on a mounted directory: the only module that joins a path of the layout to its root.

What it adds to ``place.Place`` is for code that runs on a directory alone: real paths, renames, folders, locks.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from seaweedmq.codec import paths
from seaweedmq.errors import InvalidArgument, NotFound
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_files import DirectoryReader, DirectoryWriter
from seaweedmq.storage.faults import GONE, storage_failed
from seaweedmq.storage.place import Change, Entry, Place, State, report_foreign

LISTINGS_MAX = 5
"""Limit of the listings of a folder that changes continuously."""
REMOVALS_MAX = 10
"""Limit of the attempts to delete a folder that other processes change."""
DAMAGED_SUFFIX = ".damaged"
"""Suffix of the hidden name of a damaged table that was rebuilt: a dot, the table's name, and this."""


@dataclass(frozen=True, slots=True)
class DirectoryPlace(Place):
    """A mounted directory. New content is written aside and renamed, so that readers see whole files."""

    root: Path

    @classmethod
    def parse(cls, uri: str) -> "DirectoryPlace":
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

    def where(self, path: str) -> str:
        """Return the real path."""
        return str(self.path(path))

    def uri(self, path: str) -> str:
        """Return the ``file://`` URI."""
        return self.path(path).as_uri()

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

    def open_reader(self, path: str, *, once: bool = False) -> DirectoryReader:
        """Open a file for reads of ranges."""
        return DirectoryReader(os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC), once=once)

    def has(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        return self.path(path).exists()

    def state(self, path: str) -> State | None:
        """Return inode, modification time in ns, and size of a file or folder."""
        try:
            found = self.path(path).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def modified_us(self, path: str) -> int:
        """Return the modification time of a file or folder."""
        return self.path(path).stat().st_mtime_ns // 1_000

    def touched_s(self, folder: str) -> float:
        """Return the last modification time of a folder or its entries."""
        path = self.path(folder)
        return max(each.stat().st_mtime for each in (path, *path.iterdir()))

    def clock_s(self, folder: str) -> float:
        """Read the clock that dates files, by a change of the folder."""
        return file_io.clock_s(self.path(folder))

    def create(self, path: str, content: Frames) -> None:
        """Create a file durably, with all of its content, in a folder that exists; raises FileExistsError."""
        final = self.path(path)
        with file_io.temporary_file(final.parent) as aside:
            aside.write_bytes(content)
            file_io.sync_path(aside)
            try:
                os.link(aside, final)
            except OSError as error:
                if error.errno not in file_io.NO_LINKS:
                    raise
                file_io.create_in_place(final, content)
        self.sync_names(final.parent)

    def replace(self, path: str, content: bytes) -> None:
        """Create or replace a file atomically and durably, in a folder that exists."""
        final = self.path(path)
        with file_io.temporary_file(final.parent) as aside:
            aside.write_bytes(content)
            self.publish((aside, final))

    def update(self, path: str, change: Change) -> None:
        """Replace a file by what ``change`` makes of it; the last of two concurrent processes wins."""
        try:
            before: bytes | None = self.read(path)
        except FileNotFoundError:
            before = None
        content = change(before)
        if content is not None:
            self.replace(path, content)

    def touch(self, path: str, *, durable: bool = False) -> None:
        """Create an empty file, or give an existing one the present date."""
        self.path(path).touch()
        if durable:
            self.sync_names(self.path(path).parent)

    def open_writer(self, path: str) -> DirectoryWriter:
        """Create a file that does not exist, in a folder that exists."""
        return DirectoryWriter(self.path(path))

    def delete(self, *paths: str) -> None:
        """Delete files; ignore deleted ones."""
        for each in paths:
            self.path(each).unlink(missing_ok=True)

    def remove_tree(self, folder: str) -> None:
        """Delete a folder, even while other processes delete it or add their last files."""
        path = self.path(folder)
        for _ in range(REMOVALS_MAX):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)
            if not path.exists():
                return
        shutil.rmtree(path)

    def remove_empty(self, folder: str) -> None:
        """Delete a folder if it is empty."""
        with contextlib.suppress(OSError):
            self.path(folder).rmdir()

    def make_below(self, existing: str, folder: str) -> None:
        """Create a folder and its missing parents, but never ``existing``, which would recreate a deleted topic."""
        path = self.path(existing)
        for name in folder.removeprefix(f"{existing}/").split("/"):
            path /= name
            path.mkdir(exist_ok=True)

    def remove_stale_temporaries(self, folder: str, now_s: float) -> None:
        """Delete temporary files of killed processes."""
        file_io.remove_stale_temporaries(self.path(folder), now_s)

    def refresh(self, folder: str) -> None:
        """Refresh a network file system's cache of the names in a folder, by a change of the folder."""
        file_io.refresh_cache(self.path(folder))

    def sync(self, folder: str) -> None:
        """Make the names in a folder, and its own name, durable."""
        self.sync_names(self.path(folder))

    def set_aside(self, path: str) -> None:
        """Rename a damaged table to a hidden name beside it."""
        with contextlib.suppress(FileNotFoundError):
            self.path(path).rename(self._damaged(path))

    def put_back(self, path: str) -> None:
        """Rename a damaged table back."""
        with contextlib.suppress(FileNotFoundError):
            self._damaged(path).rename(self.path(path))

    def _damaged(self, path: str) -> Path:
        real = self.path(path)
        return real.with_name(f".{real.name}{DAMAGED_SUFFIX}")

    def is_settled(self, table: str) -> bool:
        """Return True: these readers use the retained links of the replaced tables."""
        return True

    def lasting_path(self, table: str) -> str:
        """Return the retained link of a table if it has one, otherwise the table."""
        kept = paths.kept_path(table)
        return kept if self.path(kept).exists() else table

    def parse_file(self, path: str) -> paths.SegmentFileName | None:
        """Return the parts of the path of a log file or table."""
        return paths.parse_segment_file(path)

    def file_at(self, path: str) -> SegmentFile | None:
        """Return a log file or table with its size and date; None if it is not a regular file."""
        found = self.path(path).stat()
        return segment_file(path, found) if stat.S_ISREG(found.st_mode) else None

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

    def listdir(self, folder: str) -> list[str]:
        """Return all names in a folder, hidden ones as well, unordered."""
        return os.listdir(self.path(folder))  # noqa: PTH208 - names suffice

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, hidden ones as well, ordered by name."""
        with os.scandir(self.path(folder)) as found:
            return sorted(Entry(entry.name, entry.is_dir()) for entry in found)

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
                    report_foreign(self.where(path))
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
