"""Segment store in memory for tests and the simulation, with the semantics and failures of files.

Each file records the length of its flushed part, and whether its name is durable. ``crash`` is the loss of a machine:
all bytes that its processes wrote and did not flush are lost, or any part of them.
"""

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from seaweedmq.codec.paths import (
    CLUSTER_DOCUMENT,
    DELETED_TOPICS,
    GROUPS,
    TOPIC_DOCUMENT,
    TOPICS,
    RemovedMark,
    claim_path,
    claims_dir,
    deleted_topic_path,
    document_path,
    fence_path,
    journal_path,
    log_dir,
    log_path,
    parse_removed_mark,
    parse_segment_file,
    parse_segment_path,
    removed_dir,
    table_dir,
    table_prefix,
    topic_dir,
)
from seaweedmq.codec.state.cluster import marker_document, marker_from_document
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.core.files.cover import check_no_overlap
from seaweedmq.errors import AlreadyExists, Closed, NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlockingInput, StorageSpace
from seaweedmq.storage.logs.lost_blocks import BLOCK_BYTES, SECTOR_BYTES
from seaweedmq.storage.store.marker import marker_foreign, marker_missing


class StorageOp(StrEnum):
    """An operation that a fault hook can delay or fail."""

    CHECK = "check"
    CLOCK = "clock"
    CREATE = "create"
    APPEND = "append"
    SYNC = "sync"
    LIST = "list"
    FENCE = "fence"
    LOOK = "look"
    """Fence check."""
    MARKER = "marker"
    """Read of the cluster's marker."""
    OPEN = "open"
    READ = "read"
    PUT = "put"
    DELETE = "delete"


FaultHook = Callable[[StorageOp, str], Awaitable[None]]
"""Function awaited with operation and path before each operation; it may sleep or raise StorageFailed."""


async def no_faults(op: StorageOp, path: str) -> None:
    """Inject no fault."""


@dataclass(slots=True, eq=False)
class MemoryFile:
    """The content of one file. Invariant: ``synced_bytes <= len(data)``."""

    data: bytearray
    modified_us: int
    writer: str
    synced_bytes: int = 0
    named: bool = False
    """Whether the directory entry is durable: a file that was never flushed may vanish completely."""
    crashed: bool = False
    """Whether its machine is lost, so that the writer fails."""


def _lose_blocks(file: MemoryFile, rng: random.Random) -> None:
    """Lose a random subset of the blocks after the flushed part: they read as zeros, or the file ends before them.

    In the partly flushed block, any sectors after the flushed part may be lost: see ``lost_blocks``.
    """
    synced, kept = file.synced_bytes, rng.choice((0.2, 0.5, 0.9))
    end = len(file.data)
    if rng.random() < 0.5:
        end = rng.randint(synced, end)
    del file.data[end:]
    for block in range(synced - synced % BLOCK_BYTES, end, BLOCK_BYTES):
        unit = rng.choice((SECTOR_BYTES, BLOCK_BYTES)) if block < synced else BLOCK_BYTES
        for first in range(block, min(block + BLOCK_BYTES, end), unit):
            if rng.random() >= kept:
                lost = slice(max(first, synced), max(min(first + unit, end), synced))
                file.data[lost] = bytes(lost.stop - lost.start)


