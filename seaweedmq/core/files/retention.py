"""Selection of the files that may be deleted now, from their names, sizes and ages alone.

A log file may go once tables hold all its records and the youngest of these tables is older than the grace period.
Until then, readers that have the log open can finish. In an open segment, a later log file must also be in tables, at
least in part. That proves that the later file is sound and flushed, so that recovery finds the producer state there. A
log file that was flushed before it got its name proves the same without a record: the primary of an idle segment
creates one, so that the others may go.

A table may go once retention selected it, the grace period has passed since, and all tables before it in its segment
may go: readers never meet a hole. A table below the low watermark may go, and a superseded one in any case. If a topic
requests it, its logs stay longer, but not longer than their tables.

The age of a record is that of its table, by the clock of the storage. Publishers' timestamps do not matter: a wrong one
would delete or keep the records of others. The storage's clock may have been wrong at that time, and the broker's may
be now. So each period ends only by the time confirmed for it (``core.clock_doubt``), and the last listing without a
table limits the table's age (``seen_tables``).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import NamedTuple

from seaweedmq.core.files.compaction import superseded
from seaweedmq.core.files.cover import covered_since
from seaweedmq.model.config import US_PER_S, BrokerConfig
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The limits for a topic's files. Times in microseconds; None means no limit."""

    log_grace_us: int
    log_retention_us: float = 0
    """Time for which logs stay once in tables, if above the grace period, but no longer than their tables."""
    retention_us: int | None = None
    retention_bytes: int | None = None
    """Limit of the total size of the topic's tables."""


def retention_policy(topic: Topic, config: BrokerConfig) -> RetentionPolicy:
    """Return the limits for the topic's files; tables go by age and size only if its ``cleanup.policy`` deletes."""
    kept_s = topic.settings.log_kept_s
    expires = topic.settings.expires
    return RetentionPolicy(
        log_grace_us=int(config.log_grace_s * US_PER_S),
        log_retention_us=0 if kept_s is None else kept_s * US_PER_S,
        retention_us=int(topic.retention_s * US_PER_S) if expires and topic.retention_s is not None else None,
        retention_bytes=topic.retention_bytes if expires else None,
    )


def expires_after_s(topic: Topic) -> float | None:
    """Return the age in seconds from which retention may remove a record; 0 with a size limit, None if unlimited."""
    if not topic.settings.expires:
        return None
    return topic.retention_s if topic.retention_bytes is None else 0.0


SYNCED = "synced"
"""Mark in the writer's name, after the broker id: the file was flushed before it got its name."""


def synced_writer(broker: str, repeats: int) -> str:
    """Return the writer's name of a log file that is flushed before it gets its name; ``repeats`` makes it unique."""
    return f"{broker}.{SYNCED}{repeats or ''}"


def is_synced(log: SegmentFile) -> bool:
    """Whether the log file was flushed before it got its name, so that its preamble is complete."""
    return log.writer.partition(".")[2].startswith(SYNCED)


def broker_of(writer: str) -> str:
    """Return the broker that wrote a log file: it appends ``.1``, ``.2`` ... to its id for more files at one offset."""
    return writer.partition(".")[0]


def log_end_bound(log: SegmentFile, files: Iterable[SegmentFile]) -> int | None:
    """Return the end of the offsets that ``log`` is needed for, None if only its content shows the end.

    A broker begins a file where its last one ended, or earlier when it rewrites frames after a failed fsync. So the
    bound is the base of the broker's next file. ``log`` may continue beyond it, to offsets that the next file has not
    reached. None marks the broker's newest file: it may be appended to, and recovery needs it.
    """
    broker = broker_of(log.writer)
    later = (f.base_offset for f in files if f.kind is FileKind.LOG and broker_of(f.writer) == broker)
    return min((base for base in later if base > log.base_offset), default=None)


def _needed_until(log: SegmentFile, files: Iterable[SegmentFile], segment_end: int | None) -> int | None:
    """Return the offset up to which tables must hold everything before ``log`` may go, None if it stays.

    In an open segment, the broker writes frames beyond its next file again. In a sealed one, no broker does.
    """
    return log_end_bound(log, files) if segment_end is None else segment_end


