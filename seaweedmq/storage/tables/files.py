"""Conversion of log files to tables, and how a mounted directory publishes them. Blocking; for the child process.

Tables of a segment must not overlap, except while a merge of tables is committed (``compact``): plain Parquet readers
would see records twice. A lock prevents two processes of one machine from doing the same work. If locks do not reach
other machines (NFS with ``local_lock``, several mounts), claims keep their tables from overlapping: see ``_claimed``.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

from seaweedmq.codec.paths import LOCK_NAME, kept_path, log_dir, table_dir, table_path
from seaweedmq.core.files.compaction import TableMerge
from seaweedmq.core.files.cover import check_no_overlap
from seaweedmq.errors import NotFound, StorageFailed, Unavailable
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace, segment_file
from seaweedmq.storage.faults import failing
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.place import Place, RangeReader
from seaweedmq.storage.store.retained_tables import retain
from seaweedmq.storage.tables.convert import Job, Read, TableTarget, convert_logs
from seaweedmq.storage.tables.object_target import ObjectTarget

CLAIM_PREFIX = ".claim-"
"""Prefix of claims in the folder of the tables: ``.claim-<segment>-<base>-<end>-<unique>``.

A claim is in that folder because the change refreshes a network file system's cache of it before the tables are listed.
"""
CLAIM_AGE_S_MAX = 600.0
"""Age in seconds at which a claim expires: a converter publishes within milliseconds of its claim, or is killed."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


class MergeTarget(Protocol):
    """A target of merged tables, which may be written in one process and published in another."""

    def create_merged(self, merge: TableMerge) -> IO[bytes]:
        """Create an empty sink, open for reading and writing at its end."""

    def finish(self, sink: IO[bytes]) -> str:
        """Make a written sink durable, close it, and return its path in the storage."""

    def discard(self, sink: IO[bytes]) -> None:
        """Delete an unpublished sink."""

    def check_free(self, rewrite: TableMerge) -> None:
        """Raise Unavailable if a table of the name of a rewritten one was just deleted."""

    def publish_merged(self, made: str, merge: TableMerge) -> SegmentFile:
        """Publish a file of :meth:`finish`, which is deleted if that fails."""


def convert_files(
    place: Place, topic: Topic, logs: list[SegmentFile], end_offset: int | None, row_group_bytes: int
) -> list[SegmentFile]:
    """Convert logs of one segment by ``convert.convert_logs``; raises Unavailable if another process does or did so."""
    if not logs:
        return []
    place = place.of(topic)
    name, segment = logs[0].topic, logs[0].segment
    with (
        failing("convert log files of", place.where(log_dir(name, segment))),
        _converting(place, topic, logs) as target,
        _log_reader(place) as read,
    ):
        listed = place.segment_files(name, segment)
        job = Job(topic=topic, logs=logs, listed=listed, end_offset=end_offset, row_group_bytes=row_group_bytes)
        return convert_logs(job, read, target)


@contextlib.contextmanager
def _converting(place: Place, topic: Topic, logs: Sequence[SegmentFile]) -> "Iterator[TableTarget]":
    """Yield the target of a conversion, which on a directory no other process of this machine does meanwhile."""
    segment = logs[0].segment
    if isinstance(place, ObjectPlace):
        yield ObjectTarget(place, topic, segment, logs)
        return
    assert isinstance(place, DirectoryPlace), f"{place} is of an unknown kind"
    with _alone(place, topic.name, segment), _held_open(place, logs[0].path) as log_file:
        yield DirectoryTarget(place, topic.name, segment, log_file=log_file)


def open_target(place: Place, topic: Topic, segment: int) -> MergeTarget:
    """Return the target of merges of a segment's tables; raises NotFound if the topic was deleted."""
    if isinstance(place, ObjectPlace):
        return ObjectTarget(place, topic, segment)
    assert isinstance(place, DirectoryPlace), f"{place} is of an unknown kind"
    return DirectoryTarget(place, topic.name, segment)


