"""Log files, tables and fences of segments, on a mounted directory."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence

from seaweedmq.codec.paths import (
    TOPIC_DOCUMENT,
    document_path,
    fence_path,
    log_dir,
    log_path,
    removed_dir,
    topic_dir,
)
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import AlreadyExists, NotFound, StorageFailed
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.store import file_io
from seaweedmq.storage.store.directory import remove_log_folder, scan_segment, scan_topic
from seaweedmq.storage.store.faults import NO_SPACE, storage_failed
from seaweedmq.storage.store.file_handles import FileLogReader, FileLogWriter, open_input
from seaweedmq.storage.store.guarded_calls import GuardedCalls, missing_document
from seaweedmq.storage.store.removed import record_removed, scan_removed

FENCE_TEXT = b"This segment was sealed from its files: its primary acknowledges nothing more.\n"


class SegmentFiles(GuardedCalls):
    """The files of segments: logs, tables, fences, and records of what retention removed.

    Methods raise StorageFailed if the storage fails or lacks the marker of its cluster.
    """

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> FileLogWriter:
        """Create a log file with its preamble, not durable yet, and return its writer.

        Raises:
            AlreadyExists: If the file exists.
            StorageFailed: If the storage fails.
        """
        relative = log_path(topic, segment, base_offset, writer)

        def create() -> int:
            fd = self._create_exclusively(relative)
            try:
                file_io.write_all(fd, [preamble])
                self._guard.verify()
            except (OSError, StorageFailed):
                # Without a preamble the file is useless; its name must be free for the next attempt.
                with contextlib.suppress(OSError):
                    (self.root / relative).unlink()
                with contextlib.suppress(OSError):
                    os.close(fd)
                raise
            return fd

        try:
            fd = await self._open(self._writes, "create log file", self.root / relative, create)
        except FileExistsError:
            raise AlreadyExists(
                f"log file {relative} exists: every writer has its own name and begins a file at an offset once"
            ) from None
        return FileLogWriter(
            self.root, relative, fd, len(preamble), writes=self._writes, syncs=self._syncs, guard=self._guard
        )

    async def put_log(self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes) -> None:
        """Create a log file that has only a preamble, durably.

        Raises:
            AlreadyExists: If the file exists.
            StorageFailed: If the storage fails.
        """
        final = self.root / log_path(topic, segment, base_offset, writer)

        def put() -> None:
            directory = self._make_directories(log_dir(topic, segment))
            if final.exists():
                raise FileExistsError
            with file_io.temporary_file(directory) as temporary:
                temporary.write_bytes(preamble)
                file_io.publish(self.root, (temporary, final))

        try:
            await self._run(self._syncs, "create log file", final, put)
        except FileExistsError:
            raise AlreadyExists(f"log file {final} exists: a writer begins a file at an offset once") from None

    async def list_files(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """List the log and table files of a segment, ordered by base offset."""
        files = await self._run(
            self._reads,
            "list files of",
            self.root / topic_dir(topic),
            lambda: scan_segment(self.root, topic, segment),
        )
        return sorted(files, key=lambda f: (f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def list_topic_files(self, topic: TopicName) -> list[SegmentFile]:
        """List the log and table files of a topic, ordered by segment, then base offset."""
        files = await self._run(
            self._reads, "list files of", self.root / topic_dir(topic), lambda: scan_topic(self.root, topic)
        )
        return sorted(files, key=lambda f: (f.segment, f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def open(self, file: SegmentFile) -> FileLogReader:
        """Open a log file for reading.

        Raises:
            NotFound: If the file was deleted.
            StorageFailed: If the storage fails.
        """
        path = self.root / file.path

        def open_verified() -> int:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._guard.verify()
            except StorageFailed:
                os.close(fd)
                raise
            return fd

        try:
            fd = await self._open(self._reads, "open", path, open_verified)
        except FileNotFoundError:
            raise NotFound(f"{file.path} was deleted: list the segment's files again") from None
        return FileLogReader(file.path, fd, self._reads)

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        """Open a file for blocking reads.

        Raises:
            NotFound: If the file was deleted.
            StorageFailed: If the storage fails.
        """

        def guarded() -> BlockingInput:
            self._guard.verify()
            source: BlockingInput = open_input(self.root, file)
            return source

        return await asyncio.get_running_loop().run_in_executor(self._reads, guarded)

    async def sync_files(self, files: Sequence[SegmentFile]) -> None:
        """Flush files and make their names durable; ignore deleted files."""

        def sync_all() -> None:
            for file in files:
                file_io.sync_path(self.root / file.path)
            for directory in {(self.root / file.path).parent for file in files}:
                with contextlib.suppress(FileNotFoundError):
                    file_io.sync_directories(self.root, directory)

        if files:
            await self._run(self._syncs, "fsync", self.root / files[0].path, sync_all)

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        """Delete files; ignore deleted ones."""

        def unlink_all() -> None:
            for file in files:
                (self.root / file.path).unlink(missing_ok=True)
            for folder in {file.path.rpartition("/")[0] for file in files if file.kind is FileKind.LOG}:
                remove_log_folder(self.root / folder)

        if files:
            await self._run(self._syncs, "delete", self.root / files[0].path, unlink_all)

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        """Record durably the offset below which the records of each segment are removed."""
        await self._run(
            self._syncs,
            "write",
            self.root / removed_dir(topic),
            lambda: record_removed(self.root, topic, uid, removed, beside=self._guard.beside),
        )

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return segment -> highest recorded offset below which its records are removed."""
        return await self._run(
            self._reads, "list", self.root / removed_dir(topic), lambda: scan_removed(self.root, topic, uid)
        )

    async def fence(self, topic: TopicName, uid: int, segment: int) -> None:
        """Put the fence of a segment durably."""
        marker = self.root / fence_path(topic, uid, segment)

        def put() -> None:
            directory = self._make_directories(str(marker.parent.relative_to(self.root)))
            # Renamed even over an existing fence: the change refreshes a network file system's cache of the folder, and
            # the next listing must show the files of other clients.
            with file_io.temporary_file(directory) as temporary:
                try:
                    temporary.write_bytes(FENCE_TEXT)
                except OSError as e:
                    if e.errno not in NO_SPACE:
                        raise
                    os.truncate(temporary, 0)  # the name alone is the fence, and a full disk may have space for a name
                file_io.publish(self.root, (temporary, marker))

        try:
            await self._run(self._syncs, "write", marker, put)
        except FileNotFoundError as error:  # a concurrent deletion removed the empty folder
            raise storage_failed("write", str(marker), error) from error

    async def is_fenced(self, topic: TopicName, uid: int, segment: int) -> bool:
        """Whether a segment has a fence, is pruned, or is of another topic than the folder's.

        Raises:
            StorageFailed: If the storage fails, or the topic's document is missing.
        """
        marker = self.root / fence_path(topic, uid, segment)
        document = self.root / document_path(topic, TOPIC_DOCUMENT)

        def look() -> bool:
            # The document is read second: if the topic still exists, the folder checked before was its own.
            with contextlib.suppress(FileNotFoundError):
                file_io.refresh_cache(marker.parent)
                marker.stat()
                return True
            found = topic_from_document(document.read_bytes())
            return found.uid != uid or segment in found.pruned

        try:
            return await self._run(self._reads, "check for", marker, look)
        except FileNotFoundError:
            raise missing_document(document) from None