def _tables(files: Iterable[SegmentFile]) -> list[SegmentFile]:
    return [f for f in files if f.kind is FileKind.TABLE]


def _last_proven_base(files: Iterable[SegmentFile]) -> int:
    """Return the base of the last log file proven complete, by its name or its frames in a table; 0 if none is."""
    tables_end = max((f.end_offset or 0 for f in _tables(files)), default=0)
    logs = (f for f in files if f.kind is FileKind.LOG)
    return max((f.base_offset for f in logs if f.base_offset < tables_end or is_synced(f)), default=0)


def is_unconverted(log: SegmentFile, files: Iterable[SegmentFile], segment_end: int | None) -> bool:
    """Whether a log file of a segment may hold records that no table holds."""
    bound = _needed_until(log, files, segment_end)
    return bound is None or covered_since(log.base_offset, bound, _tables(files)) is None


class Listed(NamedTuple):
    """The listing of one segment's files."""

    end_offset: int | None
    """End offset of the segment, None while it is open."""
    files: Sequence[SegmentFile]
    low_watermark: int = 0
    """Offset below which records are deleted."""
    absent: Sequence[tuple[int, int]] = ()
    """Listings in which tables were absent: see ``SeenTables.absent``."""


def confirmed_files(
    segments: Sequence[Listed], policy: RetentionPolicy, confirmed_us: Callable[[float], int]
) -> list[SegmentFile]:
    """Return the files of one topic that may be deleted now, in the order of :func:`expired_files`.

    Each period counts by the time that is confirmed for it: ``confirmed_us`` returns a lower bound of the current time
    for files that are kept for a given number of seconds.
    """
    periods_us = {policy.log_grace_us, policy.log_retention_us, policy.retention_us or 0}
    now_us = {period_us: confirmed_us(period_us / US_PER_S) for period_us in periods_us}
    if max(now_us.values()) - min(now_us.values()) < US_PER_S:
        return expired_files(segments, policy, min(now_us.values()))
    found: dict[str, SegmentFile] = {}
    for period_us in sorted(periods_us):
        known = replace(
            policy,
            log_retention_us=math.inf if policy.log_retention_us > period_us else policy.log_retention_us,
            retention_us=None if (policy.retention_us or 0) > period_us else policy.retention_us,
        )
        if period_us >= policy.log_grace_us:
            found |= {f.path: f for f in expired_files(segments, known, now_us[period_us]) if f.path not in found}
    return list(found.values())


def expired_files(segments: Sequence[Listed], policy: RetentionPolicy, now_us: int) -> list[SegmentFile]:
    """Return the files of one topic that may be deleted now, in a safe order: logs before tables, tables by offset.

    A table is deleted only after all tables before it in its segment. ``segments`` are all that the topic has files of;
    ``now_us`` is by the clock that dated the files.
    """
    twice = {table.path: table for segment in segments for table in superseded(segment.files, segment.low_watermark)}
    """Superseded tables by path. Their age and size do not matter, since others have their records. They go first."""
    staying = [table for table in twice.values() if table.modified_us + policy.log_grace_us > now_us]
    segments = [_dated(segment, now_us) for segment in segments]
    ordered = [sorted((t for t in _tables(s.files) if t.path not in twice), key=_reach) for s in segments]
    ages = [
        (us, number, table)
        for number, tables in enumerate(ordered)
        for us, table in zip(stored_us(tables, now_us), tables, strict=True)
    ]
    chosen_us = _chosen_by_retention(ages, policy)
    for us, number, table in ages:
        if (table.end_offset or 0) <= segments[number].low_watermark:
            chosen_us[table.path] = us
    due = {path for path, us in chosen_us.items() if us + policy.log_grace_us <= now_us}
    logs: list[SegmentFile] = []
    free: list[list[SegmentFile]] = []
    for segment, tables in zip(segments, ordered, strict=True):
        kept_logs: list[tuple[SegmentFile, int | None]] = []
        proven = math.inf if segment.end_offset is not None else _last_proven_base(segment.files)
        for log in (f for f in segment.files if f.kind is FileKind.LOG):
            bound = _needed_until(log, segment.files, segment.end_offset)
            since = None if bound is None else covered_since(log.base_offset, bound, tables)
            if (
                since is not None
                and log.base_offset < proven
                and max(since, log.modified_us) + policy.log_grace_us <= now_us
                and (
                    max(since, log.modified_us) + policy.log_retention_us <= now_us
                    or all(table.path in due for table in tables if _overlaps(table, log, bound))
                )
            ):
                logs.append(log)
            else:
                kept_logs.append((log, bound))
        # A table outlives the logs it was made from, or they would be converted again.
        # It also outlives the tables it supersedes, or their remains would become live.
        held = [
            any(_overlaps(table, *kept) for kept in kept_logs) or any(_has_part_of(table, other) for other in staying)
            for table in tables
        ]
        free.append(tables[: held.index(True)] if True in held else tables)
    going = [table for table in twice.values() if table not in staying]
    for tables in free:
        going += takewhile(lambda t: t.path in due, tables)
    return sorted(logs, key=lambda f: (f.modified_us, f.base_offset, f.path)) + going


