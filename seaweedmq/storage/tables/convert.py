"""Conversion of log files to Parquet, frame by frame in bounded memory.

Blocking; it runs in a child process (``worker``).

The records of a segment are the union of its log files. Records that a table already holds are skipped, so any set of
logs can be converted repeatedly, and no record is ever in two tables.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple, Protocol

import pyarrow as pa

from seaweedmq.codec.frame import FLAG_REFERENCE, Frame
from seaweedmq.codec.payload.batch import decode_frame, schema_from_bytes
from seaweedmq.core.files.cover import covered_up_to, uncovered
from seaweedmq.core.files.retention import log_end_bound
from seaweedmq.errors import Corrupt
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import Topic
from seaweedmq.storage.faults import failing
from seaweedmq.storage.logs.log_scan import LogFrame, LogScanner, check_joins
from seaweedmq.storage.tables.format import TableWriter

TABLE_BYTES_MAX = 128 * 1024 * 1024
"""Limit of the total size of consecutive logs that share a table, in bytes: fewer, larger files read faster."""

Read = Callable[[SegmentFile, int, int], Frames]
"""Function (file, position, length) that returns the bytes; fewer only at the end of the file."""


class TableTarget(Protocol):
    """A target that publishes finished tables atomically."""

    def create(self) -> IO[bytes]:
        """Create an empty sink, open for reading and writing."""

    def publish(self, sink: IO[bytes], base: int, end: int) -> SegmentFile:
        """Publish a written sink as the table of offsets ``[base, end)``."""

    def discard(self, sink: IO[bytes]) -> None:
        """Delete an unpublished sink."""


class PendingRows(NamedTuple):
    """Records ``[start, end)`` of a log's frame that no table holds and that are below the job's end offset."""

    frame: Frame
    log: SegmentFile
    position: int
    """Position of the frame in the log, in bytes."""
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A conversion of log files; ``listed`` has all files of the segment, to find existing and missing records."""

    topic: Topic
    logs: Sequence[SegmentFile]
    listed: Sequence[SegmentFile]
    end_offset: int | None
    """Offset after the last one to convert; None: all records."""
    row_group_bytes: int


def convert_logs(job: Job, read: Read, target: TableTarget) -> list[SegmentFile]:
    """Write tables for the logs' records that are in none; return all tables that hold records of the logs.

    Raises Corrupt if a log has damage other than a torn tail, or records are missing, and names file and position. The
    log is unchanged, and no table is made of it.
    """
    tables = [f for f in job.listed if f.kind is FileKind.TABLE]
    made: list[SegmentFile] = []
    touched: list[tuple[int, int]] = []
    schema = None if job.topic.schema is None else schema_from_bytes(job.topic.schema)
    run: _Run | None = None
    try:
        for rows in _rows(job, tables, read, touched):
            if run is not None and not run.takes(rows):
                closing, run = run, None
                made.append(closing.finish(target))
            if run is None:
                run = _Run(job, target, schema if rows.frame.header.schema_version else None, rows)
            run.add(rows)
        if run is not None:
            closing, run = run, None
            made.append(closing.finish(target))
    finally:
        if run is not None:
            run.discard(target)
    held = [t for t in tables if any(t.base_offset < e and s < (t.end_offset or 0) for s, e in touched)]
    return sorted(held + made, key=lambda t: t.base_offset)


