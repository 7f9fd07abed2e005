"""Payloads by reference of a topic: verification of those that records name, and the sweep of those that none names.

Both read the references of all tables, retained ones included, and of all log files. Brokers may write and tables may
be merged meanwhile. A sweep deletes only what is twice as old as a payload may be when a record first names it, so
records that are not in files yet do not matter.
"""

from collections.abc import Callable, Iterator, Set
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa

from seaweedmq.codec import paths
from seaweedmq.codec.frame import FLAG_REFERENCE
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.codec.payload_check import PayloadCheck
from seaweedmq.codec.references import REFERENCE, reference_of
from seaweedmq.errors import NotFound, PayloadLost, Unavailable
from seaweedmq.model.config import DAY_S, US_PER_S
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage import blobs
from seaweedmq.storage.directory_place import DirectoryPlace, segment_file
from seaweedmq.storage.faults import GONE, failing
from seaweedmq.storage.file_io import clock_s
from seaweedmq.storage.jobs.run import Progress, no_progress
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.payloads import READ_BYTES
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.tables.opener import has_references, open_table, table_error

SWEPT_AGE_S = 2.0 * DAY_S
"""Least age in seconds of a payload that a sweep deletes."""
ROUNDS_MAX = 5
"""Limit of the listings; a further one is made if files were converted, merged or deleted before they were read."""
_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadProblem:
    """A record whose payload cannot be read as it was published."""

    path: str
    """Log file or table of the record."""
    offset: int
    what: str
    """Description in one sentence, with the remedy."""


@dataclass(slots=True, kw_only=True)
class VerifiedPayloads:
    """The result of a verification."""

    topic: TopicName
    records: int = 0
    """Records by reference, counted once per file that holds them."""
    payloads: int = 0
    """Different references."""
    bytes: int = 0
    """Size of the sound payloads."""
    problems: list[PayloadProblem] = field(default_factory=list)
    """One for each reference that does not hold, by path and offset of a record that has it."""


@dataclass(slots=True, kw_only=True)
class SweptPayloads:
    """The result of a sweep."""

    topic: TopicName
    deleted: list[str] = field(default_factory=list)
    """Uris of the deleted payloads."""
    named: int = 0
    """Payloads that a table or log names."""


def verify_payloads(place: DirectoryPlace, name: TopicName, *, progress: Progress = no_progress) -> VerifiedPayloads:
    """Read every payload that a record of the topic names, and compare size and hash; nothing is changed.

    The errors are those of ``snapshot.read_snapshot``; Corrupt is also raised if a file of the topic is damaged.
    """
    found = VerifiedPayloads(topic=name)
    first: dict[PayloadReference, tuple[str, int]] = {}
    topic = _read_all(place, name, lambda file, offset, reference: _note(found, first, file, offset, reference))
    done, total = 0, sum(reference.size_bytes for reference in first)
    progress(done, total)
    for reference, (path, offset) in first.items():
        try:
            for part_bytes in _checked(place, topic, reference):
                progress(done + part_bytes, total)
        except PayloadLost as error:
            found.problems.append(PayloadProblem(path=path, offset=offset, what=str(error)))
        else:
            found.bytes += reference.size_bytes
        done += reference.size_bytes
    found.payloads = len(first)
    found.problems.sort(key=lambda problem: (problem.path, problem.offset))
    return found


def sweep_payloads(place: DirectoryPlace, name: TopicName, *, now_us: int) -> SweptPayloads:
    """Delete the payloads, and what is left of uploads, that are older than 48 hours and that no record names.

    A payload is old if three clocks agree: ``now_us``, that of the caller in microseconds since 1970; the one that
    dates files; and the one of the broker that named the day of the upload.

    The errors are those of ``snapshot.read_snapshot``; nothing is deleted if a file of the topic is damaged (Corrupt),
    or files change faster than they are read (Unavailable).
    """
    named: set[str] = set()
    topic = _read_all(place, name, lambda _, __, reference: named.add(reference.uri))
    folder = place.path(paths.topic_dir(name))
    with failing("sweep the payloads of", folder):
        before_us = min(now_us, int(clock_s(folder) * US_PER_S)) - int(SWEPT_AGE_S * US_PER_S)
        deleted = blobs.delete_old_blobs(place, name, topic.uid, before_us, named.__contains__)
    return SweptPayloads(topic=name, deleted=[each.uri for each in deleted], named=len(named))


