"""Comparison of a table with the log files that may hold the same records."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from seaweedmq.codec.frame import FLAG_REFERENCE, Frame
from seaweedmq.codec.payload.batch import decode_frame, full_batch, schema_from_bytes
from seaweedmq.codec.references import REFERENCE
from seaweedmq.core.files.holes import missing_records
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.place import Place
from seaweedmq.storage.tables.format import PARTITION
from seaweedmq.storage.tables.rows import Rows, table_rows

SHOWN_LENGTH_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference from the expected content of a file."""

    path: str
    """Path of the file."""
    what: str
    """Description in one sentence."""
    offset: int | None = None
    """Offset of the first affected record; None: the whole file."""
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPart:
    """A part for one task to verify: a table with the logs that may hold its records, or offsets only in logs."""

    table: SegmentFile | None
    logs: tuple[SegmentFile, ...]
    """Log files; without a table, those of ``SnapshotPiece.files``."""
    start: int = 0
    end: int | None = None
    """End offset without a table; None: the end of the logs."""
    is_complete: bool = False
    """Whether the logs must hold all records up to the end."""

    @property
    def size_bytes(self) -> int:
        """Size of all files of the part, in bytes."""
        return (0 if self.table is None else self.table.size_bytes) + sum(f.size_bytes for f in self.logs)


@dataclass(slots=True, kw_only=True)
class PartFindings:
    """The findings of one task, with only the first difference of each file."""

    records: int = 0
    """Number of records of the table."""
    compared: int = 0
    """Number of records that a log also holds, counted once per log."""
    differences: list[Difference] = field(default_factory=list)
    gone: bool = False
    """Whether the table was merged, or removed by retention, before it was read."""


def verify_part(place: Place, topic: Topic, end_offsets: dict[int, int | None], part: VerifyPart) -> PartFindings:
    """Read a whole table and compare it with its logs, whose records end with those of their segment (None: open)."""
    found = PartFindings()
    if part.table is None:
        _walk(place, topic, part, found)
        return found
    table = part.table
    try:
        for _, batch in table_rows(place.open_input, topic, table):
            found.records += batch.num_rows
    except NotFound:
        found.gone = True
        return found
    except Corrupt as e:
        found.differences.append(Difference(path=table.path, what=str(e), offset=table.base_offset + found.records))
        return found
    limit = end_offsets.get(table.segment)
    end = table.end_offset or 0
    for log in part.logs:
        try:
            found.compared += _compare(place, topic, table, log, end if limit is None else min(end, limit), found)
        except NotFound:
            continue  # the log or the table was deleted
        except Corrupt as e:
            found.differences.append(Difference(path=log.path, what=str(e)))
    return found


def _walk(place: Place, topic: Topic, part: VerifyPart, found: PartFindings) -> None:
    """Check that the frames of logs are sound and contiguous up to the required end; a torn tail ends the check."""
    position = part.start
    for log in part.logs:
        try:
            for frame, _ in _frames(place, topic, log, position):
                header = frame.header
                if header.base_offset > position or (part.end is not None and position >= part.end):
                    break
                _decoded(topic, frame)
                position = header.end_offset
        except NotFound:
            found.gone = True
            return
        except Corrupt as e:
            found.differences.append(Difference(path=log.path, offset=position, what=str(e)))
            return
    if part.is_complete and part.end is not None and position < part.end:
        cut = max((log for log in part.logs if log.base_offset <= position), key=lambda log: log.base_offset)
        loss = missing_records(topic, cut.segment, position, part.end, cut)
        found.differences.append(Difference(path=part.logs[0].path, offset=position, what=str(loss)))


def _compare(place: Place, topic: Topic, table: SegmentFile, log: SegmentFile, end: int, found: PartFindings) -> int:
    """Return the number of records in both files; record the first difference, which ends the comparison."""
    rows: Rows = iter(())
    batch: pa.RecordBatch | None = None
    first = count = 0
    for frame, where in _frames(place, topic, log, table.base_offset):
        header = frame.header
        if header.base_offset >= end:
            break
        logged = _decoded(topic, frame)
        if batch is None:
            rows = table_rows(place.open_input, topic, table)
            _, batch = next(rows)
            first = table.base_offset
        position = max(header.base_offset, table.base_offset)
        while position < min(header.end_offset, end):
            while position >= first + batch.num_rows:
                first += batch.num_rows
                _, batch = next(rows)
            stop = min(header.end_offset, end, first + batch.num_rows)
            difference = _first_difference(
                batch.slice(position - first, stop - position),
                logged.slice(position - header.base_offset, stop - position),
                position,
                header.slot_min,
            )
            if difference is not None:
                offset, column, what = difference
                found.differences.append(
                    Difference(path=table.path, offset=offset, column=column, what=f"{what} in {log.path} {where}")
                )
                return count
            count += stop - position
            position = stop
    return count


def _first_difference(
    stored: pa.RecordBatch, logged: pa.RecordBatch, position: int, partition: int
) -> tuple[int, str, str] | None:
    """Return the offset, column and description of the first record that differs."""
    worst: tuple[int, str, str] | None = None
    columns = dict(zip(logged.schema.names, logged.columns, strict=True))
    if PARTITION.name in stored.schema.names:
        columns[PARTITION.name] = pa.repeat(pa.scalar(partition, PARTITION.type), stored.num_rows)
    if REFERENCE.name in stored.schema.names and REFERENCE.name not in columns:
        columns[REFERENCE.name] = pa.nulls(stored.num_rows, REFERENCE.type)
    for name, column in columns.items():
        if name not in stored.schema.names:
            return position, name, "no such column, but one"
        other = stored.column(name)
        if other.type != column.type:
            other = other.cast(column.type)  # seconds, which Parquet lacks
        if other.equals(column):
            continue
        for row, (ours, theirs) in enumerate(zip(other.to_pylist(), column.to_pylist(), strict=True)):
            if ours != theirs and repr(ours) != repr(theirs):  # NaN does not equal itself
                if worst is None or position + row < worst[0]:
                    worst = position + row, name, f"{_shown(ours)}, but {_shown(theirs)}"
                break
    return worst


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}..."


def _decoded(topic: Topic, frame: Frame) -> pa.RecordBatch:
    schema = None
    if topic.schema is not None and frame.header.schema_version:
        schema = schema_from_bytes(topic.schema)
    try:
        return full_batch(
            decode_frame(frame, schema),
            frame.header,
            schema,
            has_references=bool(frame.header.flags & FLAG_REFERENCE),
        )
    except pa.ArrowException as e:
        raise Corrupt(f"the frame of offset {frame.header.base_offset} is damaged: {e}") from e


def _frames(place: Place, topic: Topic, log: SegmentFile, start: int) -> Iterator[tuple[Frame, str]]:
    """Yield the frames that a log held when it was listed, from an offset."""
    scanner = LogScanner(topic, log, skip_below=start)
    with closing(place.open_input(log)) as source:
        for run in scanner.runs(source):
            yield from ((found.frame, f"at byte {found.position}") for found in run.frames)


def logs_of(table: SegmentFile, logs: Sequence[SegmentFile], bounds: dict[str, int | None]) -> tuple[SegmentFile, ...]:
    """Return the logs that may hold records of the table; ``bounds`` limits the end of each log, by path."""
    return tuple(
        log
        for log in logs
        if log.base_offset < (table.end_offset or 0)
        and ((bound := bounds[log.path]) is None or bound > table.base_offset)
    )
