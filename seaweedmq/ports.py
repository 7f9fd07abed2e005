"""The interfaces of brokers and clients to the outside. Adapters: ``storage``, ``coordination``, ``rpc``.

Sleeping and waiting use asyncio, whose clock the simulation replaces; wall time and randomness are passed in.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.calls import Call
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.groups import GroupReply, GroupRequest
from seaweedmq.model.messages.publish import PublishReply, PublishRequest
from seaweedmq.model.messages.replication import ReplicateReply, ReplicateRequest
from seaweedmq.model.messages.subscribe import SubscribeReply, SubscribeRequest
from seaweedmq.model.topic import Topic, TopicName

R = TypeVar("R")

# --- the environment ------------------------------------------------------------------------------------------------


def loop_s() -> float:
    """Return the event loop's clock, which suffices where no machine is ever suspended."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class Environment:
    """The clocks, the randomness and the size of one process. Monotonic time is the event loop's ``time()``."""

    wall_us: Callable[[], int]
    """Wall clock, microseconds since 1970 UTC."""
    rng: random.Random = field(default_factory=random.Random)
    boot_s: Callable[[], float] = loop_s
    """Monotonic seconds that include suspensions of the machine, during which leases end. The loop's clock may stop
    then.
    """
    resident_bytes: Callable[[], int] = lambda: 0
    """Resident memory of the process, bytes."""
    cpu_share: Callable[[], float] = lambda: 0.0
    """Share of one core that the process used since the last call."""


# --- storage --------------------------------------------------------------------------------------------------------