@contextlib.contextmanager
def _alone(place: DirectoryPlace, topic: TopicName, segment: int) -> Iterator[None]:
    """Lock a segment's conversion for the length of a block.

    The worker of a broker that lost the segment may still be converting it, and tables must not overlap. The lock ends
    with the process in any case. Its file is deleted by the holder, or with the last log.
    """
    path = place.path(f"{log_dir(topic, segment)}/{LOCK_NAME}")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        raise NotFound(f"{path.parent} is missing: the topic was deleted, or the storage is not mounted") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"{topic}#{segment} is being converted by another process: retry later") from None
        except OSError as e:
            # A file system without locks: claims must suffice.
            if e.errno not in _NO_LOCKS:
                raise
        if not _is_at(path, fd):
            raise Unavailable(f"{topic}#{segment} was just converted by another process: retry later")
        try:
            yield
        finally:
            if _is_at(path, fd):
                path.unlink(missing_ok=True)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _held_open(place: DirectoryPlace, path: str) -> "Iterator[tuple[Path, int]]":
    """Hold a log open, to detect its replacement."""
    try:
        fd = os.open(place.path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _gone(path) from None
    try:
        yield place.path(path), fd
    finally:
        os.close(fd)


def _gone(path: str | Path) -> NotFound:
    return NotFound(f"{path} is missing: its topic was deleted, or retention removed it")


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


class DirectoryTarget:
    """A ``TableTarget`` and ``MergeTarget`` in the table folder of a topic, for one segment."""

    def __init__(
        self, place: DirectoryPlace, topic: TopicName, segment: int, *, log_file: tuple[Path, int] | None = None
    ) -> None:
        """Open the table folder; an open file ``log_file`` must still exist when a table is created (None: a merge)."""
        self._place = place
        self._log_file = log_file
        self._topic = topic
        self._segment = segment
        self._directory = place.path(table_dir(topic))
        try:
            if log_file is not None:
                self._directory.mkdir(exist_ok=True)  # never its parents: that would recreate a deleted topic
            elif not self._directory.is_dir():
                raise FileNotFoundError
        except FileNotFoundError:
            raise NotFound(
                f"{self._directory} is missing: the topic was deleted, or the storage is not mounted"
            ) from None
        file_io.remove_stale_temporaries(self._directory)

    def create(self) -> IO[bytes]:
        """Create a temporary file in the table folder. Raises NotFound if the topic was deleted."""
        sink = file_io.temporary_name(self._directory).open("x+b")
        # A topic's deletion moves its folder away. If the log still exists after the creation, the new file is in the
        # log's topic, not in a recreated one, and moves away with it. It must be the same log file: a recreated topic
        # has a log of the same name if the same broker is the first to write to it.
        if self._log_file is not None and not _is_at(*self._log_file):
            self.discard(sink)
            raise _gone(self._log_file[0])
        return sink

    def publish(self, sink: IO[bytes], base: int, end: int) -> SegmentFile:
        """Publish a written sink as the table of offsets ``[base, end)``; the errors are those of ``publish_file``."""
        sink.close()
        return self.publish_file(Path(sink.name), base, end)

    def publish_file(self, made: Path, base: int, end: int, replaced: Collection[SegmentFile] = ()) -> SegmentFile:
        """Publish a file of the folder as a table; the tables ``replaced`` must still exist and may overlap it."""
        path = table_path(self._topic, self._segment, base, end)
        final = self._place.path(path)
        with self._claimed(base, end):
            check_no_overlap(self._place.tables(self._topic, [self._segment]), base, end, replaced)
            is_kept = retain(self._place, made, path)
            try:
                self._place.publish((made, final))
            except BaseException:
                if is_kept and not final.exists():  # the link would keep the space of a failed table
                    self._place.delete(kept_path(path))
                raise
        return segment_file(path, final.stat())

    def create_merged(self, merge: TableMerge) -> IO[bytes]:
        """Create a temporary file in the table folder, as :meth:`create`."""
        return self.create()

    def finish(self, sink: IO[bytes]) -> str:
        """Make a written file durable, close it, and return its path in the storage."""
        sink.flush()
        os.fsync(sink.fileno())
        sink.close()
        return str(Path(sink.name).relative_to(self._place.root))

    def check_free(self, rewrite: TableMerge) -> None:
        """Raise Unavailable if a table of that name was just deleted: its deletion may still hit the new one."""
        name = kept_path(table_path(self._topic, self._segment, rewrite.base_offset, rewrite.end_offset))
        if self._place.has(name):
            raise Unavailable(f"{name} is left of a table of the same name: {rewrite} is rewritten once it is swept")

    def publish_merged(self, made: str, merge: TableMerge) -> SegmentFile:
        """Publish a file of :meth:`finish` under a claim, with the date of the merge."""
        path = self._place.path(made)
        if not path.exists():
            raise NotFound(f"{path} is missing, the topic was deleted or the merge took more than a day: plan again")
        try:
            # Retention uses the age of a table, and this one is as old as its newest record. It gets its date before
            # its name: by the date other processes decide which of two tables replaces the other. It gets it not
            # earlier, since a sweep would delete a temporary file of that age.
            os.utime(path, ns=(merge.modified_us * 1_000, merge.modified_us * 1_000))
            _check_date(path, merge)
            return self.publish_file(path, merge.base_offset, merge.end_offset, merge.tables)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def discard(self, sink: IO[bytes]) -> None:
        """Delete a file of :meth:`create`, even on a full disk."""
        Path(sink.name).unlink(missing_ok=True)  # first: closing flushes, which fails for lack of space
        with contextlib.suppress(OSError):
            sink.close()

    @contextlib.contextmanager
    def _claimed(self, base: int, end: int) -> Iterator[None]:
        """Exclude other processes on any machine from publishing these offsets.

        A process creates its claim, then lists other claims and tables, in this order. It deletes the claim only after
        the table is published. So of two overlapping processes, the later one to claim sees the other's claim or table.
        If both see each other, both fail and retry some seconds later. A leftover claim blocks others for ten minutes,
        and the next table of the topic deletes it. A process that resumes after that may cause an overlap, which
        readers tolerate. Raises Unavailable if another process has claimed some of these offsets.
        """
        prefix = f"{CLAIM_PREFIX}{self._segment}-"
        mine = self._directory / f"{prefix}{base}-{end}-{file_io.unique_suffix()}"
        mine.touch(exist_ok=False)
        try:
            now_s = mine.stat().st_mtime  # by the clock that also dates the others
            for other in self._directory.glob(f"{CLAIM_PREFIX}*"):
                if other == mine or not _is_alive(other, now_s) or not other.name.startswith(prefix):
                    continue
                other_base, other_end = other.name.removeprefix(prefix).split("-")[:2]
                if int(other_base) < end and base < int(other_end):
                    raise Unavailable(
                        f"{self._topic}#{self._segment}: another process, perhaps on another machine, is about to "
                        f"publish offsets [{other_base}, {other_end}): retry later"
                    )
            yield
        finally:
            mine.unlink(missing_ok=True)


def _check_date(path: Path, merge: TableMerge) -> None:
    """Raise StorageFailed unless a rewritten table is later than its original: other processes would delete it."""
    if merge.leaves_out and path.stat().st_mtime_ns // 1_000 <= merge.tables[-1].modified_us:
        raise StorageFailed(f"{path}: {merge} is not rewritten: the file system does not store times to the second")


def _is_alive(claim: Path, now_s: float) -> bool:
    """Whether a claim is valid; an expired one is deleted."""
    with contextlib.suppress(FileNotFoundError):
        if now_s - claim.stat().st_mtime <= CLAIM_AGE_S_MAX:
            return True
        claim.unlink()
    return False


@contextlib.contextmanager
def _log_reader(place: Place) -> Iterator[Read]:
    """Yield a function that reads log files, with one open at a time."""
    with contextlib.ExitStack() as opened:
        readers: dict[str, RangeReader] = {}

        def read(file: SegmentFile, position: int, length: int) -> Frames:
            if file.path not in readers:
                readers.clear()
                opened.close()
                try:
                    reader = place.open_reader(file.path, once=True)
                except FileNotFoundError:
                    raise NotFound(f"{file.path} was deleted: list the segment's files again") from None
                opened.callback(reader.close)
                readers[file.path] = reader
            return readers[file.path].read_at(position, length)

        yield read
