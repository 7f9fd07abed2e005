"""Journal of native groups: storage has each of the leader's writes to their etcd keys before its acknowledgment.

The commits of groups must survive the loss of etcd. A leader begins a file of its own with all groups as etcd has them
after its election, then appends the changes of its transactions. Files sort by generation of the cluster and creation
revision of the lock. So lines that a deposed leader still appends lose against its successor's file, whose snapshot has
all that the deposed leader could write to etcd. An older file is deleted once a newer snapshot is durable; commits do
not wait for that, because storage that deletes nothing for a while may still take writes.

Waiting lines of all groups are one write. It survives the death of the process; a flush follows within a second, as for
replicated records. If the storage fails, commits wait, and continue in a new file with a new snapshot.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from seaweedmq.codec.paths import journal_name
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.cluster import identity_from_json
from seaweedmq.codec.state.group_journal import JournalChange, JournalFrame, JournalKind, encode_journal_frame
from seaweedmq.coordination.election import Election
from seaweedmq.errors import AlreadyExists, SeaweedMQError, StaleMetadata
from seaweedmq.ports import Delete, LogWriter, MetaStore, Put, SegmentStore
from seaweedmq.runtime.log_once import OnceLogger
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 1.0
ROLL_BYTES_MIN = 16 * 1024 * 1024
ROLL_SNAPSHOTS = 4
"""Size at which a file is replaced: its lines take this many times its snapshot, and at least the minimum."""
FILES_MAX = 8
"""Files that one leadership begins before its replaced and failed ones must be deleted."""
PART_CHANGES = 200
"""Keys in one frame of a snapshot."""
RETRY_S_FIRST, RETRY_S_MAX = 0.1, 2.0
_OVER = "the leader changed: the group continues at the new one"


@dataclass(slots=True)
class _Open:
    """The journal file that takes lines."""

    name: str
    writer: LogWriter
    roll_bytes: int
    is_dirty: bool = False
    """Whether it has lines that are not flushed."""


@dataclass(slots=True, eq=False)
class _Line:
    """A frame that is not written yet."""

    frame: bytes
    written: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class GroupJournal:
    """The journal of one leadership, written by ``run``."""

    def __init__(self, *, meta: MetaStore, store: SegmentStore, election: Election, rng: random.Random) -> None:
        self._meta = meta
        self._store = store
        self._election = election
        self._pause_s = backoff(rng, RETRY_S_FIRST, RETRY_S_MAX)
        self._waiting: list[_Line] = []
        self._work = asyncio.Event()
        self._is_over = False
        self._files = 0
        """Number of files begun so far."""
        self._left: list[str] = []
        """Names of begun files that may still exist."""
        self._newest: str | None = None
        """Name of the file with the newest durable snapshot."""
        self._failures_log = OnceLogger(log)

    async def record(self, revision: int, changes: Sequence[Put | Delete]) -> None:
        """Append the changes of a transaction at a revision of etcd; return once they survive a crash of this process.

        Raises StaleMetadata if this leadership ended meanwhile.
        """
        if self._is_over:
            raise StaleMetadata(_OVER)
        frame = JournalFrame(
            kind=JournalKind.CHANGES,
            revision=revision,
            changes=tuple(
                JournalChange(change.key, change.value)
                if isinstance(change, Put)
                else JournalChange(change.key, None, is_prefix=change.prefix)
                for change in changes
            ),
        )
        line = _Line(encode_journal_frame(frame))
        self._waiting.append(line)
        self._work.set()
        await line.written

    async def run(self) -> None:
        """Write lines until cancelled."""
        attempt = 0
        try:
            while True:
                try:
                    journal = await self._begin()
                    attempt = 0
                    self._failures_log.over("journal of groups")
                    await self._write(journal)
                except SeaweedMQError as error:
                    attempt += 1
                    self._failures_log.add("journal of groups", error)
                    await asyncio.sleep(self._pause_s(attempt))
        finally:
            self._is_over = True
            waiting, self._waiting = self._waiting, []
            for line in waiting:
                if not line.written.done():
                    line.written.set_exception(StaleMetadata(_OVER))

    async def _begin(self) -> _Open:
        """Begin a file with a snapshot. Raises StaleMetadata if this broker does not lead."""
        revision = self._election.revision
        if revision is None:
            raise StaleMetadata(_OVER)
        cluster = await self._meta.get(keys.CLUSTER)
        generation = 0 if cluster is None else identity_from_json(cluster.value).generation
        if len(self._left) >= FILES_MAX:
            await self._store.delete_journals([name for name in self._left if name != self._newest])
            self._left = [name for name in self._left if name == self._newest]
        writer, name = await self._create(generation, revision)
        try:
            snapshot = await self._meta.list(keys.GROUPS_ROOT)
            changes = [JournalChange(entry.key, entry.value) for entry in snapshot.entries]
            ends = range(PART_CHANGES, len(changes), PART_CHANGES)
            for end in ends:
                part = tuple(changes[end - PART_CHANGES : end])
                await writer.append([_frame(JournalKind.PART, snapshot.revision, part)])
            rest = tuple(changes[ends[-1] if ends else 0 :])
            await writer.append([_frame(JournalKind.SNAPSHOT, snapshot.revision, rest)])
            await writer.sync()
        except BaseException:
            await writer.close()
            raise
        self._newest = name
        return _Open(name, writer, max(ROLL_BYTES_MIN, (1 + ROLL_SNAPSHOTS) * writer.size_bytes))

    async def _create(self, generation: int, revision: int) -> tuple[LogWriter, str]:
        while True:
            name = journal_name(generation, revision, self._files)
            self._files += 1
            self._left.append(name)
            try:
                return await self._store.create_journal(name), name
            except AlreadyExists:
                continue  # left by a failed attempt

    async def _delete_older(self, newest: str) -> None:
        """Delete the files before one whose snapshot is durable, with retries without end."""

        def log_failure(_: int, error: BaseException) -> None:
            self._failures_log.add("old journals of groups", error)

        async for attempt in retrying(self._pause_s, on=SeaweedMQError, on_retry=log_failure):
            with attempt:
                older = [found for found in await self._store.list_journals() if found < newest]
                await self._store.delete_journals(older)
        self._failures_log.over("old journals of groups")
        self._left = [name for name in self._left if name >= newest]

    async def _write(self, journal: _Open) -> None:
        """Append lines until the file is full. On StorageFailed, unanswered lines wait for the next file."""
        flushing = asyncio.create_task(self._flush(journal), name="flush the journal of groups")
        flushing.add_done_callback(lambda _: self._work.set())
        deleting = asyncio.create_task(self._delete_older(journal.name), name="delete old journals of groups")
        try:
            while journal.writer.size_bytes < journal.roll_bytes:
                await self._wait_for_lines(flushing)
                # Include lines of cancelled callers: their changes are in etcd.
                lines, self._waiting = self._waiting, []
                try:
                    await journal.writer.append([line.frame for line in lines])
                except BaseException:
                    self._waiting = lines + self._waiting
                    raise
                journal.is_dirty = True
                for line in lines:
                    if not line.written.done():
                        line.written.set_result(None)
        finally:
            for task in (flushing, deleting):
                task.cancel()
            await asyncio.wait({flushing, deleting})
            await journal.writer.close()

    async def _wait_for_lines(self, flushing: "asyncio.Task[None]") -> None:
        """Return once lines wait; raise StorageFailed if a flush failed."""
        while not self._waiting and not flushing.done():
            self._work.clear()
            await self._work.wait()
        if flushing.done():
            flushing.result()

    async def _flush(self, journal: _Open) -> None:
        """Flush written lines once an interval; raise StorageFailed if that fails."""
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            if journal.is_dirty:
                journal.is_dirty = False
                await journal.writer.sync()


def _frame(kind: JournalKind, revision: int, changes: tuple[JournalChange, ...]) -> bytes:
    return encode_journal_frame(JournalFrame(kind=kind, revision=revision, changes=changes))