@dataclass(slots=True)
class MemorySegmentStore:
    """A ``ports.SegmentStore`` in a dictionary; ``fault`` makes it slow or failing at any time."""

    wall_us: Callable[[], int]
    fault: FaultHook = no_faults
    tear: random.Random | None = None
    """Source of torn writes: a failing append leaves a random part of its bytes, a failing creation a partial file."""
    files: dict[str, MemoryFile] = field(default_factory=dict)
    blob_sweeps: list[tuple[TopicName, int]] = field(default_factory=list)
    """Calls to sweep payloads, with the uid of the topic."""
    uri: str = "memory"
    cluster_id: str | None = None
    """Id of the cluster whose marker is required; None before the first ``bind``."""
    _verified: MemoryFile | None = None
    """Marker file that the last verification accepted."""

    def bind(self, cluster_id: str) -> None:
        self.cluster_id, self._verified = cluster_id, None

    async def verify_root(self) -> None:
        self.verify()

    async def read_marker(self) -> StorageMarker | None:
        await self.fault(StorageOp.MARKER, CLUSTER_DOCUMENT)
        return self._marker()

    async def create_marker(self, marker: StorageMarker) -> StorageMarker:
        await self.fault(StorageOp.PUT, CLUSTER_DOCUMENT)
        return self._marker() or self._put_marker(marker)

    async def replace_marker(self, marker: StorageMarker) -> None:
        await self.fault(StorageOp.PUT, CLUSTER_DOCUMENT)
        self._require_marker(marker.cluster_id)
        self._put_marker(marker)

    async def has_topics(self) -> bool:
        await self.fault(StorageOp.LIST, TOPICS)
        # Files of a topic are in topics/<namespace>/<topic>/; names with a dot are of deleted topics.
        parts = (path.split("/") for path in self.files)
        return any(len(part) > 3 and part[0] == TOPICS and not part[2].startswith(".") for part in parts)

    def verify(self) -> None:
        """Raise StorageFailed unless the store has the marker of the bound cluster."""
        file = self.files.get(CLUSTER_DOCUMENT)
        if self.cluster_id is not None and (file is None or file is not self._verified):
            self._require_marker(self.cluster_id)
            self._verified = file

    def _marker(self) -> StorageMarker | None:
        file = self.files.get(CLUSTER_DOCUMENT)
        return None if file is None else marker_from_document(bytes(file.data))

    def _put_marker(self, marker: StorageMarker) -> StorageMarker:
        content = bytearray(marker_document(marker))
        self.files[CLUSTER_DOCUMENT] = MemoryFile(content, self.wall_us(), "", len(content), named=True)
        return marker

    def _require_marker(self, cluster_id: str) -> None:
        marker = self._marker()
        if marker is None:
            raise marker_missing(self.uri, cluster_id)
        if marker.cluster_id != cluster_id:
            raise marker_foreign(self.uri, cluster_id, marker)

    async def _turn(self, op: StorageOp, path: str) -> None:
        """Await the fault hook of an operation, then verify the marker."""
        await self.fault(op, path)
        self.verify()

    def crash(self, writer: str | None = None, rng: random.Random | None = None) -> None:
        """Lose the bytes that are not flushed, of the files of one writer or of all.

        With ``rng``, an independent random part of each file survives: file systems write pages and names back in any
        order.
        """
        for path, file in list(self.files.items()):
            if writer is not None and file.writer != writer:
                continue
            file.crashed = True
            if not file.named and (rng is None or rng.random() < 0.5):
                del self.files[path]
            elif rng is None:
                del file.data[file.synced_bytes :]
            else:
                _lose_blocks(file, rng)

    async def check(self) -> None:
        await self._turn(StorageOp.CHECK, "")

    async def now_us(self) -> int:
        await self._turn(StorageOp.CLOCK, "")
        return self.wall_us()

    async def space(self) -> StorageSpace | None:
        """Return None: memory reports no space."""
        return None

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> "MemoryLogWriter":
        path = log_path(topic, segment, base_offset, writer)
        try:
            await self.fault(StorageOp.CREATE, path)
        except BaseException:
            if self.tear is not None and path not in self.files and self.tear.random() < 0.5:
                torn = preamble[: self.tear.randint(0, len(preamble))]
                self.files[path] = MemoryFile(bytearray(torn), self.wall_us(), writer)
            raise
        self.verify()
        if path in self.files:
            raise AlreadyExists(
                f"log file {path} exists: every writer has its own name and begins a file at an offset once"
            )
        file = self.files[path] = MemoryFile(bytearray(preamble), self.wall_us(), writer)
        return MemoryLogWriter(self, path, file)

    async def put_log(self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes) -> None:
        path = log_path(topic, segment, base_offset, writer)
        await self._turn(StorageOp.CREATE, path)
        if path in self.files:
            raise AlreadyExists(f"log file {path} exists: a writer begins a file at an offset once")
        self.files[path] = MemoryFile(bytearray(preamble), self.wall_us(), writer, len(preamble), named=True)
        self.sync_names(path.rpartition("/")[0])

    async def list_files(
        self, topic: TopicName, segment: int, *, uid: int | None = None, covering: int | None = None
    ) -> list[SegmentFile]:
        await self._turn(StorageOp.LIST, topic_dir(topic))
        found = self._listed(f"{log_dir(topic, segment)}/") + self._tables(topic, segment)
        return sorted(found, key=lambda f: (f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def list_topic_files(self, topic: TopicName, *, uid: int | None = None) -> list[SegmentFile]:
        await self._turn(StorageOp.LIST, topic_dir(topic))
        found = self._listed(f"{topic_dir(topic)}/")
        return sorted(found, key=lambda f: (f.segment, f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def open(self, file: SegmentFile) -> "MemoryLogReader":
        return MemoryLogReader(self, file.path, await self._opened(file))

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        source: BlockingInput = pa.BufferReader(bytes((await self._opened(file)).data))
        return source

    async def sync_files(self, files: Sequence[SegmentFile]) -> None:
        for file in files:
            found = self.files.get(file.path)
            covered = 0 if found is None else len(found.data)
            await self._turn(StorageOp.SYNC, file.path)
            if found is not None and self.files.get(file.path) is found:
                found.synced_bytes = max(found.synced_bytes, min(covered, len(found.data)))
        for folder in {file.path.rpartition("/")[0] for file in files}:
            self.sync_names(folder)

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        for file in files:
            await self._turn(StorageOp.DELETE, file.path)
            self.files.pop(file.path, None)

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        for segment, offset in removed.items():
            path = f"{removed_dir(topic)}/{RemovedMark(segment, offset, uid).file_name}"
            await self._turn(StorageOp.PUT, path)
            self.files[path] = MemoryFile(bytearray(), self.wall_us(), "", named=True)

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        await self._turn(StorageOp.LIST, removed_dir(topic))
        removed: dict[int, int] = {}
        for path in self.files:
            folder, _, name = path.rpartition("/")
            mark = parse_removed_mark(name) if folder == removed_dir(topic) else None
            if mark is not None and mark.uid == uid:
                removed[mark.segment] = max(mark.offset, removed.get(mark.segment, 0))
        return removed

    async def fence(self, topic: TopicName, uid: int, segment: int) -> None:
        path = fence_path(topic, uid, segment)
        await self._turn(StorageOp.FENCE, path)
        self.files[path] = MemoryFile(bytearray(), self.wall_us(), "", named=True)
        self.sync_names(path.rpartition("/")[0])

    async def is_fenced(self, topic: TopicName, uid: int, segment: int) -> bool:
        path = fence_path(topic, uid, segment)
        await self._turn(StorageOp.LOOK, path)
        if path in self.files:
            return True
        document = self.files.get(document_path(topic, TOPIC_DOCUMENT))
        if document is None:
            raise _no_document(topic)
        found = topic_from_document(bytes(document.data))
        return found.uid != uid or segment in found.pruned

    async def put_documents(
        self, topic: TopicName, documents: Mapping[str, bytes], *, uid: int, revision: int, is_durable: bool = True
    ) -> None:
        for name, content in documents.items():
            path = document_path(topic, name)
            if is_durable:
                await self.put_file(path, content)
            else:
                await self._turn(StorageOp.PUT, path)
                self.files[path] = MemoryFile(bytearray(content), self.wall_us(), "")

    async def put_file(
        self,
        path: str,
        content: bytes,
        beside: tuple[str, MemoryFile | None] | None = None,
        replaced: Sequence[SegmentFile] = (),
    ) -> None:
        """Replace a whole file atomically and durably."""
        await self._turn(StorageOp.PUT, path)
        if beside is not None:
            other, file = beside
            if file is None or self.files.get(other) is not file:
                raise NotFound(f"{other} was deleted: its topic was deleted, or retention removed it")
        name = parse_segment_file(path)
        if name is not None and name.end_offset is not None:
            check_no_overlap(self._tables(name.topic, name.segment), name.base_offset, name.end_offset, replaced)
        self.files[path] = MemoryFile(bytearray(content), self.wall_us(), "", len(content), named=True)
        self.sync_names(path.rpartition("/")[0])

    async def list_topics(self) -> list[TopicName]:
        await self._turn(StorageOp.LIST, TOPICS)
        parts = [path.split("/") for path in self.files if path.startswith(f"{TOPICS}/")]
        found = {(p[1], p[2]) for p in parts if len(p) > 3 and not p[2].startswith(".") and not p[3].startswith(".")}
        return sorted(TopicName(namespace, name) for namespace, name in found)

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        await self._turn(StorageOp.LIST, TOPICS)
        return frozenset(t for t in topics if any(path.startswith(f"{topic_dir(t)}/") for path in self.files))

    async def list_documents(self, topic: TopicName) -> list[str]:
        return await self._names_in(topic_dir(topic), ".json")

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        return await self._read_whole(document_path(topic, name))

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        folder = topic_dir(topic)
        await self._turn(StorageOp.LIST, folder)
        found = {parse_segment_path(topic, path) for path in self.files if path.startswith(f"{folder}/")}
        return frozenset(number for number in found if number is not None)

    async def deleted_topics(self) -> frozenset[int]:
        await self._turn(StorageOp.LIST, DELETED_TOPICS)
        folder = f"{DELETED_TOPICS}/"
        return frozenset(int(path.removeprefix(folder)) for path in self.files if path.startswith(folder))

    async def create_claim(self, kind: ClaimKind, number: int, content: bytes) -> None:
        path = claim_path(kind, number)
        await self._turn(StorageOp.PUT, path)
        if path in self.files:
            raise AlreadyExists(f"{path} exists, number {number} is taken: take another one")
        self.files[path] = MemoryFile(bytearray(content), self.wall_us(), "", len(content), named=True)

    async def read_claims(self, kind: ClaimKind) -> Mapping[int, bytes]:
        folder = f"{claims_dir(kind)}/"
        await self._turn(StorageOp.READ, folder)
        return {
            int(path.removeprefix(folder)): bytes(file.data)
            for path, file in self.files.items()
            if path.startswith(folder)
        }

    async def delete_claims(self, kind: ClaimKind, numbers: Collection[int]) -> None:
        for number in numbers:
            await self._turn(StorageOp.DELETE, claim_path(kind, number))
            self.files.pop(claim_path(kind, number), None)

    async def create_journal(self, name: str) -> "MemoryLogWriter":
        path = journal_path(name)
        await self._turn(StorageOp.CREATE, path)
        if path in self.files:
            raise AlreadyExists(f"journal {path} exists: every journal needs its own name")
        file = self.files[path] = MemoryFile(bytearray(), self.wall_us(), "")
        return MemoryLogWriter(self, path, file)

    async def list_journals(self) -> list[str]:
        return await self._names_in(GROUPS, ".journal")

    async def read_journal(self, name: str) -> bytes:
        return await self._read_whole(journal_path(name))

    async def delete_journals(self, names: Sequence[str]) -> None:
        for name in names:
            await self._turn(StorageOp.DELETE, journal_path(name))
            self.files.pop(journal_path(name), None)

    async def _names_in(self, folder: str, suffix: str) -> list[str]:
        await self._turn(StorageOp.LIST, folder)
        names = [path.removeprefix(f"{folder}/") for path in self.files if path.startswith(f"{folder}/")]
        return sorted(n for n in names if "/" not in n and not n.startswith(".") and n.endswith(suffix))

    async def _read_whole(self, path: str) -> bytes:
        await self._turn(StorageOp.READ, path)
        if path not in self.files:
            raise NotFound(f"{path} is missing")
        return bytes(self.files[path].data)

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete the files of pruned segments, unless the topic was recreated; tables have no retained links here."""
        await self._turn(StorageOp.DELETE, topic_dir(topic))
        document = self.files.get(document_path(topic, TOPIC_DOCUMENT))
        if document is None:
            raise _no_document(topic)
        found = topic_from_document(bytes(document.data))
        if found.uid != uid or not found.pruned:
            return
        for path in [p for p in self.files if p.startswith(f"{topic_dir(topic)}/")]:
            segment = parse_segment_path(topic, path)
            if segment is not None and segment in found.pruned:
                del self.files[path]

    async def sweep_blobs(self, topic: TopicName, uid: int, now_us: int) -> int:
        """Note the call: there are no payloads here."""
        self.blob_sweeps.append((topic, uid))
        return 0

    async def sweep_deleted(self) -> None:
        """Do nothing: deletions are atomic here."""

    async def delete_topic(self, topic: TopicName, uid: int, *, revision: int) -> None:
        """Record that a topic was deleted, and delete its folder unless it is of a recreated topic."""
        folder = topic_dir(topic)
        await self._turn(StorageOp.DELETE, folder)
        self.files[deleted_topic_path(uid)] = MemoryFile(bytearray(), self.wall_us(), "", named=True)
        document = self.files.get(f"{folder}/{TOPIC_DOCUMENT}")
        if document is not None:
            try:
                if topic_from_document(bytes(document.data)).uid != uid:
                    return  # the topic was recreated
            except SeaweedMQError:
                pass  # unreadable: of no topic that exists
        for path in [p for p in self.files if p.startswith((folder + "/", f"blobs/{topic}/"))]:
            del self.files[path]

    async def close(self) -> None:
        """Do nothing: there are no threads."""

    async def _opened(self, file: SegmentFile) -> MemoryFile:
        await self._turn(StorageOp.OPEN, file.path)
        found = self.files.get(file.path)
        if found is None:
            raise NotFound(f"{file.path} was deleted: list the segment's files again")
        return found

    def sync_names(self, folder: str) -> None:
        for path, file in self.files.items():
            if not file.named and path.rpartition("/")[0] == folder:
                file.named = True

    def _tables(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        return self._listed(f"{table_dir(topic)}/{table_prefix(segment)}")

    def _listed(self, prefix: str) -> list[SegmentFile]:
        found = [self.described(path, file) for path, file in self.files.items() if path.startswith(prefix)]
        return [f for f in found if f is not None]

    def described(self, path: str, file: MemoryFile) -> SegmentFile | None:
        """Return the file as a listing shows it; None if it is not of a segment."""
        name = parse_segment_file(path)
        if name is None:
            return None
        return SegmentFile(
            topic=name.topic,
            segment=name.segment,
            kind=FileKind(name.kind),
            base_offset=name.base_offset,
            end_offset=name.end_offset,
            writer=name.writer,
            size_bytes=len(file.data),
            path=path,
            modified_us=file.modified_us,
        )


def _no_document(topic: TopicName) -> StorageFailed:
    return StorageFailed(f"{topic} has no document: the topic was deleted, or is being created")


class MemoryLogWriter:
    """A ``ports.LogWriter`` in memory that rejects all calls after a failure, like ``FileLogWriter``."""

    def __init__(self, store: MemorySegmentStore, path: str, file: MemoryFile) -> None:
        self._store = store
        self._path = path
        self._file = file
        self._size_bytes = len(file.data)
        self._failure: str | None = None
        self._closed = False
        self._appending = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    async def append(self, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        self._check()
        if self._appending:
            raise AssertionError(f"{self._path}: two appends at once would mix their bytes")
        self._appending = True
        data = b"".join(chunks)
        try:
            await self._store.fault(StorageOp.APPEND, self._path)
            self._store.verify()
            self._check()
        except BaseException as e:
            self._failure = self._failure or f"an earlier call failed ({e})"
            if self._store.tear is not None and not self._file.crashed:
                self._file.data += data[: self._store.tear.randint(0, len(data))]
            raise
        finally:
            self._appending = False
        self._file.data += data
        self._file.modified_us = self._store.wall_us()
        self._size_bytes += len(data)
        if not sync:
            return False
        try:
            await self.sync()
        except StorageFailed:
            return False
        return True

    async def sync(self) -> None:
        self._check()
        covered = len(self._file.data)
        try:
            await self._store.fault(StorageOp.SYNC, self._path)
            self._store.verify()
        except StorageFailed as e:
            self._failure = f"an earlier call failed ({e})"
            raise
        self._check()
        self._file.synced_bytes = max(self._file.synced_bytes, covered)
        if not self._file.named:
            self._store.sync_names(self._path.rpartition("/")[0])
            self._file.named = True

    async def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"{self._path} was closed by its writer")
        if self._file.crashed:
            raise StorageFailed(f"{self._path} lost its machine: continue in another file")
        if self._failure is not None:
            raise StorageFailed(
                f"{self._path} accepts no more records because {self._failure}: continue in another file"
            )


class MemoryLogReader:
    """A ``ports.LogReader`` in memory; an open file stays readable after its deletion."""

    def __init__(self, store: MemorySegmentStore, path: str, file: MemoryFile) -> None:
        self._store = store
        self._path = path
        self._file = file
        self._closed = False

    async def read(self, position: int, length: int) -> bytes:
        if self._closed:
            raise Closed(f"{self._path} was closed by its reader")
        await self._store.fault(StorageOp.READ, self._path)
        return bytes(self._file.data[position : position + length])

    async def close(self) -> None:
        self._closed = True