class _Run:
    """A table being written: records without gap, of one schema version, from one or more logs."""

    def __init__(self, job: Job, target: TableTarget, schema: pa.Schema | None, first: PendingRows) -> None:
        self._schema = schema
        self._version = first.frame.header.schema_version
        self._log = first.log
        self._log_bytes = first.log.size_bytes
        self._base = self._end = first.start
        self._sink = target.create()
        try:
            self._writer = TableWriter(
                self._sink,
                job.topic,
                first.log.segment,
                schema,
                job.row_group_bytes,
                has_references=_has_references(first),
            )
        except BaseException:
            target.discard(self._sink)
            raise

    def takes(self, rows: PendingRows) -> bool:
        """Whether the rows may follow in the same table."""
        if rows.start != self._end or rows.frame.header.schema_version != self._version:
            return False
        if _has_references(rows) and not self._writer.has_references:
            return False  # Parquet's columns are fixed with the first row group: the next table has the column
        return rows.log is self._log or self._log_bytes + rows.log.size_bytes <= TABLE_BYTES_MAX

    def add(self, rows: PendingRows) -> None:
        """Add rows to the table."""
        header = rows.frame.header
        if rows.log is not self._log:
            self._log = rows.log
            self._log_bytes += rows.log.size_bytes
        try:
            batch = decode_frame(rows.frame, self._schema)
            batch.validate()
        except (Corrupt, pa.ArrowInvalid) as e:
            raise Corrupt(f"{rows.log.path} is damaged at byte {rows.position}: {e}") from e
        self._writer.add(batch, header, rows.start - header.base_offset, rows.end - rows.start)
        self._end = rows.end

    def finish(self, target: TableTarget) -> SegmentFile:
        """Publish the table."""
        try:
            self._writer.close()
            return target.publish(self._sink, self._base, self._end)
        except BaseException:
            self.discard(target)
            raise

    def discard(self, target: TableTarget) -> None:
        """Delete the unfinished table."""
        self._writer.abandon()
        target.discard(self._sink)


def _has_references(rows: PendingRows) -> bool:
    return bool(rows.frame.header.flags & FLAG_REFERENCE)


def _rows(job: Job, tables: Sequence[SegmentFile], read: Read, touched: list[tuple[int, int]]) -> Iterator[PendingRows]:
    """Yield records that no table holds, ordered by offset, each once; add the offsets of each log to ``touched``."""
    position = 0
    damage: tuple[int, Corrupt] | None = None
    """Offset at which a log became unreadable, and the error, raised unless another log reaches further."""
    scanned: list[SegmentFile] = []
    for log in sorted(job.logs, key=lambda f: (f.base_offset, f.writer)):
        if job.end_offset is not None and log.base_offset >= job.end_offset:
            break  # records of a late writer are not part of the segment
        if damage is not None and log.base_offset > covered_up_to(tables, position):
            raise damage[1]
        position = max(position, log.base_offset)
        scanner = LogScanner(job.topic, log, skip_below=covered_up_to(tables, position))
        try:
            for found in _frames(scanner, log, read, job.end_offset):
                header = found.frame.header
                check_joins(log, found, position)
                end = header.end_offset if job.end_offset is None else min(header.end_offset, job.end_offset)
                for start, stop in uncovered(tables, max(header.base_offset, position), end):
                    yield PendingRows(found.frame, log, found.position, start, stop)
                position = max(position, header.end_offset)
        except Corrupt as e:
            if scanner.next_offset >= position:
                damage = (position, e)
        if scanner.foreign:
            continue
        position = max(position, scanner.next_offset)
        if scanner.next_offset > log.base_offset:
            touched.append((log.base_offset, scanner.next_offset))
        scanned.append(log)
        if damage is not None and position > damage[0]:
            damage = None
        if damage is None:
            _check_complete(job, tables, scanned, scanner, position)
    if damage is not None:
        raise damage[1]


def _frames(scanner: LogScanner, log: SegmentFile, read: Read, end_offset: int | None) -> Iterator[LogFrame]:
    while (wanted := scanner.wants()) is not None:
        with failing("read", log.path):
            data = read(log, *wanted)
        yield from scanner.feed(data).frames
        if end_offset is not None and scanner.next_offset >= end_offset:
            scanner.stop()


def _check_complete(
    job: Job, tables: Sequence[SegmentFile], scanned: Sequence[SegmentFile], scanner: LogScanner, position: int
) -> None:
    """Raise Corrupt if records are missing between the scanned log and the next log or the end of the segment."""
    log = scanned[-1]
    logs = [f for f in job.listed if f.kind is FileKind.LOG]
    due = min((f.base_offset for f in logs if f.base_offset > log.base_offset), default=job.end_offset)
    if job.end_offset is not None:
        due = min(job.end_offset, due if due is not None else job.end_offset)
    if due is None or covered_up_to(tables, position) >= due:
        return
    done = {f.path for f in scanned}
    for other in logs:
        bound = log_end_bound(other, logs)
        if other.path not in done and other.base_offset <= position and (bound is None or bound > position):
            return  # another writer's file may have the rest
    raise Corrupt(
        f"{log.path} ends with offset {scanner.next_offset}, but records up to {due} were stored"
        f"{'' if scanner.torn is None else f' ({scanner.torn})'}: it was damaged or cut, restore it from a copy"
    )
