"""Rebuilding of a topic's tables: what is missing or damaged is made again from log files, as far as there are some."""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from seaweedmq.core.files.cover import covered_up_to, uncovered
from seaweedmq.core.files.holes import first_needed
from seaweedmq.core.files.retention import log_end_bound
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.jobs.run import Progress, Run, attempt, no_progress, one_after_another
from seaweedmq.storage.snapshot import TopicSnapshot, list_files, list_removed, read_snapshot
from seaweedmq.storage.tables.compact import ROW_GROUP_BYTES, check_table
from seaweedmq.storage.tables.delta import rebuild_log
from seaweedmq.storage.tables.files import convert_files

DAMAGED_SUFFIX = ".damaged"
"""Behind a dot and the name of a table that was found damaged and made again."""


@dataclass(slots=True, kw_only=True)
class Rebuilt:
    """What a rebuilding came to."""

    topic: TopicName
    made: list[SegmentFile] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Damaged tables that were made again; what was there lies beside, hidden."""
    problems: list[SeaweedMQError] = field(default_factory=list)
    """One error for each file that cannot be rebuilt."""
    version: int | None = None
    """Of the Delta log, if it was written."""


class _Result(NamedTuple):
    made: list[SegmentFile]
    replaced: list[str]
    problems: list[SeaweedMQError]


def rebuild_topic(
    root: Path, name: TopicName, *, progress: Progress = no_progress, run: Run = one_after_another
) -> Rebuilt:
    """Make the tables that a topic should have, from its log files. Brokers may go on: what they have still to convert
    is left to them.

    Raises:
        InvalidArgument: there is no such directory. NotFound: no such topic. Corrupt: its documents are damaged.
        StorageFailed: the directory refused.
    """
    snapshot = read_snapshot(root, name)
    found = Rebuilt(topic=name)
    sizes = _sizes(snapshot)
    total, done = sum(sizes.values()), 0
    progress(0, total)
    for segment, result in run(partial(_rebuild, root, snapshot.topic), snapshot.segments):
        found.made += result.made
        found.replaced += result.replaced
        found.problems += result.problems
        done += sizes[segment.id]
        progress(done, total)
    found.made.sort(key=lambda f: (f.segment, f.base_offset))
    try:
        found.version = rebuild_log(root, snapshot.topic)
    except SeaweedMQError as error:  # the tables are made, and the next call writes the log
        found.problems.append(error)
    return found


def _sizes(snapshot: TopicSnapshot) -> dict[int, int]:
    sizes: defaultdict[int, int] = defaultdict(int)
    for file in snapshot.files:
        sizes[file.segment] += file.size_bytes
    return {segment.id: sizes[segment.id] for segment in snapshot.segments}


def _rebuild(root: Path, topic: Topic, segment: Segment) -> _Result:
    """One segment, on whatever machine."""
    result = _Result([], [], [])
    files = attempt(list_files, root, topic.name, [segment.id])
    if isinstance(files, SeaweedMQError):
        result.problems.append(files)
        return result
    tables = [f for f in files if f.kind is FileKind.TABLE]
    aside: list[SegmentFile] = []
    for table in tables:
        try:
            check_table(root, topic, table)
        except NotFound:
            continue  # merged, or expired
        except SeaweedMQError as error:
            if isinstance(error, Corrupt) and _have(files, table.base_offset, table.end_offset or 0):
                _hidden(root, table, away=True)
                aside.append(table)
            else:
                result.problems.append(error)
    sound = [t for t in tables if t not in aside]
    removed = attempt(list_removed, root, topic)  # after the files: retention records what it removes before it does
    if isinstance(removed, SeaweedMQError):
        result.problems.append(removed)
        return result
    first = first_needed(topic, segment, files, removed.get(segment.id, 0))
    for start, end in _missing(segment, first, sound, aside):
        logs = [f for f in files if f.kind is FileKind.LOG and f.base_offset < end]
        if not _have(files, start, end):
            result.problems.append(_in_no_file(segment, start, end))
            continue
        made = attempt(convert_files, root, topic, logs, end, ROW_GROUP_BYTES)
        if isinstance(made, SeaweedMQError):
            if not any(t.base_offset <= start and end <= (t.end_offset or 0) for t in aside):  # said below
                what = f"{segment}: offsets [{start}, {end}) cannot be rebuilt: {made}"
                result.problems.append(Corrupt(what) if isinstance(made, Corrupt) else made)
        else:
            known = {t.path for t in (*sound, *result.made)}
            result.made.extend(t for t in made if t.path not in known)
            if not any(t.base_offset <= start and end <= (t.end_offset or 0) for t in aside):
                left = uncovered([*sound, *result.made], start, end)
                result.problems.extend(_in_no_file(segment, *gap) for gap in left)
    for table in aside:
        if covered_up_to([*sound, *result.made], table.base_offset) < (table.end_offset or 0):
            _hidden(root, table, away=False)  # the logs had not all of it
            result.problems.append(
                Corrupt(f"{table.path} is damaged, and no log has all its records: restore it from a copy")
            )
        else:
            result.replaced.append(table.path)
    return result


def _missing(
    segment: Segment, first: int, sound: Sequence[SegmentFile], aside: Sequence[SegmentFile]
) -> list[tuple[int, int]]:
    """Return what tables should hold from ``first`` on and do not: of a sealed segment everything, of an open one what
    comes before a table. The rest is for its broker, which knows what is committed."""
    end = segment.end_offset
    if end is None:
        end = max((t.end_offset or 0 for t in (*sound, *aside)), default=0)
    missing = uncovered(sound, first, end) if first < end else ()
    # Each damaged table for itself: what logs have of the one is not to wait for what they lack of another.
    edges = sorted({edge for table in aside for edge in (table.base_offset, table.end_offset or 0)})
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
    """Whether there is a log that may hold some of it."""
    logs = [f for f in files if f.kind is FileKind.LOG and f.base_offset < end]
    return any((bound := log_end_bound(log, files)) is None or bound > start for log in logs)


def _hidden(root: Path, table: SegmentFile, *, away: bool) -> None:
    """Take a table out of the way of the one that is made in its place, or put it back."""
    path = root / table.path
    hidden = path.with_name(f".{path.name}{DAMAGED_SUFFIX}")
    with contextlib.suppress(FileNotFoundError):
        (path if away else hidden).rename(hidden if away else path)
