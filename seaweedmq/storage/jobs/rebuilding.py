"""Rebuilding of a topic's missing or damaged tables from its log files."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from seaweedmq.core.files.cover import covered_up_to, uncovered
from seaweedmq.core.files.holes import first_needed
from seaweedmq.core.files.retention import log_end_bound
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.jobs.run import Progress, Run, attempt, no_progress, one_after_another
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import TopicSnapshot, list_files, list_removed, read_snapshot
from seaweedmq.storage.tables.compact import ROW_GROUP_BYTES, check_table
from seaweedmq.storage.tables.delta.updater import rebuild_log
from seaweedmq.storage.tables.files import convert_files


@dataclass(slots=True, kw_only=True)
class Rebuilt:
    """The result of a rebuilding."""

    topic: TopicName
    made: list[SegmentFile] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Paths of damaged tables that were rebuilt; the damaged files stay beside them under hidden names."""
    problems: list[SeaweedMQError] = field(default_factory=list)
    """One error for each file that cannot be rebuilt."""
    version: int | None = None
    """Version of the Delta log; None if it was not written."""


def rebuild_topic(
    place: Place, name: TopicName, *, progress: Progress = no_progress, run: Run = one_after_another
) -> Rebuilt:
    """Rebuild a topic's missing or damaged tables from its log files.

    Brokers may write meanwhile; the logs that they have yet to convert are left to them. The errors are those of
    ``snapshot.read_snapshot``.
    """
    snapshot = read_snapshot(place, name)
    found = Rebuilt(topic=name)
    sizes = _sizes(snapshot)
    total, done = sum(sizes.values()), 0
    progress(0, total)
    for segment, result in run(partial(_rebuild, place, snapshot.topic), snapshot.segments):
        found.made += result.made
        found.replaced += result.replaced
        found.problems += result.problems
        done += sizes[segment.id]
        progress(done, total)
    found.made.sort(key=lambda f: (f.segment, f.base_offset))
    try:
        found.version = rebuild_log(place, snapshot.topic)
    except SeaweedMQError as error:  # the tables are complete, and the next call writes the log
        found.problems.append(error)
    return found


def _sizes(snapshot: TopicSnapshot) -> dict[int, int]:
    sizes: defaultdict[int, int] = defaultdict(int)
    for file in snapshot.files:
        sizes[file.segment] += file.size_bytes
    return {segment.id: sizes[segment.id] for segment in snapshot.segments}


def _rebuild(place: Place, topic: Topic, segment: Segment) -> Rebuilt:
    """Rebuild the tables of one segment, on any machine."""
    result = Rebuilt(topic=topic.name)
    files = attempt(list_files, place, topic.name, [segment.id])
    if isinstance(files, SeaweedMQError):
        result.problems.append(files)
        return result
    tables = [f for f in files if f.kind is FileKind.TABLE]
    damaged: list[SegmentFile] = []
    for table in tables:
        try:
            check_table(place, topic, table)
        except NotFound:
            continue  # merged or expired meanwhile
        except SeaweedMQError as error:
            if isinstance(error, Corrupt) and _have(files, table.base_offset, table.end_offset or 0):
                place.set_aside(table.path)
                damaged.append(table)
            else:
                result.problems.append(error)
    sound = [t for t in tables if t not in damaged]
    removed = attempt(list_removed, place, topic)  # after the files: retention records an offset before it deletes
    if isinstance(removed, SeaweedMQError):
        result.problems.append(removed)
        return result
    first = first_needed(topic, segment, files, removed.get(segment.id, 0))
    for start, end in _missing(segment, first, sound, damaged):
        logs = [f for f in files if f.kind is FileKind.LOG and f.base_offset < end]
        if not _have(files, start, end):
            result.problems.append(_in_no_file(segment, start, end))
            continue
        made = attempt(convert_files, place, topic, logs, end, ROW_GROUP_BYTES)
        if isinstance(made, SeaweedMQError):
            if not any(t.base_offset <= start and end <= (t.end_offset or 0) for t in damaged):  # reported below
                what = f"{segment}: offsets [{start}, {end}) cannot be rebuilt: {made}"
                result.problems.append(Corrupt(what) if isinstance(made, Corrupt) else made)
        else:
            known = {t.path for t in (*sound, *result.made)}
            result.made.extend(t for t in made if t.path not in known)
            if not any(t.base_offset <= start and end <= (t.end_offset or 0) for t in damaged):
                left = uncovered([*sound, *result.made], start, end)
                result.problems.extend(_in_no_file(segment, *gap) for gap in left)
    for table in damaged:
        if covered_up_to([*sound, *result.made], table.base_offset) < (table.end_offset or 0):
            place.put_back(table.path)  # the logs do not have all its records
            result.problems.append(
                Corrupt(f"{table.path} is damaged, and no log has all its records: restore it from a copy")
            )
        else:
            result.replaced.append(table.path)
    return result


def _missing(
    segment: Segment, first: int, sound: Sequence[SegmentFile], damaged: Sequence[SegmentFile]
) -> list[tuple[int, int]]:
    """Return the offsets from ``first`` that tables should hold and do not.

    Tables should hold all records of a sealed segment, and of an open one those before its last table. The segment's
    broker converts the rest, since it knows what is committed.
    """
    end = segment.end_offset
    if end is None:
        end = max((t.end_offset or 0 for t in (*sound, *damaged)), default=0)
    missing = uncovered(sound, first, end) if first < end else ()
    # Split at the edges of damaged tables: logs may have the records of one and lack those of another.
    edges = sorted({edge for table in damaged for edge in (table.base_offset, table.end_offset or 0)})
    cut: list[tuple[int, int]] = []
    for start, stop in missing:
        cut += pairwise([start, *(edge for edge in edges if start < edge < stop), stop])
    return cut


def _in_no_file(segment: Segment, start: int, end: int) -> Corrupt:
    return Corrupt(
        f"{segment}: offsets [{start}, {end}) are in no file, neither log nor table: they cannot be rebuilt; restore "
        "the file that had them from a copy"
    )


def _have(files: Sequence[SegmentFile], start: int, end: int) -> bool:
    """Whether a log may hold some of the offsets."""
    logs = [f for f in files if f.kind is FileKind.LOG and f.base_offset < end]
    return any((bound := log_end_bound(log, files)) is None or bound > start for log in logs)
