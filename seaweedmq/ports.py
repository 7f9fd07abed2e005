"""What the brokers and clients need of the world, as protocols. Adapters: ``storage``, ``coordination``, ``rpc``.

Sleeping and waiting go through asyncio, whose clock the simulation replaces; wall time and randomness are passed in.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.calls import Call
from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.frames import Frames
from seaweedmq.model.groups import GroupReply, GroupRequest
from seaweedmq.model.publish import PublishReply, PublishRequest
from seaweedmq.model.replication import ReplicateReply, ReplicateRequest
from seaweedmq.model.subscribe import SubscribeReply, SubscribeRequest
from seaweedmq.model.topic import Topic, TopicName

R = TypeVar("R")

# --- the environment ------------------------------------------------------------------------------------------------


def loop_s() -> float:
    """The event loop's clock: good enough where no machine is ever suspended."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class Environment:
    """Clocks, randomness and size of one process. Monotonic time is the event loop's ``time()``."""

    wall_us: Callable[[], int]
    """Microseconds since 1970 UTC."""
    rng: random.Random = field(default_factory=random.Random)
    boot_s: Callable[[], float] = loop_s
    """Monotonic seconds that count the time for which the machine is suspended, too: leases end meanwhile. The loop's
    clock may stand still then."""
    resident_bytes: Callable[[], int] = lambda: 0
    """What the process takes now."""
    cpu_share: Callable[[], float] = lambda: 0.0
    """Of one core, used by the process since the last call."""


# --- storage --------------------------------------------------------------------------------------------------------


