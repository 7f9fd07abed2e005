"""Segment store on a mounted directory: a local disk, NFS, or a cluster file system."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from seaweedmq.codec.paths import (
    DELETED_PREFIX,
    GROUPS,
    TOPIC_DOCUMENT,
    TOPICS,
    claim_path,
    claims_dir,
    deleted_prefix,
    document_path,
    fence_path,
    journal_path,
    log_dir,
    log_path,
    parse_journal_name,
    removed_dir,
    topic_dir,
)
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import AlreadyExists, InvalidArgument, NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlockingInput, StorageSpace
from seaweedmq.storage.store import claims, file_io
from seaweedmq.storage.store import marker as markers
from seaweedmq.storage.store.directory import (
    has_topics,
    holds_something,
    remove_log_folder,
    scan_names,
    scan_segment,
    scan_topic,
    scan_topics,
    sweep_pruned,
)
from seaweedmq.storage.store.faults import NO_SPACE, storage_failed
from seaweedmq.storage.store.file_handles import FileLogReader, FileLogWriter, open_descriptor, open_input
from seaweedmq.storage.store.marker import RootGuard
from seaweedmq.storage.store.removed import record_removed, scan_removed, sweep_removed
from seaweedmq.storage.store.retained_tables import sweep_retained

T = TypeVar("T")

WRITE_THREADS = 4
SYNC_THREADS = 8
"""Number of threads for fsyncs: they wait for the device, which can merge concurrent ones."""
READ_THREADS = 4
DOCUMENT_THREADS = 4
"""Number of threads for documents, so that records never wait for one."""
CREATE_ATTEMPTS = 3
"""Attempts to create a file: a topic's deletion may move its new folders away before the file is created."""
FENCE_TEXT = b"This segment was sealed from its files: its primary acknowledges nothing more.\n"