def _note(
    found: VerifiedPayloads,
    first: dict[PayloadReference, tuple[str, int]],
    file: SegmentFile,
    offset: int,
    reference: PayloadReference,
) -> None:
    found.records += 1
    first.setdefault(reference, (file.path, offset))


def _checked(place: DirectoryPlace, topic: Topic, reference: PayloadReference) -> Iterator[int]:
    """Read a payload to its end, and yield how far that is; PayloadLost if it is not the published one."""
    check = PayloadCheck(reference, topic.name, topic.uid)
    name = blobs.name_of(reference.uri)
    try:
        with failing("read", reference.uri):
            while check.left_bytes:
                check.update(blobs.read_blob(place, name, check.position, min(READ_BYTES, check.left_bytes)))
                yield check.position
            if not reference.size_bytes:
                check.finish()
            size_bytes = blobs.blob_size(place, name)
    except NotFound as error:
        raise check.missing(error) from error
    if size_bytes is None:
        raise check.missing(NotFound(f"{reference.uri} is missing"))
    if size_bytes > reference.size_bytes:
        raise PayloadLost(
            f"payload {reference.uri} has {size_bytes} bytes instead of {reference.size_bytes}: it was changed after "
            "the record was published; restore it from a copy"
        )


def _read_all(
    place: DirectoryPlace, name: TopicName, note: Callable[[SegmentFile, int, PayloadReference], None]
) -> Topic:
    """Call ``note`` with the file, offset and reference of each record by reference in all files of a topic.

    A log that is converted before it is read appears as a table, and a merged table as another one, in the next round.
    """
    seen: set[str] = set()
    for _ in range(ROUNDS_MAX):
        snapshot = read_snapshot(place, name)
        is_gone = False
        for file in (*snapshot.files, *_retained(place, name, {file.path for file in snapshot.files})):
            if file.path in seen:
                continue
            try:
                references = _of_log if file.kind is FileKind.LOG else _of_table
                for offset, reference in references(place, snapshot.topic, file):
                    note(file, offset, reference)
            except NotFound:
                is_gone = True
            seen.add(file.path)
        if not is_gone:
            return snapshot.topic
    raise Unavailable(f"the files of {name} change faster than they are read: retry")


def _retained(place: DirectoryPlace, name: TopicName, listed: Set[str]) -> Iterator[SegmentFile]:
    """Yield the retained links of tables that are not live: queries that began before may still read them."""
    for table in place.names(f"{paths.table_dir(name)}/{paths.KEPT}", ".parquet"):
        live = f"{paths.table_dir(name)}/{table}"
        if live not in listed and paths.parse_segment_file(live) is not None:
            try:
                stat = place.path(paths.kept_path(live)).stat()
            except FileNotFoundError:
                continue  # swept since the listing
            yield replace(segment_file(live, stat), path=paths.kept_path(live))


def _of_log(place: DirectoryPlace, topic: Topic, file: SegmentFile) -> Iterator[tuple[int, PayloadReference]]:
    scanner = LogScanner(topic, file)
    try:
        with closing(place.open_input(file)) as source:
            for run in scanner.runs(source):
                for found in run.frames:
                    if not found.frame.header.flags & FLAG_REFERENCE:
                        continue
                    batch = decode_frame(found.frame, None)
                    yield from _of_column(found.frame.header.base_offset, batch.column(REFERENCE.name))
    except OSError as error:
        if error.errno in GONE:
            raise NotFound(f"{file.path} was deleted") from error
        raise


def _of_table(place: DirectoryPlace, topic: Topic, file: SegmentFile) -> Iterator[tuple[int, PayloadReference]]:
    with closing(place.open_input(file)) as source, open_table(source, file, topic) as table:
        if not has_references(table):
            return
        position = file.base_offset
        try:
            for batch in table.iter_batches(batch_size=_ROWS, columns=[REFERENCE.name]):
                yield from _of_column(position, batch.column(0))
                position += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise table_error(file, error, f" after offset {position}") from error


def _of_column(base_offset: int, column: pa.Array) -> Iterator[tuple[int, PayloadReference]]:
    for at, value in enumerate(column.to_pylist()):
        reference = reference_of(value)
        if reference is not None:
            yield base_offset + at, reference