class LogWriter(Protocol):
    """One log file being appended to by its only writer. All methods raise StorageFailed."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    async def append(self, chunks: Sequence[bytes | memoryview], *, sync: bool = False) -> bool:
        """Write all chunks behind one another; on return they survive the death of the process.

        With ``sync`` they may be fsynced in the same turn of a thread; whether they were is returned. If not, ``sync``
        does it, or raises why it failed.
        """

    async def sync(self) -> None:
        """On return, everything appended before the call survives the death of the machine."""

    async def close(self) -> None: ...


class LogReader(Protocol):
    """Random access to one file, log or table."""

    async def read(self, position: int, length: int) -> Frames:
        """Up to ``length`` bytes; fewer at the end of the file. NotFound if the file was deleted."""

    async def close(self) -> None: ...


class BlockingInput(Protocol):
    """A finished file as Arrow reads it, in a thread: blocking, one call at a time. Its end tells its size.

    A native handle of Arrow (``pyarrow.OSFile``, a memory map, a buffer) is one, which it reads without Python in
    between; so is any Python object with these methods. Errors are OSErrors; ENOENT or ESTALE: the file was deleted.
    """

    def read(self, nbytes: int = -1, /) -> bytes:
        """Up to so many bytes from the position on; all that is left if negative."""

    def seek(self, position: int, whence: int = 0, /) -> int: ...

    def tell(self) -> int: ...

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class StorageSpace:
    """Size of a storage."""

    free_bytes: int
    """Bytes that may still be written."""
    total_bytes: int


class SegmentStore(Protocol):
    """Shared storage. Paths and formats are those of ``codec``; nothing here knows brokers or metadata."""

    @property
    def uri(self) -> str:
        """Location of the storage, for messages and for commands."""

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on.

        While the root has none, or that of another cluster, every method but those of markers raises StorageFailed,
        changes nothing and returns no listing; so does an append that was under way.
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
            Corrupt, Unsupported: If the marker cannot be read.
        """

    async def create_marker(self, marker: StorageMarker) -> StorageMarker:
        """Create ``cluster.json`` durably unless the root has one; return the marker that the root has afterwards.

        Raises:
            StorageFailed: If it may or may not be there now.
            Corrupt, Unsupported: If the root has one that cannot be read.
        """

    async def replace_marker(self, marker: StorageMarker) -> None:
        """Replace ``cluster.json``, atomically and durably.

        Raises:
            StorageFailed: If the root has none, or that of another cluster.
            Corrupt, Unsupported: If the root has one that cannot be read.
        """

    async def has_topics(self) -> bool:
        """Whether the storage holds the folder of any topic. Needs no :meth:`bind`. StorageFailed."""

    async def check(self) -> None:
        """Raise StorageFailed unless the root exists and can be written."""

    async def now_us(self) -> int:
        """The clock that dates files, microseconds since 1970 UTC: it may be another machine's. Takes no space.
        StorageFailed."""

    async def space(self) -> "StorageSpace | None":
        """Return how much may still be written; None if the storage does not report that. StorageFailed."""

    async def create_log(
        self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes
    ) -> LogWriter:
        """Create a log file that did not exist (AlreadyExists) and write its preamble."""

    async def put_log(self, topic: TopicName, segment: int, base_offset: int, writer: str, preamble: bytes) -> None:
        """Create a log file of a preamble alone (AlreadyExists). Its name appears only once its content is durable, and
        is durable itself on return. StorageFailed."""

    async def list_files(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """Log and table files, by (base_offset, kind, writer). Foreign names are reported once and left alone."""

    async def list_topic_files(self, topic: TopicName) -> list[SegmentFile]:
        """As ``list_files``, of all segments of a topic, by segment: with many of them one listing is less work."""

    async def open(self, file: SegmentFile) -> LogReader: ...

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        """A table, for a thread to read and then close. NotFound if it was deleted, StorageFailed."""

    async def sync_files(self, files: Sequence[SegmentFile]) -> None:
        """Fsync files, whoever wrote them, and their names: on return what they held at the call survives the death of
        every machine. Missing files are no error. StorageFailed."""

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        """Delete files, so that nobody finds them any more; missing ones are no error. A table that has a second name,
        for those who found it before, keeps that until ``sweep``."""

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        """Record durably that retention removes the records of some segments below an offset (segment -> offset).

        The record outlives the files and the setting. StorageFailed.
        """

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return what ``record_removed`` recorded: segment -> offset, the highest one of each. StorageFailed."""

    async def fence(self, topic: TopicName, uid: int, segment: int) -> None:
        """Mark a segment as one whose files are going to be believed, durably and for good; again is no error.

        Every ``is_fenced`` that begins after the return finds it, and what was written before an ``is_fenced`` that
        does not find it is seen by whoever lists and reads the files after the return. StorageFailed.
        """

    async def is_fenced(self, topic: TopicName, uid: int, segment: int) -> bool:
        """Whether a segment was fenced, is pruned by its topic's document, or its topic gave way to another one of the
        same name.

        Raises:
            StorageFailed: it can not be told; also while the topic has no document, as when it was deleted.
            Corrupt: the topic's document is damaged.
        """

    async def put_documents(self, topic: TopicName, documents: Mapping[str, bytes], *, is_durable: bool = True) -> None:
        """Replace ``topic.json``, ``lineage.json``, or both, by name; each atomically, but not both at the same moment.

        Args:
            is_durable: else everybody sees them, but power loss may take them, or tear them, until they are put again.
        """

    async def list_topics(self) -> list[TopicName]:
        """Return the topics that have a folder with anything in it, by name. StorageFailed."""

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Return those of the topics whose folder holds anything. StorageFailed."""

    async def list_documents(self, topic: TopicName) -> list[str]:
        """Return the names of the topic's documents; none if it has no folder. StorageFailed."""

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        """Return the content of one of the topic's documents. NotFound, StorageFailed."""

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        """Return the ids of all segments that left anything in the folder of a topic, or of others of its name.

        A folder of logs, a table under either of its names, a document of producers and a record of removal count.
        StorageFailed.
        """

    async def deleted_topics(self) -> frozenset[int]:
        """Return the uids of the topics that were deleted last, by ``delete_topic``. StorageFailed."""

    async def create_claim(self, kind: ClaimKind, number: int, content: bytes) -> None:
        """Take a number durably. AlreadyExists: it is taken. StorageFailed: it may or may not be taken now."""

    async def read_claims(self, kind: ClaimKind) -> Mapping[int, bytes]:
        """Return the numbers that are taken, with the contents of the claims. StorageFailed."""

    async def delete_claims(self, kind: ClaimKind, numbers: Collection[int]) -> None:
        """Delete claims, if they are there. StorageFailed."""

    async def create_journal(self, name: str) -> LogWriter:
        """Create a journal of groups, an append-only file beside the topics. AlreadyExists, StorageFailed."""

    async def list_journals(self) -> list[str]:
        """Return the names of all journals of groups, sorted. StorageFailed."""

    async def read_journal(self, name: str) -> bytes:
        """Return the content of a journal, as far as it is written. NotFound, StorageFailed."""

    async def delete_journals(self, names: Sequence[str]) -> None:
        """Delete journals, and ignore missing ones. StorageFailed."""

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete whatever there is of segments that the topic's document calls pruned, fences included; nothing if the
        document is of another topic of that name. Also second names of tables that were deleted ``kept_s`` ago.

        Args:
            now_us: time that it is at least by the caller's clock. What is not old by it and by the storage's stays.

        Raises:
            StorageFailed: it can not be done now; also while the topic has no document.
            Corrupt: the topic's document is damaged.
        """

    async def delete_topic(self, topic: TopicName, uid: int) -> None:
        """Move the topic's folders out of the way at once, so that the name is free, and delete them.

        ``deleted_topics`` has the uid afterwards.
        """

    async def sweep_deleted(self) -> None:
        """Delete the folders that interrupted deletions of topics moved out of the way. StorageFailed."""


class TableConverter(Protocol):
    """Turns sealed log files into Parquet, and small tables into large ones, off the event loop."""

    async def convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> list[SegmentFile]:
        """Write the Parquet files that hold the logs' records below ``end_offset``; return them. Idempotent."""

    async def reconcile(self, topic: Topic) -> bool:
        """Publish for other programs which tables of the topic count, after some went; a conversion does so by itself.

        Returns False if that can not be done now, and says why in the log of this process: nothing depends on it."""

    async def compact(
        self, topic: Topic, tables: Sequence[SegmentFile], *, low_watermark: int = 0
    ) -> list[SegmentFile]:
        """Put one table in the place of some of a segment that follow one another; return what was made.

        Args:
            topic: Their topic.
            tables: By offset. One is enough if the low watermark lies in it.
            low_watermark: Offset below which records are deleted; the new table leaves them out.

        Raises:
            Unavailable, NotFound: another process was faster. Corrupt: one of them is damaged; nothing was replaced.
        """

    async def close(self) -> None: ...


# --- coordination ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value and etcd revisions."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0
    """With which the key ends; 0: it stays."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds if the key's creation or modification revision equals; 0 means the key does not exist.

    ``lease`` holds if the key is there and ends with that lease; 0: it has none, or is not there.
    """

    key: str
    create_revision: int | None = None
    mod_revision: int | None = None
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
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

    Every method raises Unavailable when the store cannot be reached within its deadline, or does not answer as it
    should; a transaction that raised it may or may not have happened. Every method raises ResourceExhausted when the
    store is at a limit, its quota of space for one: nothing happened then. No refusal may end a broker.
    """

    async def get(self, key: str) -> Entry | None: ...

    async def list(self, prefix: str) -> Snapshot: ...

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """Do all of ``then`` if all compares hold; return the new revision, or None if one does not hold."""

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        """Changes at and after ``from_revision``, without end.

        Raises:
            OutOfRange: compacted, or above the next revision, as after the store was restored: list again.
            Unavailable: lost.
        """

    async def grant_lease(self, ttl_s: float) -> int: ...

    async def renew_lease(self, lease: int) -> float:
        """Seconds the lease now lasts; 0 if it is gone."""

    async def revoke_lease(self, lease: int) -> None: ...

    async def close(self) -> None: ...


# --- brokers as seen by clients and by each other -------------------------------------------------------------------


class LeaderApi(Protocol):
    """What a broker answers for another one that passes a call on to it: by itself, or not at all."""

    async def call(self, request: Call[R]) -> R:
        """Answer a unary call: see ``model.calls``."""

    def join_group(self, requests: AsyncIterator[GroupRequest]) -> AsyncIterator[GroupReply]:
        """A member's stream to the coordinator: see ``model.groups``."""


class BrokerApi(LeaderApi, Protocol):
    """A broker, local or remote. Errors are those of ``seaweedmq.errors`` on both sides.

    What another broker has to answer, the leader or the one that is to be drained, is passed on to it.
    """

    @property
    def forwarded(self) -> LeaderApi:
        """The same broker, for calls that another one passes on: it answers them itself or refuses with Unavailable,
        so that brokers that disagree about the leader do not pass a call to and fro."""

    def publish(self, requests: AsyncIterator[PublishRequest]) -> AsyncIterator[PublishReply]:
        """See ``model.publish``."""

    def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        """See ``model.subscribe``."""

    def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        """Primary to follower: see ``model.replication``."""

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
        """To the leader, until the stream ends, or StaleMetadata when the called broker does not lead."""


class Dialer(Protocol):
    """Opens and keeps connections to brokers by address."""

    def dial(self, address: str) -> BrokerApi: ...

    def renew(self, address: str) -> None:
        """Another broker has the address by now: connect anew at the next call."""

    async def close(self) -> None: ...