def stored_us(tables: Sequence[SegmentFile], now_us: int) -> list[int]:
    """Return the latest time at which each of a segment's tables, by offset, was stored. The times never fall.

    Tables were made in this order, although the clocks of their writers may disagree. So a table is as young as the
    youngest one before it. A table dated after ``now_us`` is at most as young as the next one that is not.
    """
    ages: list[int] = []
    later = now_us
    for table in reversed(tables):
        if table.modified_us <= now_us:
            later = table.modified_us
        ages.append(later)
    return list(accumulate(reversed(ages), max))


def _dated(segment: Listed, now_us: int) -> Listed:
    """Date tables by the last listing that lacked them, if their own dates are earlier."""
    if not segment.absent:
        return segment
    files = []
    for file in segment.files:
        if file.kind is FileKind.TABLE:
            ago_us = min((ago for end, ago in segment.absent if end < (file.end_offset or 0)), default=now_us)
            if file.modified_us < now_us - ago_us:
                file = replace(file, modified_us=now_us - ago_us)
        files.append(file)
    return segment._replace(files=files)


def _chosen_by_retention(ages: Sequence[tuple[int, int, SegmentFile]], policy: RetentionPolicy) -> dict[str, int]:
    """Return the time, perhaps in the future, at which retention selected each table, by path.

    The size limit selects a table when a younger one raises the sum from the table on above the limit. ``ages`` has
    each table with the time when it was stored and the index of its segment.
    """
    chosen: dict[str, int] = {}
    if policy.retention_us is not None:
        chosen = {table.path: us + policy.retention_us for us, _, table in ages}
    if policy.retention_bytes is not None:
        ordered = sorted(ages, key=lambda entry: (entry[0], entry[1], _reach(entry[2])))
        total, last = 0, 0
        for _, _, table in ordered:
            while last < len(ordered) and total <= policy.retention_bytes:
                total += ordered[last][2].size_bytes
                last += 1
            if total <= policy.retention_bytes:
                break
            moment = ordered[last - 1][0]
            chosen[table.path] = min(moment, chosen.get(table.path, moment))
            total -= table.size_bytes
    return chosen


def _overlaps(table: SegmentFile, log: SegmentFile, bound: int | None) -> bool:
    end = table.end_offset or 0
    return log.base_offset < end and (bound is None or table.base_offset < bound)


def _has_part_of(table: SegmentFile, other: SegmentFile) -> bool:
    is_beside = (other.end_offset or 0) <= table.base_offset or (table.end_offset or 0) <= other.base_offset
    return table.segment == other.segment and not is_beside


def _reach(table: SegmentFile) -> tuple[int, int]:
    """Return a table's sort key in its segment: deleting the first leaves no hole, even if some overlap."""
    return table.end_offset or 0, table.base_offset
