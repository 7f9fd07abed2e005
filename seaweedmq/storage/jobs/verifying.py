"""Verification of a topic: its tables are sound, its logs agree with them, and no offset is missing."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from seaweedmq.codec.paths import log_dir
from seaweedmq.core.files.holes import missing_records
from seaweedmq.core.files.retention import log_end_bound
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.jobs.comparing import Difference, VerifyPart, logs_of, verify_part
from seaweedmq.storage.jobs.run import Progress, Run, no_progress, one_after_another
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import TopicSnapshot, read_snapshot

ROUNDS_MAX = 3
"""Limit of the listings; a further one is made if tables were merged before they were read."""


@dataclass(slots=True, kw_only=True)
class Verified:
    """The result of a verification."""

    topic: TopicName
    tables: int = 0
    records: int = 0
    """Number of records of the tables."""
    compared: int = 0
    """Number of records that a log also holds, counted once per log."""
    differences: list[Difference] = field(default_factory=list)
    """First difference of each file, ordered by path."""

    @property
    def is_sound(self) -> bool:
        """Whether the verification found no difference."""
        return not self.differences


def verify_topic(
    place: Place, name: TopicName, *, progress: Progress = no_progress, run: Run = one_after_another
) -> Verified:
    """Read all tables of a topic and compare them with the existing log files, without any change.

    The call verifies the records that are in files at its start. Brokers may write and tables may be merged meanwhile.
    The errors are those of ``snapshot.read_snapshot``.
    """
    snapshot = read_snapshot(place, name)
    found = Verified(topic=name)
    seen: set[tuple[str, int]] = set()
    holes: list[Difference] = []
    done = 0
    for _ in range(ROUNDS_MAX):
        parts, holes = _parts(snapshot)
        parts = [part for part in parts if _key(part) not in seen]
        total = done + sum(part.size_bytes for part in parts)
        progress(done, total)
        ends = {s.id: s.end_offset for s in snapshot.segments}
        gone = False
        for part, result in run(partial(verify_part, place, snapshot.topic, ends), parts):
            seen.add(_key(part))
            found.tables += part.table is not None and not result.gone
            found.records += result.records
            found.compared += result.compared
            found.differences += result.differences
            gone = gone or result.gone
            done += part.size_bytes
            progress(done, total)
        if not gone:
            break
        snapshot = read_snapshot(place, name)
    found.differences += holes
    found.differences.sort(key=lambda d: (d.path, d.offset or 0))
    return found


def _parts(snapshot: TopicSnapshot) -> tuple[list[VerifyPart], list[Difference]]:
    """Return the parts to read, and the differences that file names show: offsets that are in no file."""
    files: defaultdict[int, list[SegmentFile]] = defaultdict(list)
    for file in snapshot.files:
        files[file.segment].append(file)
    parts: list[VerifyPart] = []
    holes: list[Difference] = []
    for segment in snapshot.segments:
        tables = [f for f in files[segment.id] if f.kind is FileKind.TABLE]
        logs = [f for f in files[segment.id] if f.kind is FileKind.LOG]
        bounds = {log.path: log_end_bound(log, logs) for log in logs}
        parts += [VerifyPart(table=table, logs=logs_of(table, logs, bounds)) for table in tables]
        gaps: list[range] = []
        pieces = snapshot.plan(segment.id, missing=gaps)
        folder = log_dir(snapshot.topic.name, segment.id)
        holes += [
            Difference(path=folder, what=str(missing_records(snapshot.topic, segment.id, gap.start, gap.stop)))
            for gap in gaps
        ]
        parts += [
            VerifyPart(table=None, logs=p.files, start=p.start_offset, end=p.end_offset, is_complete=p.complete)
            for p in pieces
            if p.kind is FileKind.LOG
        ]
    return parts, holes


def _key(part: VerifyPart) -> tuple[str, int]:
    return (part.logs[0].path, part.start) if part.table is None else (part.table.path, 0)
