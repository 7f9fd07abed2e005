"""Rules that compare a topic's files in the end with its users' observations, as a reader without a broker sees them.

Three rules. The cover of a snapshot (Parquet first, logs for the rest) has every record of a segment exactly once, as a
subscriber got it. The tables alone, as plain Parquet readers see them, have no record twice and none from outside the
topic. Log files with the same offsets have the same records.
"""

import io
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow.parquet as pq

from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.core.files.retention import is_unconverted
from seaweedmq.core.files.snapshot import SnapshotPiece, plan_snapshot
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.storage.logs.log_scan import LogScanner
from tests.doubles.memory_store import MemorySegmentStore
from tests.sim.rules.checkers import ClusterState
from tests.sim.rules.retention import listed
from tests.support.history import Violation

RULE = "files"


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None


class TopicFiles:
    """All files of one topic, read once."""

    def __init__(self, store: MemorySegmentStore, topic: Topic, segments: Iterable[Segment]) -> None:
        self._store = store
        self._topic = topic
        self._segments = list(segments)
        self._listed = [f for s in self._segments for f in _listed(store, s)]
        self._read: dict[str, dict[int, Record]] = {}
        """Path -> offset -> record."""

    def violations(
        self, records: Mapping[int, Mapping[int, Record]], starts: Mapping[int, int], gone: Mapping[int, Container[int]]
    ) -> Iterator[Violation]:
        """Judge the files by the records that a subscriber got: segment -> offset -> record.

        Args:
            starts: By segment the offset below which all records are deleted.
            gone: By segment the offsets whose tables retention deleted.
        """
        try:
            for segment in self._segments:
                start = starts.get(segment.id, 0)
                expected = {o: r for o, r in records.get(segment.id, {}).items() if o >= start}
                yield from self._judge_tables(segment, expected, gone.get(segment.id, frozenset()))
                yield from self._judge_cover(segment, expected, start)
                yield from self._judge_logs(segment, expected)
        except SeaweedMQError as error:
            yield Violation(RULE, f"{self._topic.name}: {error!r}")

    def _judge_cover(self, segment: Segment, expected: Mapping[int, Record], start: int) -> Iterator[Violation]:
        covered: dict[int, Record] = {}
        for piece in plan_snapshot(self._topic, segment, self._listed, missing=[]):
            for offset, record in self._in_piece(piece):
                if offset in covered:
                    yield Violation(RULE, f"{segment}: the snapshot has offset {offset} twice")
                covered[offset] = record
        covered = {offset: record for offset, record in covered.items() if offset >= start}
        if covered != expected:
            yield Violation(RULE, f"{segment}: the snapshot {_difference(covered, expected)}")

    def _judge_tables(
        self, segment: Segment, expected: Mapping[int, Record], gone: Container[int]
    ) -> Iterator[Violation]:
        """Judge the tables alone.

        A replica that was cut off may write deleted records out again; they stay until their own retention ends."""
        seen: dict[int, str] = {}
        for table in self._of(segment, FileKind.TABLE):
            content = self._content(table)
            if content.keys() != set(range(table.base_offset, table.end_offset or 0)):
                yield Violation(RULE, f"{table.path} holds {len(content)} records, its name tells another story")
            if twice := content.keys() & seen.keys():
                yield Violation(RULE, f"offset {min(twice)} is in {seen[min(twice)]} and in {table.path}")
            seen |= dict.fromkeys(content, table.path)
            judged = {o: r for o, r in content.items() if o not in gone}
            if any(expected.get(offset) != record for offset, record in judged.items()):
                part = {o: r for o, r in expected.items() if o in judged}
                yield Violation(RULE, f"{table.path} {_difference(judged, part)}")

    def _judge_logs(self, segment: Segment, expected: Mapping[int, Record]) -> Iterator[Violation]:
        """Judge logs below the end of a sealed segment, and below the high watermark of an open one."""
        for log in self._of(segment, FileKind.LOG):
            content = {o: r for o, r in self._content(log).items() if o in expected}
            part = {o: r for o, r in expected.items() if o in content}
            if content != part:
                yield Violation(RULE, f"{log.path} {_difference(content, part)}")

    def _of(self, segment: Segment, kind: FileKind) -> list[SegmentFile]:
        return [f for f in self._listed if f.segment == segment.id and f.kind is kind]

    def _in_piece(self, piece: SnapshotPiece) -> Iterator[tuple[int, Record]]:
        """Yield the records of a scan range in a reader's order: the next file may continue where one ends."""
        at = piece.start_offset
        while piece.end_offset is None or at < piece.end_offset:
            found = next((r for f in piece.files if (r := self._content(f).get(at)) is not None), None)
            if found is None:
                return
            yield at, found
            at += 1

    def _content(self, file: SegmentFile) -> dict[int, Record]:
        if file.path not in self._read:
            data = bytes(self._store.files[file.path].data)
            records = _in_table(data) if file.kind is FileKind.TABLE else self._in_log(file, data)
            self._read[file.path] = dict(records)
        return self._read[file.path]

    def _in_log(self, file: SegmentFile, data: bytes) -> Iterator[tuple[int, Record]]:
        scanner = LogScanner(self._topic, file)
        while (wanted := scanner.wants()) is not None:
            at, length = wanted
            for found in scanner.feed(data[at : at + length]).frames:
                batch = decode_frame(found.frame, None)
                yield from zip(
                    range(found.frame.header.base_offset, found.frame.header.end_offset),
                    map(Record, batch["_key"].to_pylist(), batch["_value"].to_pylist()),
                    strict=True,
                )


def unconverted(store: MemorySegmentStore, state: ClusterState) -> Iterator[str]:
    """Yield paths of log files of sealed segments with records that no table has."""
    for segments in state.segments.values():
        for segment in segments.values():
            if not segment.is_open:
                files = _listed(store, segment)
                logs = [f for f in files if f.kind is FileKind.LOG]
                yield from (log.path for log in logs if is_unconverted(log, files, segment.end_offset))


def _in_table(data: bytes) -> Iterator[tuple[int, Record]]:
    table = pq.ParquetFile(io.BytesIO(data)).read(["_offset", "_key", "_value"], use_threads=False)
    offsets, keys, values = (table[name].to_pylist() for name in ("_offset", "_key", "_value"))
    return zip(offsets, map(Record, keys, values), strict=True)


def _listed(store: MemorySegmentStore, segment: Segment) -> list[SegmentFile]:
    return [f for f in listed(store) if f.topic == segment.topic and f.segment == segment.id]


def _difference(found: Mapping[int, Record], expected: Mapping[int, Record]) -> str:
    if missing := expected.keys() - found.keys():
        return f"lacks offset {min(missing)} and {len(missing) - 1} more"
    if unknown := found.keys() - expected.keys():
        return f"has offset {min(unknown)} and {len(unknown) - 1} more, which no reader got"
    other = min(o for o in expected if found[o] != expected[o])
    return f"has {found[other]} at offset {other}, subscribers got {expected[other]}"
