"""Log files, tables and fences of segments, on a mounted directory."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from seaweedmq.codec import paths
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import AlreadyExists, NotFound, StorageFailed
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlockingInput
from seaweedmq.storage import file_io
from seaweedmq.storage.faults import NO_SPACE, storage_failed
from seaweedmq.storage.store.file_handles import FileLogReader, FileLogWriter
from seaweedmq.storage.store.guarded_calls import GuardedCalls
from seaweedmq.storage.store.removed import record_removed, scan_removed

FENCE_TEXT = b"This segment was sealed from its files: its primary acknowledges nothing more.\n"


class SegmentFiles(GuardedCalls):
    """The files of segments: logs, tables, fences, and records of what retention removed.

    Methods raise StorageFailed if the storage fails or lacks the marker of its cluster.
    """

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> FileLogWriter:
        """Create a log file with its preamble, not durable yet, and return its writer."""
        relative = paths.log_path(topic, segment, base_offset, writer)

        def create() -> int:
            fd = self._create_exclusively(relative)
            try:
                file_io.write_all(fd, [preamble])
                self._guard.verify()
            except (OSError, StorageFailed):
                # Without a preamble the file is useless; its name must be free for the next attempt.
                with contextlib.suppress(OSError):
                    self.place.path(relative).unlink()
                with contextlib.suppress(OSError):
                    os.close(fd)
                raise
            return fd

        try:
            fd = await self._open(self._writes, "create log file", relative, create)
        except FileExistsError:
            raise AlreadyExists(
                f"log file {relative} exists: every writer has its own name and begins a file at an offset once"
            ) from None
        return FileLogWriter(
            self.place, relative, fd, len(preamble), writes=self._writes, syncs=self._syncs, guard=self._guard
        )

    async def put_log(self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes) -> None:
        """Create a log file that has only a preamble, durably."""
        final = paths.log_path(topic, segment, base_offset, writer)

        def put() -> None:
            self._make_folder(paths.log_dir(topic, segment))
            if self.place.path(final).exists():
                raise FileExistsError
            self.place.replace(final, preamble)

        try:
            await self._run(self._syncs, "create log file", final, put)
        except FileExistsError:
            raise AlreadyExists(
                f"log file {self.place.path(final)} exists: a writer begins a file at an offset once"
            ) from None

    async def list_files(
        self, topic: TopicName, segment: int, *, uid: int | None = None, covering: int | None = None
    ) -> list[SegmentFile]:
        """List the log and table files of a segment, ordered by base offset."""
        del uid, covering  # a folder is of one topic, and cheap to list
        files = await self._run(
            self._reads, "list files of", paths.topic_dir(topic), lambda: self.place.segment_files(topic, segment)
        )
        return sorted(files, key=lambda f: (f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def list_topic_files(self, topic: TopicName, *, uid: int | None = None) -> list[SegmentFile]:
        """List the log and table files of a topic, ordered by segment, then base offset."""
        del uid  # the folder is of one topic
        files = await self._run(
            self._reads, "list files of", paths.topic_dir(topic), lambda: self.place.topic_files(topic)
        )
        return sorted(files, key=lambda f: (f.segment, f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def open(self, file: SegmentFile) -> FileLogReader:
        """Open a log file for reading."""

        def open_verified() -> int:
            fd = os.open(self.place.path(file.path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._guard.verify()
            except StorageFailed:
                os.close(fd)
                raise
            return fd

        try:
            fd = await self._open(self._reads, "open", file.path, open_verified)
        except FileNotFoundError:
            raise NotFound(f"{file.path} was deleted: list the segment's files again") from None
        return FileLogReader(file.path, fd, self._reads)

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        """Open a file for blocking reads."""

        def guarded() -> BlockingInput:
            self._guard.verify()
            source: BlockingInput = self.place.open_input(file)
            return source

        return await asyncio.get_running_loop().run_in_executor(self._reads, guarded)

    async def sync_files(self, files: Sequence[SegmentFile]) -> None:
        """Flush files and make their names durable; ignore deleted files."""

        def sync_all() -> None:
            for file in files:
                file_io.sync_path(self.place.path(file.path))
            for directory in {self.place.path(file.path).parent for file in files}:
                with contextlib.suppress(FileNotFoundError):
                    self.place.sync_names(directory)

        if files:
            await self._run(self._syncs, "fsync", files[0].path, sync_all)

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        """Delete files; ignore deleted ones."""

        def unlink_all() -> None:
            self.place.delete(*(file.path for file in files))
            for folder in {file.path.rpartition("/")[0] for file in files if file.kind is FileKind.LOG}:
                _remove_log_folder(self.place.path(folder))

        if files:
            await self._run(self._syncs, "delete", files[0].path, unlink_all)

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        """Record durably the offset below which the records of each segment are removed."""
        await self._run(
            self._syncs,
            "write",
            paths.removed_dir(topic),
            lambda: record_removed(self.place, topic, uid, removed, sibling=self._guard.sibling),
        )

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return segment -> highest recorded offset below which its records are removed."""
        return await self._run(
            self._reads, "list", paths.removed_dir(topic), lambda: scan_removed(self.place, topic, uid)
        )

    async def fence(self, topic: TopicName, uid: int, segment: int) -> None:
        """Put the fence of a segment durably."""
        marker = paths.fence_path(topic, uid, segment)

        def put() -> None:
            directory = self._make_folder(paths.log_dir(topic, segment))
            # Renamed even over an existing fence: the change refreshes a network file system's cache of the folder, and
            # the next listing must show the files of other clients.
            with file_io.temporary_file(directory) as temporary:
                try:
                    temporary.write_bytes(FENCE_TEXT)
                except OSError as e:
                    if e.errno not in NO_SPACE:
                        raise
                    os.truncate(temporary, 0)  # the name alone is the fence, and a full disk may have space for a name
                self.place.publish((temporary, self.place.path(marker)))

        try:
            await self._run(self._syncs, "write", marker, put)
        except FileNotFoundError as error:  # a concurrent deletion removed the empty folder
            raise storage_failed("write", str(self.place.path(marker)), error) from error

    async def is_fenced(self, topic: TopicName, uid: int, segment: int) -> bool:
        """Whether a segment has a fence, is pruned, or is of another topic than the folder's."""
        marker = paths.fence_path(topic, uid, segment)

        def is_present() -> bool:
            # The document is read second: if the topic still exists, the folder checked before was its own.
            with contextlib.suppress(FileNotFoundError):
                file_io.refresh_cache(self.place.path(marker).parent)
                self.place.path(marker).stat()
                return True
            found = topic_from_document(self.place.read(paths.document_path(topic, paths.TOPIC_DOCUMENT)))
            return found.uid != uid or segment in found.pruned

        try:
            return await self._run(self._reads, "check for", marker, is_present)
        except FileNotFoundError:
            raise self._missing_document(topic) from None


def _remove_log_folder(folder: Path) -> None:
    """Remove a folder of logs unless it holds a log or a fence; a lock's holder has no log left to convert."""
    with contextlib.suppress(OSError):
        if [path.name for path in folder.iterdir()] == [paths.LOCK_NAME]:
            (folder / paths.LOCK_NAME).unlink(missing_ok=True)
        folder.rmdir()