class FileSegmentStore:
    """A ``ports.SegmentStore`` on an existing directory; blocking calls run in its own threads."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()
        self._guard = RootGuard(self.root)
        self._writes = ThreadPoolExecutor(WRITE_THREADS, "seaweedmq-write")
        self._syncs = ThreadPoolExecutor(SYNC_THREADS, "seaweedmq-sync")
        self._reads = ThreadPoolExecutor(READ_THREADS, "seaweedmq-read")
        self._documents = ThreadPoolExecutor(DOCUMENT_THREADS, "seaweedmq-document")

    @property
    def uri(self) -> str:
        """URI by which ``open_store`` opens the same store."""
        return self.root.as_uri()

    async def close(self) -> None:
        """Wait for running calls and end the threads; owners must have closed all writers and readers."""
        for pool in (self._writes, self._syncs, self._reads, self._documents):
            await asyncio.to_thread(pool.shutdown)

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster that the store is bound to."""
        return self._guard.cluster_id

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on."""
        self._guard.bind(cluster_id)

    async def verify_root(self) -> None:
        """Check that the root has the marker of the bound cluster.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        await self._run(self._documents, "verify", self.root, lambda: None, verify_after=False)

    async def read_marker(self) -> StorageMarker | None:
        """Read the marker of the root; None if there is none.

        Raises:
            StorageFailed: If the marker cannot be read.
        """
        return await self._of_marker("read the marker of", lambda: markers.read_marker(self.root))

    async def create_marker(self, marker: StorageMarker) -> StorageMarker:
        """Create the marker durably unless there is one; return the marker of the root.

        Raises:
            StorageFailed: If the marker cannot be written.
        """
        return await self._of_marker("create the marker of", lambda: markers.create_marker(self.root, marker))

    async def replace_marker(self, marker: StorageMarker) -> None:
        """Replace the marker of the same cluster durably.

        Raises:
            StorageFailed: If there is none, it is of another cluster, or it cannot be written.
        """
        await self._of_marker("replace the marker of", lambda: markers.replace_marker(self.root, marker))

    async def has_topics(self) -> bool:
        """Whether the storage has a non-empty folder of a topic.

        Raises:
            StorageFailed: If the storage cannot be read.
        """
        return await self._of_marker("list the topics of", lambda: has_topics(self.root / TOPICS))

    async def check(self) -> None:
        """Check that the storage can be written.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        await self._run(self._syncs, "write to the storage directory", self.root, self._probe)

    async def now_us(self) -> int:
        """Return the time of the clock that dates files, in microseconds since 1970 UTC.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        return await self._run(
            self._syncs, "read the clock of", self.root, lambda: int(file_io.clock_s(self.root) * US_PER_S)
        )

    async def space(self) -> StorageSpace | None:
        """Return the free and total space of the file system; None if it does not report them.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        return await self._run(self._syncs, "measure the space of", self.root, lambda: file_io.space(self.root))

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
            with file_io.written_aside(directory) as temporary:
                temporary.write_bytes(preamble)
                file_io.publish(self.root, (temporary, final))

        try:
            await self._run(self._syncs, "create log file", final, put)
        except FileExistsError:
            raise AlreadyExists(f"log file {final} exists: a writer begins a file at an offset once") from None

    async def list_files(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """List the log and table files of a segment, ordered by base offset.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        files = await self._run(
            self._reads,
            "list files of",
            self.root / topic_dir(topic),
            lambda: scan_segment(self.root, topic, segment),
        )
        return sorted(files, key=lambda f: (f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def list_topic_files(self, topic: TopicName) -> list[SegmentFile]:
        """List the log and table files of a topic, ordered by segment, then base offset.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
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
        """Flush files and make their names durable; ignore deleted files.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """

        def sync_all() -> None:
            for file in files:
                file_io.sync_path(self.root / file.path)
            for directory in {(self.root / file.path).parent for file in files}:
                with contextlib.suppress(FileNotFoundError):
                    file_io.sync_directories(self.root, directory)

        if files:
            await self._run(self._syncs, "fsync", self.root / files[0].path, sync_all)

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        """Delete files; ignore deleted ones.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """

        def unlink_all() -> None:
            for file in files:
                (self.root / file.path).unlink(missing_ok=True)
            for folder in {file.path.rpartition("/")[0] for file in files if file.kind is FileKind.LOG}:
                remove_log_folder(self.root / folder)

        if files:
            await self._run(self._syncs, "delete", self.root / files[0].path, unlink_all)

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        """Record durably the offset below which the records of each segment are removed.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        await self._run(
            self._syncs,
            "write",
            self.root / removed_dir(topic),
            lambda: record_removed(self.root, topic, uid, removed, beside=self._guard.beside),
        )

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return segment -> highest recorded offset below which its records are removed.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        return await self._run(
            self._reads, "list", self.root / removed_dir(topic), lambda: scan_removed(self.root, topic, uid)
        )

    async def fence(self, topic: TopicName, uid: int, segment: int) -> None:
        """Put the fence of a segment durably.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        marker = self.root / fence_path(topic, uid, segment)

        def put() -> None:
            directory = self._make_directories(str(marker.parent.relative_to(self.root)))
            # Renamed even over an existing fence: the change refreshes a network file system's cache of the folder, and
            # the next listing must show the files of other clients.
            with file_io.written_aside(directory) as temporary:
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
                file_io.look_anew(marker.parent)
                marker.stat()
                return True
            found = topic_from_document(document.read_bytes())
            return found.uid != uid or segment in found.pruned

        try:
            return await self._run(self._reads, "check for", marker, look)
        except FileNotFoundError:
            raise _no_document(document) from None

    async def put_documents(self, topic: TopicName, documents: Mapping[str, bytes], *, is_durable: bool = True) -> None:
        """Replace documents of a topic, each atomically, and durably if ``is_durable``.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """

        def put() -> None:
            directory = self._make_directories(topic_dir(topic))
            with contextlib.ExitStack() as aside:
                renames = []
                for name, content in documents.items():
                    temporary = aside.enter_context(file_io.written_aside(directory))
                    temporary.write_bytes(content)
                    renames.append((temporary, directory / name))
                if is_durable:
                    file_io.publish(self.root, *renames)
                else:
                    for temporary, final in renames:
                        temporary.replace(final)

        await self._run(self._documents, "write the documents of", self.root / topic_dir(topic), put)

    async def list_topics(self) -> list[TopicName]:
        """List the topics that have a non-empty folder, ordered by name.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        return await self._run(self._documents, "list the topics of", self.root, lambda: scan_topics(self.root))

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Return those of the topics that have a non-empty folder.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """

        def found() -> frozenset[TopicName]:
            return frozenset(topic for topic in topics if holds_something(self.root / topic_dir(topic)))

        return await self._run(self._documents, "list topics in", self.root, found)

    async def list_documents(self, topic: TopicName) -> list[str]:
        """List the names of a topic's documents.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        folder = self.root / topic_dir(topic)
        return await self._run(self._documents, "list", folder, lambda: scan_names(folder, ".json"))

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        """Read a document of a topic.

        Raises:
            NotFound: If there is no such document.
            StorageFailed: If the storage fails.
        """
        return await self._read_whole(document_path(topic, name))

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        """Return the ids of the segments that left any file in the topic's folder.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        folder = self.root / topic_dir(topic)
        return await self._run(self._documents, "list", folder, lambda: claims.used_segments(self.root, topic))

    async def deleted_topics(self) -> frozenset[int]:
        """Return the uids of recently deleted topics.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        return await self._run(self._documents, "list", self.root, lambda: claims.deleted_topics(self.root))

    async def create_claim(self, kind: ClaimKind, number: int, content: bytes) -> None:
        """Create the claim of a number durably.

        Raises:
            AlreadyExists: If the number is taken.
            StorageFailed: If the storage fails.
        """
        path = self.root / claim_path(kind, number)
        try:
            await self._run(
                self._documents, "create", path, lambda: claims.create_claim(self.root, kind, number, content)
            )
        except FileExistsError:
            raise AlreadyExists(f"{path} exists, number {number} is taken: take another one") from None

    async def read_claims(self, kind: ClaimKind) -> Mapping[int, bytes]:
        """Return the content of each claim, by number.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        folder = self.root / claims_dir(kind)
        return await self._run(self._documents, "read", folder, lambda: claims.read_claims(self.root, kind))

    async def delete_claims(self, kind: ClaimKind, numbers: Collection[int]) -> None:
        """Delete claims; ignore deleted ones.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        folder = self.root / claims_dir(kind)
        if numbers:
            await self._run(self._documents, "delete", folder, lambda: claims.delete_claims(self.root, kind, numbers))

    async def create_journal(self, name: str) -> FileLogWriter:
        """Create a group journal and return its writer.

        Raises:
            AlreadyExists: If the journal exists.
            StorageFailed: If the storage fails.
        """
        relative = journal_path(name)
        try:
            fd = await self._run(
                self._writes, "create journal", self.root / relative, lambda: self._create_exclusively(relative)
            )
        except FileExistsError:
            raise AlreadyExists(f"journal {relative} exists: every journal needs its own name") from None
        return FileLogWriter(self.root, relative, fd, 0, writes=self._writes, syncs=self._syncs, guard=self._guard)

    async def list_journals(self) -> list[str]:
        """List the names of the group journals.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        folder = self.root / GROUPS
        names = await self._run(self._documents, "list", folder, lambda: scan_names(folder, ".journal"))
        return sorted(name for name in names if parse_journal_name(name) is not None)

    async def read_journal(self, name: str) -> bytes:
        """Read a group journal.

        Raises:
            NotFound: If there is no such journal.
            StorageFailed: If the storage fails.
        """
        return await self._read_whole(journal_path(name))

    async def delete_journals(self, names: Sequence[str]) -> None:
        """Delete group journals; ignore deleted ones.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """
        paths = [self.root / journal_path(name) for name in names]

        def unlink_all() -> None:
            for path in paths:
                path.unlink(missing_ok=True)

        if paths:
            await self._run(self._documents, "delete", paths[0], unlink_all)

    async def _read_whole(self, relative: str) -> bytes:
        try:
            return await self._run(self._documents, "read", self.root / relative, (self.root / relative).read_bytes)
        except FileNotFoundError:
            raise NotFound(f"{relative} is missing in {self.root}") from None

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete the files of pruned segments and expired retained links, unless the topic was recreated.

        Raises:
            StorageFailed: If the storage fails, or the topic's document is missing.
        """
        document = self.root / document_path(topic, TOPIC_DOCUMENT)

        def sweep() -> None:
            found = topic_from_document(document.read_bytes())
            if found.uid == uid:
                sweep_pruned(self.root, topic, found.pruned)
                sweep_removed(self.root, topic, found.pruned)
                sweep_retained(self.root, topic, kept_s, now_us)

        try:
            await self._run(self._syncs, "delete old files of", self.root / topic_dir(topic), sweep)
        except FileNotFoundError:
            raise _no_document(document) from None

    async def delete_topic(self, topic: TopicName, uid: int) -> None:
        """Record that a topic was deleted, and delete its folder unless it is of a recreated topic.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """

        def delete() -> None:
            claims.record_deleted(self.root, uid)
            for folder in (self.root / topic_dir(topic), self.root / "blobs" / topic.namespace / topic.name):
                prefix = deleted_prefix(uid)
                if folder.is_dir() and self._belongs(folder, uid):
                    aside = next(p for n in range(10**6) if not (p := folder.parent / f"{prefix}{n}").exists())
                    _move_aside(folder, aside)
                # Also leftovers of interrupted deletions; earlier releases put the topic's name before the uid.
                for pattern in (f"{prefix}*", f"{DELETED_PREFIX}{topic.name}-{uid}-*"):
                    for leftover in folder.parent.glob(pattern):
                        shutil.rmtree(leftover, ignore_errors=False)

        await self._run(self._syncs, "delete topic folder", self.root / topic_dir(topic), delete)

    async def sweep_deleted(self) -> None:
        """Delete the leftovers of interrupted deletions of topics.

        Raises:
            StorageFailed: If the storage fails or lacks the marker of its cluster.
        """

        def sweep() -> None:
            for parent in (self.root / TOPICS, self.root / "blobs"):
                for leftover in parent.glob(f"*/{DELETED_PREFIX}*"):
                    shutil.rmtree(leftover)

        await self._run(self._syncs, "delete the leftovers of deleted topics in", self.root / TOPICS, sweep)

    async def _run(
        self, pool: ThreadPoolExecutor, action: str, path: Path, call: Callable[[], T], *, verify_after: bool = True
    ) -> T:
        """Run a blocking call; while the root exists, the caller handles FileExistsError and FileNotFoundError."""
        guarded = self._guarded(action, path, call, verify_after=verify_after)
        return await asyncio.get_running_loop().run_in_executor(pool, guarded)

    async def _open(self, pool: ThreadPoolExecutor, action: str, path: Path, call: Callable[[], int]) -> int:
        """Run a blocking call that opens a descriptor.

        The call verifies the marker itself and closes the descriptor if the marker is missing; otherwise the descriptor
        would leak.
        """
        return await open_descriptor(pool, self._guarded(action, path, call, verify_after=False))

    def _guarded(self, action: str, path: Path, call: Callable[[], T], *, verify_after: bool) -> Callable[[], T]:
        def guarded() -> T:
            try:
                self._guard.verify()
                result = call()
                if verify_after:  # the mount may have vanished: an empty listing may be that of the folder beneath it
                    self._guard.verify()
                return result
            except (FileExistsError, FileNotFoundError) as e:
                self._guard.verify()
                if self.root.is_dir():
                    raise
                raise storage_failed(action, str(path), e) from e
            except OSError as e:
                raise storage_failed(action, str(path), e) from e

        return guarded

    async def _of_marker(self, action: str, call: Callable[[], T]) -> T:
        """Run a blocking call that needs no marker."""

        def converted() -> T:
            try:
                return call()
            except OSError as e:
                raise storage_failed(action, str(self.root), e) from e

        return await asyncio.get_running_loop().run_in_executor(self._documents, converted)

    def _probe(self) -> None:
        if not self.root.is_dir():
            raise NotADirectoryError(20, "no such directory; create it or mount it", str(self.root))
        with file_io.written_aside(self.root) as probe:
            probe.write_bytes(b"\0")

    def _make_directories(self, relative: str) -> Path:
        return file_io.make_directories(self.root, relative, beside=self._guard.beside)

    def _create_exclusively(self, relative: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for _ in range(CREATE_ATTEMPTS):
            self._make_directories(relative.rpartition("/")[0])
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.root / relative, flags, 0o644)
        return os.open(self.root / relative, flags, 0o644)

    def _belongs(self, folder: Path, uid: int) -> bool:
        """Whether the folder is of the topic with this uid, not of a recreated one."""
        try:
            found = topic_from_document((folder / TOPIC_DOCUMENT).read_bytes()).uid
        except (FileNotFoundError, SeaweedMQError):
            return True
        return found == uid


def _move_aside(folder: Path, aside: Path) -> None:
    """Rename the folder of a deleted topic; on a full disk, delete its files first to make space for the new name."""
    try:
        folder.rename(aside)
    except OSError as e:
        if e.errno not in NO_SPACE:
            raise
        for path in folder.rglob("*"):
            if path.name != TOPIC_DOCUMENT and not path.is_dir():
                path.unlink(missing_ok=True)
        folder.rename(aside)


def _no_document(document: Path) -> StorageFailed:
    return StorageFailed(f"{document} is missing: the topic was deleted, or is being created")


def open_store(uri: str) -> FileSegmentStore:
    """Return the store at a plain path or ``file://`` URI, without access to it.

    ``check()`` tests whether it is usable.

    Raises:
        InvalidArgument: If the URI has another scheme, or a host.
    """
    if "://" not in uri and not uri.startswith("file:"):
        if not uri:
            raise InvalidArgument("the storage URI is empty: give a directory, like /mnt/shared/mq")
        return FileSegmentStore(Path(uri).expanduser())
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidArgument(
            f"storage {uri!r} is not supported: give the path of a mounted directory, or file:///its/absolute/path"
        )
    return FileSegmentStore(unquote(parts.path))
