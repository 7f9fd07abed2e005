"""Compaction of a topic: complete an interrupted one, plan merges, merge on any machine, publish one by one."""

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from seaweedmq.core.files.compaction import TARGET_BYTES, TableMerge, merges, target_table_bytes
from seaweedmq.errors import Corrupt, InvalidArgument, NotFound, SeaweedMQError, Unavailable, Unsupported
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.jobs.run import Progress, Run, attempt, no_progress, one_after_another
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import TopicSnapshot, list_files, read_snapshot
from seaweedmq.storage.tables.compact import kind_of, merge_tables, publish_merge, remove_superseded
from seaweedmq.storage.tables.delta.updater import reconcile
from seaweedmq.storage.tables.delta.versions import tables_in_use


@dataclass(slots=True, kw_only=True)
class Compaction:
    """The result of a compaction."""

    topic: TopicName
    tables_before: int = 0
    tables_after: int = 0
    made: list[SegmentFile] = field(default_factory=list)
    merged: int = 0
    """Number of tables that ``made`` replaced."""
    merged_bytes: int = 0
    finished: int = 0
    """Number of removed tables that an earlier compaction had replaced and left."""
    problems: list[SeaweedMQError] = field(default_factory=list)
    """Errors of damaged or foreign tables, which are unchanged; the others were merged."""
    elsewhere: list[SeaweedMQError] = field(default_factory=list)
    """Errors of tables that another process merged or removed meanwhile."""
    version: int | None = None
    """Version of the Delta log; None if it was not written."""


def compact_topic(
    place: Place,
    name: TopicName,
    *,
    target_bytes: int = TARGET_BYTES,
    progress: Progress = no_progress,
    run: Run = one_after_another,
) -> Compaction:
    """Merge the small tables of a topic by the rules of ``core.files.compaction``.

    Brokers may write and readers read meanwhile. After a kill at any point, the next call resumes. The errors are those
    of ``snapshot.read_snapshot``, and InvalidArgument if the target is below 1.
    """
    if target_bytes < 1:
        raise InvalidArgument(f"target of {target_bytes} bytes is below 1: give a size of tables like 256MiB")
    snapshot = read_snapshot(place, name)
    found = Compaction(topic=name)
    with contextlib.suppress(Corrupt, Unsupported):  # the update of the log below reports it
        in_use = tables_in_use(place, snapshot.topic)
        for segment in snapshot.segments:
            removed, refused = remove_superseded(place, snapshot.topic, segment.id, in_use)
            found.finished += len(removed)
            found.problems += refused
    snapshot = read_snapshot(place, name)
    planned = plan(place, snapshot, target_bytes)
    found.tables_before = sum(f.kind is FileKind.TABLE for f in snapshot.files)
    total, done = sum(merge.size_bytes for merge in planned), 0
    progress(0, total)
    for merge, made in run(partial(attempt, merge_tables, place, snapshot.topic), planned):
        table = made if isinstance(made, SeaweedMQError) else attempt(publish_merge, place, snapshot.topic, merge, made)
        if isinstance(table, SegmentFile):
            found.made.append(table)
            found.merged += len(merge.tables)
            found.merged_bytes += merge.size_bytes
        elif isinstance(table, NotFound | Unavailable):
            found.elsewhere.append(table)
        else:
            found.problems.append(table)
        done += merge.size_bytes
        progress(done, total)
    try:
        found.version = reconcile(place, snapshot.topic)
    except SeaweedMQError as error:  # the merges are complete, and the next call updates the log
        found.problems.append(error)
    after = list_files(place, name, [s.id for s in snapshot.segments])
    found.tables_after = sum(f.kind is FileKind.TABLE for f in after)
    return found


def plan(place: Place, snapshot: TopicSnapshot, target_bytes: int) -> list[TableMerge]:
    """Plan the merges of all segments; tables below a low watermark are left to be removed."""
    target = target_table_bytes(target_bytes, snapshot.topic.retention_bytes)
    files: defaultdict[int, list[SegmentFile]] = defaultdict(list)
    for file in snapshot.files:
        if file.kind is FileKind.TABLE:
            files[file.segment].append(file)
    found: list[TableMerge] = []
    for segment in snapshot.segments:
        low = snapshot.topic.low_watermark(segment.slots)
        live = [t for t in files[segment.id] if (t.end_offset or 0) > low]
        found += merges(live, target, partial(kind_of, place, snapshot.topic))
    return found
