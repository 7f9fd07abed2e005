"""The shared storage, as brokers, table workers and readers use it. Adapters: ``storage.store``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import TopicName


class LogWriter(Protocol):
    """A log file with its only writer. All methods raise StorageFailed."""

    @property
    def path(self) -> str:
        """Path of the file in the storage."""

    @property
    def size_bytes(self) -> int:
        """Bytes appended so far, including the preamble."""

    async def append(self, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        """Write all chunks one after another; on return they survive the death of the process.

        ``sync`` asks to fsync them in the same step of a thread. Return whether they were; if not, :meth:`sync` does
        it, or raises the reason of the failure.
        """

    async def sync(self) -> None:
        """Fsync: on return, everything appended before the call survives the death of the machine."""

    async def close(self) -> None:
        """Close the file."""


class LogReader(Protocol):
    """Random access to one file, log or table."""

    async def read(self, position: int, length: int) -> Frames:
        """Return up to ``length`` bytes, fewer at the end of the file, or raise NotFound if the file was deleted."""

    async def close(self) -> None:
        """Close the file."""


class BlockingInput(Protocol):
    """A finished file as Arrow reads it, in a thread: blocking, one call at a time. Seeking to its end gives the size.

    A native handle of Arrow (``pyarrow.OSFile``, a memory map, a buffer) qualifies, which Arrow reads without Python in
    between. So does any Python object with these methods. Errors are OSErrors; ENOENT and ESTALE mean that the file was
    deleted.
    """

    def read(self, nbytes: int = -1, /) -> bytes:
        """Return up to ``nbytes`` bytes from the position on; all remaining ones if negative."""

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Move the position, as in ``io.IOBase``, and return it."""

    def tell(self) -> int:
        """Return the position."""

    def close(self) -> None:
        """Close the file."""

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""


@dataclass(frozen=True, slots=True)
class StorageSpace:
    """The size of a storage."""

    free_bytes: int
    """Bytes that may still be written."""
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlob:
    """A payload that records may refer to, or what is there of one that is being uploaded."""

    uri: str
    """Path in the storage, as records name it."""
    parts: Sequence[tuple[int, int]]
    """Number and size in bytes of each part that is there, in order."""
    is_complete: bool
    """Whether the upload was completed."""


class PartWriter(Protocol):
    """A part of a payload that is being written.

    Methods raise StorageFailed, or Unavailable if the payload was completed or deleted meanwhile.
    """

    async def append(self, data: bytes) -> None:
        """Write the next bytes."""

    async def keep(self) -> None:
        """Make the part durable. Before that no other call finds it; it replaces an earlier part of its number."""

    async def close(self) -> None:
        """End writing; a part that was not kept is deleted."""


class BlobStore(Protocol):
    """The payloads that records refer to. Methods raise StorageFailed.

    The seam between directories and object stores: on an object store a part is an object, and the last call only
    checks that all are there.
    """

    async def find_blob(self, topic: TopicName, uid: int, blob_id: str, days: Sequence[str]) -> StoredBlob | None:
        """Return what earlier uploads of an id left on one of some days, ``YYYY-MM-DD``; None if nothing.

        Raises:
            InvalidArgument: If the id is not one.
        """

    async def create_part(self, uri: str, number: int) -> PartWriter:
        """Begin a part, from 0, of a payload that is not complete."""

    async def read_part(self, blob: StoredBlob, number: int, position: int, length: int) -> bytes:
        """Read up to ``length`` bytes of one part, or raise Unavailable if it was completed or deleted meanwhile."""

    async def complete_blob(self, uri: str, part_count: int, size_bytes: int) -> None:
        """Make a payload readable, durably. A repeated call has no effect.

        Raises:
            InvalidArgument: If its parts are not those of such a payload.
            Unavailable: If the upload was deleted.
        """

    async def read_blob(self, uri: str, position: int, length: int) -> bytes:
        """Read up to ``length`` bytes; fewer only at the end. NotFound is raised if there is no such payload."""

    async def sweep_blobs(self, topic: TopicName, uid: int, now_us: int) -> int:
        """Delete the payloads of a topic that are older than 48 hours and that no table and no log names.

        ``now_us`` is a lower bound of the time by the caller's clock. Return the number of deleted payloads. The sweep
        may take minutes, outside of this process.

        Raises:
            StorageFailed: If it cannot be done now, for example since a file of the topic is damaged.
        """