class LogWriter(Protocol):
    """A log file with its only writer. All methods raise StorageFailed."""

    @property
    def path(self) -> str:
        """Path of the file in the storage."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes appended so far, including the preamble."""
        ...

    async def append(self, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        """Write all chunks one after another; on return they survive the death of the process.

        Args:
            chunks: The bytes to write.
            sync: Whether to fsync in the same step of a thread if possible.

        Returns:
            Whether the chunks were fsynced. If not, :meth:`sync` does it, or raises the reason of the failure.
        """

    async def sync(self) -> None:
        """Fsync: on return, everything appended before the call survives the death of the machine."""

    async def close(self) -> None:
        """Close the file."""
        ...


class LogReader(Protocol):
    """Random access to one file, log or table."""

    async def read(self, position: int, length: int) -> Frames:
        """Return up to ``length`` bytes, fewer at the end of the file.

        Raises:
            NotFound: If the file was deleted.
        """

    async def close(self) -> None:
        """Close the file."""
        ...


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
        ...

    def tell(self) -> int:
        """Return the position."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        ...


@dataclass(frozen=True, slots=True)
class StorageSpace:
    """The size of a storage."""

    free_bytes: int
    """Bytes that may still be written."""
    total_bytes: int


class SegmentStore(Protocol):
    """The shared storage. ``codec`` defines its paths and formats; the store knows no brokers or metadata.

    Async methods raise StorageFailed if the storage fails or rejects the operation.
    """

    @property
    def uri(self) -> str:
        """Location of the storage, for messages and for commands."""

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on.

        While the root has no marker, or that of another cluster, every method except those for markers raises
        StorageFailed,
        changes nothing and returns no listing. So does an append that is in progress.
        """

    async def verify_root(self) -> None:
        """Return if the root holds the marker of the bound cluster, or no cluster is bound.

        Raises:
            StorageFailed: If the root holds no marker, or that of another cluster.
        """
        ...

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
            Corrupt: If the root has a marker that cannot be read.
            Unsupported: If the root has a marker of another format version.
        """

    async def replace_marker(self, marker: StorageMarker) -> None:
        """Replace ``cluster.json``, atomically and durably.

        Raises:
            StorageFailed: If the root has none, or that of another cluster.
            Corrupt: If the root has a marker that cannot be read.
            Unsupported: If the root has a marker of another format version.
        """

    async def has_topics(self) -> bool:
        """Whether the storage holds the folder of any topic. Needs no :meth:`bind`."""

    async def check(self) -> None:
        """Raise StorageFailed unless the root exists and can be written."""

    async def now_us(self) -> int:
        """Return the time of the clock that dates files, microseconds since 1970 UTC.

        It may be another machine's clock. The call takes no space in the storage.
        """

    async def space(self) -> "StorageSpace | None":
        """Return the bytes that may still be written; None if the storage does not report them."""

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> LogWriter:
        """Create a log file and write its preamble.

        Raises:
            AlreadyExists: If the file exists.
        """

    async def put_log(self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes) -> None:
        """Create a log file with a preamble alone.

        Its name appears only once its content is durable, and is durable itself on return.

        Raises:
            AlreadyExists: If the file exists.
        """

    async def list_files(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """Return log and table files by (base_offset, kind, writer). Foreign names are logged once and ignored."""

    async def list_topic_files(self, topic: TopicName) -> list[SegmentFile]:
        """Return ``list_files`` of all segments of a topic, by segment: one listing is cheaper than many."""

    async def open(self, file: SegmentFile) -> LogReader:
        """Open a file for reading."""
        ...

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        """Open a table, for a thread to read and then close.

        Raises:
            NotFound: If the table was deleted.
        """

    async def sync_files(self, files: Sequence[SegmentFile]) -> None:
        """Fsync files of any writer, and their names. Missing files are ignored.

        On return, the content at the time of the call survives the death of every machine.
        """

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        """Delete files, so that listings no longer show them; missing ones are ignored.

        A table's retained link, for readers that found the table before, stays until ``sweep``.
        """

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        """Record durably that retention removes the records of some segments below an offset, by segment id.

        The record outlives the files and the setting.
        """

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return the highest offset of each segment that ``record_removed`` recorded, by segment id."""

    async def fence(self, topic: TopicName, uid: int, segment: int) -> None:
        """Mark durably and permanently that a segment's files will be trusted. A repeated call has no effect.

        Every ``is_fenced`` that begins after the return finds the fence. Conversely, a listing and reading of the files
        after
        the return sees everything that was written before an ``is_fenced`` that found no fence.
        """

    async def is_fenced(self, topic: TopicName, uid: int, segment: int) -> bool:
        """Whether a segment is fenced, pruned by its topic's document, or of a topic that was recreated.

        Raises:
            StorageFailed: If the answer is unknown, including if the topic has no document, for example after its
                deletion.
            Corrupt: If the topic's document is damaged.
        """

    async def put_documents(self, topic: TopicName, documents: Mapping[str, bytes], *, is_durable: bool = True) -> None:
        """Replace ``topic.json``, ``lineage.json``, or both, by name.

        Each is replaced atomically, but not both at once.

        Args:
            topic: The topic.
            documents: Content by name.
            is_durable: Whether the documents are durable on return. Otherwise a power loss may remove or tear them
                until the next call.
        """

    async def list_topics(self) -> list[TopicName]:
        """Return the topics with a folder that is not empty, by name."""

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Return those of the topics whose folder is not empty."""

    async def list_documents(self, topic: TopicName) -> list[str]:
        """Return the names of the topic's documents; none if it has no folder."""

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        """Return the content of one of the topic's documents.

        Raises:
            NotFound: If it does not exist.
        """

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        """Return the ids of all segments that left anything in the folder of a topic, or of others of its name.

        A folder of logs, a table or its retained link, a document of producers, and a record of removal count.
        """

    async def deleted_topics(self) -> frozenset[int]:
        """Return the uids of the topics that ``delete_topic`` deleted last."""

    async def create_claim(self, kind: ClaimKind, number: int, content: bytes) -> None:
        """Claim a number durably.

        Raises:
            AlreadyExists: If the number is taken.
            StorageFailed: If the number may or may not be taken now.
        """

    async def read_claims(self, kind: ClaimKind) -> Mapping[int, bytes]:
        """Return the taken numbers with the contents of their claims."""

    async def delete_claims(self, kind: ClaimKind, numbers: Collection[int]) -> None:
        """Delete claims; missing ones are ignored."""

    async def create_journal(self, name: str) -> LogWriter:
        """Create a journal of groups, an append-only file beside the topics.

        Raises:
            AlreadyExists: If the journal exists.
        """

    async def list_journals(self) -> list[str]:
        """Return the names of all journals of groups, sorted."""

    async def read_journal(self, name: str) -> bytes:
        """Return the written content of a journal.

        Raises:
            NotFound: If it does not exist.
        """

    async def delete_journals(self, names: Sequence[str]) -> None:
        """Delete journals; missing ones are ignored."""

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete everything of segments that the topic's document calls pruned, fences included.

        Nothing of them is deleted if the document belongs to another topic of that name. Retained links of tables that
        were
        deleted at least ``kept_s`` ago are also deleted.

        Args:
            topic: The topic.
            uid: Its unique id.
            kept_s: Time for which retained links stay.
            now_us: Lower bound of the time by the caller's clock. Links stay unless both it and the storage's clock
                show that they are old.

        Raises:
            StorageFailed: If it cannot be done now, including if the topic has no document.
            Corrupt: If the topic's document is damaged.
        """

    async def delete_topic(self, topic: TopicName, uid: int) -> None:
        """Move the topic's folders away at once, so that the name is free, and delete them.

        ``deleted_topics`` includes the uid afterwards.
        """

    async def sweep_deleted(self) -> None:
        """Delete folders that interrupted deletions of topics left behind."""


class TableConverter(Protocol):
    """Conversion of sealed log files to Parquet, and of small tables to large ones, off the event loop."""

    async def convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> list[SegmentFile]:
        """Write the Parquet files that hold the logs' records below ``end_offset``, and return them. Idempotent."""

    async def reconcile(self, topic: Topic) -> bool:
        """Publish the topic's live tables for other programs after a deletion; a conversion does so by itself.

        Returns:
            False if that is impossible now, with the reason in the log of this process. Nothing depends on it.
        """

    async def compact(
        self, topic: Topic, tables: Sequence[SegmentFile], *, low_watermark: int = 0
    ) -> list[SegmentFile]:
        """Replace consecutive tables of a segment by one, and return the new tables.

        Args:
            topic: The topic of the tables.
            tables: The tables by offset. One is enough if the low watermark lies in it.
            low_watermark: Offset below which records are deleted; the new table leaves them out.

        Raises:
            Unavailable: If another process was faster.
            NotFound: If another process was faster.
            Corrupt: If a table is damaged; nothing was replaced.
        """

    async def close(self) -> None:
        """Stop converting and release resources."""
        ...


# --- coordination ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value and etcd revisions."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0
    """Lease that the key ends with; 0 if it stays."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition on a key's creation or modification revision, where 0 means that the key does not exist.

    ``lease`` requires that the key exists and ends with that lease; 0 requires that it has none, or does not exist.
    """

    key: str
    create_revision: int | None = None
    mod_revision: int | None = None
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """A write of a key, with a lease that it ends with, or 0."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion of a key, or of all keys that begin with it if ``prefix``."""

    key: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All entries below a prefix at one revision."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Puts and deletions of one or more revisions, in order; ``revision`` is the last."""

    revision: int
    puts: tuple[Entry, ...]
    deletes: tuple[str, ...]


class MetaStore(Protocol):
    """A strongly consistent key-value store with leases and watches: etcd.

    Every method raises Unavailable if the store cannot be reached within its deadline, or does not answer properly. A
    transaction that raised it may or may not have happened. Every method raises ResourceExhausted if the store is at a
    limit, such as its space quota: nothing happened then. No rejection may end a broker.
    """

    async def get(self, key: str) -> Entry | None:
        """Return a key's entry, None if the key does not exist."""
        ...

    async def list(self, prefix: str) -> Snapshot:
        """Return all entries below a prefix at one revision."""
        ...

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """Do all of ``then`` if all compares hold; return the new revision, or None if one does not hold."""

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        """Yield the changes at and after ``from_revision``, without end.

        Raises:
            OutOfRange: If the revision is compacted, or above the next one, as after a restore of the store: list
                again.
            Unavailable: If the watch is lost.
        """

    async def grant_lease(self, ttl_s: float) -> int:
        """Create a lease that lasts ``ttl_s`` seconds without renewal, and return its id."""
        ...

    async def renew_lease(self, lease: int) -> float:
        """Renew a lease, and return the seconds that it now lasts; 0 if it has ended."""

    async def revoke_lease(self, lease: int) -> None:
        """End a lease, and delete its keys."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


# --- brokers as seen by clients and by each other -------------------------------------------------------------------


class LeaderApi(Protocol):
    """The calls that a broker answers for another one that forwards them: by itself, or not at all."""

    async def call(self, request: Call[R]) -> R:
        """Answer a unary call: see ``model.calls``."""

    def join_group(self, requests: AsyncIterator[GroupRequest]) -> AsyncIterator[GroupReply]:
        """Connect a member's stream to the coordinator: see ``model.groups``."""


class BrokerApi(LeaderApi, Protocol):
    """A broker, local or remote. Errors are those of ``seaweedmq.errors`` on both sides.

    It forwards calls that another broker has to answer: the leader, or the broker that is to be drained.
    """

    @property
    def forwarded(self) -> LeaderApi:
        """The same broker for forwarded calls, which it answers itself or rejects with Unavailable.

        So brokers that disagree about the leader do not forward a call back and forth.
        """

    def publish(self, requests: AsyncIterator[PublishRequest]) -> AsyncIterator[PublishReply]:
        """Publish frames: see ``model.publish``."""

    def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        """Subscribe to segments: see ``model.subscribe``."""

    def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        """Replicate from a primary to this follower: see ``model.replication``."""

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
        """Report loads to the leader until the stream ends.

        Raises:
            StaleMetadata: If the called broker does not lead.
        """


class Dialer(Protocol):
    """A pool of connections to brokers, by address."""

    def dial(self, address: str) -> BrokerApi:
        """Return the broker at ``address``. Nothing is sent yet: an unreachable broker fails at the first call.

        Raises:
            InvalidArgument: If ``address`` is not ``host:port``.
            Closed: If the dialer was closed.
        """
        ...

    def renew(self, address: str) -> None:
        """Reconnect at the next call, since another broker has the address by now."""

    async def close(self) -> None:
        """Close all connections."""
        ...
