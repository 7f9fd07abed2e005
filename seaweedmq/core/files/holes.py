"""Explanation of missing records: which offsets of a segment retention or a low watermark removed.

Retention and low watermarks only remove the first records of a segment. So every segment has one offset from which each
committed record must be in a file or in its primary's memory; a record that is missing there is lost. Before retention
deletes files, it records in the storage how far it removed a segment (``codec.paths.removed_dir``), so that the
explanation outlives the setting.
"""

from collections.abc import Iterable, Mapping

from seaweedmq.core.files.cover import uncovered
from seaweedmq.errors import DataLoss
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


def first_needed(topic: Topic, segment: Segment, files: Iterable[SegmentFile], removed_below: int) -> int:
    """Return the offset from which every committed record of the segment must exist, at most its end.

    Files that begin at or above the end do not count. ``removed_below`` is what retention recorded; 0 for nothing.
    """
    lowest = max(segment.start_offset, topic.low_watermark(segment.slots), removed_below)
    return first_kept(topic, files, lowest, segment.end_offset)


def first_kept(topic: Topic, files: Iterable[SegmentFile], lowest: int, end: int | None) -> int:
    """Return the first offset of a segment from ``lowest`` on that retention kept.

    Below ``lowest`` the segment never had records, or they are known to be removed. ``end`` is None while it is open;
    files that begin at or above it do not count.
    """
    needed = lowest
    if topic.expires:
        bases = [f.base_offset for f in files if end is None or f.base_offset < end]
        # A broker may have cleaned an expiring topic without recording it, as on a full disk.
        needed = max(needed, min(bases, default=needed if end is None else end))
    return needed if end is None else min(needed, end)


def removed_by(files: Iterable[SegmentFile], expired: Iterable[SegmentFile]) -> Mapping[int, int]:
    """Return the offset below which the deletion of some tables removes each segment's records, by segment id.

    Records that another table of the segment holds are not removed. Log files remove nothing: each goes only once
    tables hold its records (``core.files.retention``).
    """
    going = {file.path for file in expired}
    tables: dict[int, list[SegmentFile]] = {}
    for file in files:
        if file.kind is FileKind.TABLE and file.path not in going:
            tables.setdefault(file.segment, []).append(file)
    removed: dict[int, int] = {}
    for file in expired:
        if file.kind is not FileKind.TABLE or file.end_offset is None:
            continue
        for _, end in uncovered(tables.get(file.segment, ()), file.base_offset, file.end_offset):
            removed[file.segment] = max(end, removed.get(file.segment, 0))
    return removed


def missing_records(topic: Topic, segment: int, start: int, end: int, cut: SegmentFile | None = None) -> DataLoss:
    """Return the error for committed records ``[start, end)`` of a segment that are in no file.

    ``cut`` is the log file that ends where the gap begins, if any: it may have been truncated.
    """
    where = "" if cut is None else f"; {cut.path} ends before them, it may be truncated"
    return DataLoss(f"{loss_text(topic, segment, start, end)}{where}: {REMEDY}", start, end)


REMEDY = (
    'restore the missing log files or tables from a copy, or skip the gap: on_missing="skip", failOnDataLoss='
    "false in Spark, a seek or DeleteRecords in Kafka"
)


def loss_text(topic: Topic, segment: int, start: int, end: int) -> str:
    """Return the description of a gap: which records are missing, and why nothing explains it."""
    retention = (
        "its retention removes only the first records of a segment" if topic.expires else "the topic has no retention"
    )
    return (
        f"{topic.name}#{segment}: records of offsets [{start}, {end}) are missing: no file holds them, "
        f"{retention}, and no low watermark is above them"
    )