class StoredFiles(Protocol):
    """The files of segments, for code that only reads them. Errors are those of :class:`SegmentStore`."""

    async def check(self) -> None:
        """Raise StorageFailed unless the root exists and can be written."""

    async def list_files(
        self, topic: TopicName, segment: int, *, uid: int | None = None, covering: int | None = None
    ) -> list[SegmentFile]:
        """Return log and table files by (base_offset, kind, writer). Foreign names are logged once and ignored.

        Args:
            topic: Name of the topic.
            segment: Id of the segment.
            uid: Uid of the topic, below which an object store has its files. None: the topic that the document of this
                name describes, or without a document every topic of the name that is not deleted.
            covering: Offset for which an earlier listing suffices if it has a file with it. Readers list without it
                after NotFound, and before they report that records are missing.
        """

    async def open(self, file: SegmentFile) -> LogReader:
        """Open a file for reading, or raise NotFound if it was deleted; on an object store its first read does."""

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        """Open a table, for a thread to read and then close; raises NotFound as :meth:`open`."""

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return the highest offset of each segment that ``record_removed`` recorded, by segment id."""


class SegmentStore(StoredFiles, Protocol):
    """The shared storage, a directory or an object store. ``codec`` defines its paths and formats.

    The store knows no brokers or metadata. Records reach a directory through :class:`DirectoryLogs`, and an object
    store through :class:`LogObjects`. Async methods raise StorageFailed if the storage fails or rejects the operation.
    """

    @property
    def uri(self) -> str:
        """Location of the storage, for messages and for commands."""

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on.

        While the root has no marker, or that of another cluster, every method except those for markers raises
        StorageFailed, changes nothing and returns no listing. So does an append that is in progress. An object store,
        which cannot be unmounted, may notice it some seconds late.
        """

    async def verify_root(self) -> None:
        """Raise StorageFailed unless the root holds the marker of the bound cluster, or no cluster is bound."""

    async def read_marker(self) -> StorageMarker | None:
        """Return ``cluster.json`` of the root; None if it has none. Needs no :meth:`bind`.

        Raises:
            StorageFailed: If the root is missing or unreadable.
            Corrupt: If the marker cannot be read.
            Unsupported: If the marker has another format version.
        """

    async def create_marker(self, marker: StorageMarker) -> StorageMarker:
        """Create ``cluster.json`` durably unless the root has one; return the marker that the root has afterwards.

        Raises:
            StorageFailed: If the marker may or may not exist now.
            Corrupt, Unsupported: As :meth:`read_marker`.
        """

    async def replace_marker(self, marker: StorageMarker) -> None:
        """Replace ``cluster.json``, atomically and durably; an object store keeps a later one of another broker.

        Raises:
            StorageFailed: If the root has none, or that of another cluster.
            Corrupt, Unsupported: As :meth:`read_marker`.
        """

    async def has_topics(self) -> bool:
        """Whether the storage holds the folder of any topic. Needs no :meth:`bind`."""

    async def now_us(self) -> int:
        """Return the time of the clock that dates files, microseconds since 1970 UTC.

        It may be another machine's clock. The call takes no space in the storage.
        """

    async def space(self) -> StorageSpace | None:
        """Return the bytes that may still be written; None if the storage does not report them."""

    async def list_topic_files(self, topic: TopicName, *, uid: int | None = None) -> list[SegmentFile]:
        """Return ``list_files`` of all segments of a topic, by segment: one listing is cheaper than many."""

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        """Delete files, so that listings no longer show them; missing ones are ignored.

        For readers that found a table before, its retained link stays until ``sweep``. On an object store the table
        itself does, if ``record_removed`` covers it.
        """

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        """Record durably that retention removes the records of some segments below an offset, by segment id.

        The record outlives the files and the setting.
        """

    async def put_documents(
        self, topic: TopicName, documents: Mapping[str, bytes], *, uid: int, revision: int, is_durable: bool = True
    ) -> None:
        """Replace ``topic.json``, ``lineage.json``, or both, or documents of producers, by name.

        Each is replaced atomically, but not both at once.

        Args:
            topic: Name of the topic.
            documents: The JSON objects by name.
            uid: Uid of the topic.
            revision: Revision of the metadata that the first two repeat, which only grows. An object store leaves a
                document of the same or a later revision, since it may apply the write of a deposed leader late.
            is_durable: If False, a power loss may remove or tear the documents until the next call.

        Raises:
            StorageFailed: If they may not be replaced now; on an object store also if this topic was deleted.
        """

    async def list_topics(self) -> list[TopicName]:
        """Return the topics with a folder that is not empty, by name; on an object store those not deleted."""

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Return those of the topics whose folder is not empty."""

    async def list_documents(self, topic: TopicName) -> list[str]:
        """Return the names of the topic's documents; none if it has no folder."""

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        """Return the content of one of the topic's documents, or raise NotFound."""

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        """Return the ids of all segments that left anything in the folder of a topic, or of others of its name.

        A folder of logs, a table or its retained link, a document of producers, and a record of removal count.
        """

    async def deleted_topics(self) -> frozenset[int]:
        """Return the uids of the topics that ``delete_topic`` deleted last."""

    async def create_claim(self, kind: ClaimKind, number: int, content: bytes) -> None:
        """Claim a number durably.

        Raises:
            AlreadyExists: If the number is taken; on an object store possibly by this very call.
            StorageFailed: If the number may or may not be taken now.
        """

    async def read_claims(self, kind: ClaimKind) -> Mapping[int, bytes]:
        """Return the taken numbers with the contents of their claims."""

    async def delete_claims(self, kind: ClaimKind, numbers: Collection[int]) -> None:
        """Delete claims; missing ones are ignored."""

    async def create_journal(self, name: str) -> LogWriter:
        """Create a journal of groups, which only grows, beside the topics, or raise AlreadyExists."""

    async def list_journals(self) -> list[str]:
        """Return the names of all journals of groups, sorted."""

    async def read_journal(self, name: str) -> bytes:
        """Return the written content of a journal, or raise NotFound."""

    async def delete_journals(self, names: Sequence[str]) -> None:
        """Delete journals; missing ones are ignored."""

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete everything of segments that the topic's document calls pruned, fences included.

        Nothing of them is deleted if the document belongs to another topic of that name. Retained links of tables that
        were deleted at least ``kept_s`` ago are also deleted.

        ``now_us`` is a lower bound of the time by the caller's clock. Links stay unless both it and the storage's clock
        show that they are old.

        Raises:
            StorageFailed: If it cannot be done now, including if the topic has no document.
            Corrupt: If the topic's document is damaged.
        """

    async def delete_topic(self, topic: TopicName, uid: int, *, revision: int) -> None:
        """Free the name of the topic at once, then delete its files.

        ``revision`` is that of metadata without the topic, see :meth:`put_documents`; files of a recreated topic stay.

        ``deleted_topics`` includes the uid afterwards.
        """

    async def sweep_deleted(self) -> None:
        """Delete what interrupted deletions of topics left behind."""


class DirectoryLogs(Protocol):
    """The records of a directory: log files that grow, and the fences of their segments.

    All methods raise StorageFailed as those of :class:`SegmentStore`.
    """

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> LogWriter:
        """Create a log file and write its preamble, or raise AlreadyExists."""

    async def put_log(self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes) -> None:
        """Create a log file with a preamble alone, or raise AlreadyExists.

        Its name appears only once its content is durable, and is durable itself on return.
        """

    async def sync_files(self, files: Sequence[SegmentFile]) -> None:
        """Fsync files of any writer, and their names. Missing files are ignored.

        On return, the content at the time of the call survives the death of every machine.
        """

    async def fence(self, topic: TopicName, uid: int, segment: int) -> None:
        """Mark durably and permanently that a segment's files will be trusted. A repeated call has no effect.

        Every ``is_fenced`` that begins after the return finds the fence. Conversely, a listing and reading of the files
        after the return sees everything that was written before an ``is_fenced`` that found no fence.
        """

    async def is_fenced(self, topic: TopicName, uid: int, segment: int) -> bool:
        """Whether a segment is fenced, pruned by its topic's document, or of a topic that was recreated.

        Raises:
            StorageFailed: If the answer is unknown, including if the topic has no document, for example after its
                deletion.
            Corrupt: If the topic's document is damaged.
        """


class DirectoryStore(SegmentStore, DirectoryLogs, BlobStore, Protocol):
    """The shared storage on a directory, with its records."""


class LogObjects(Protocol):
    """The records of an object store, in objects that are created whole and have their end in their name."""

    async def create_log_object(
        self,
        topic: TopicName,
        uid: int,
        segment: int,
        *,
        base_offset: int,
        end_offset: int,
        writer: str,
        content: Sequence[bytes | memoryview],
    ) -> SegmentFile:
        """Create the log object of offsets ``[base_offset, end_offset)``; a repeated call has no effect.

        Args:
            topic: Name of the topic.
            uid: Uid of the topic.
            segment: Id of the segment.
            base_offset: Offset of the first frame.
            end_offset: End of the last frame, exclusive.
            writer: Id of the broker, which creates these offsets once.
            content: The preamble and all frames.

        Raises:
            Corrupt: If the name is taken by other content.
            InvalidArgument: If there are no offsets, or the writer cannot be part of a name.
            StorageFailed: If it may or may not exist now.
        """
