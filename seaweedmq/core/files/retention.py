"""Which files may go now. Stateless: the answer follows from the files' names, sizes and ages alone.

A log file may go once Parquet tables hold all its records and the last of them is older than the grace period, so that
readers which still have it open finish. In an open segment a later log file must be in tables, too, at least in part:
then that one is sound and fsynced, and tells recovery how far the producers got. A table may go once retention chose it
and the grace period has passed since, and all before it in its segment may go: no reader ever meets a hole. One that
doubles another goes in any case.

The age of a record is that of its table, by the clock of the storage. The publishers' timestamps play no part: a wrong
one would delete, or keep, what others sent.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from seaweedmq.core.files.cover import covered_since
from seaweedmq.model.files import FileKind, SegmentFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Times in microseconds; None means no limit."""

    log_grace_us: int
    retention_us: int | None = None
    retention_bytes: int | None = None
    """Of the tables of the whole topic."""


def broker_of(writer: str) -> str:
    """The broker that wrote a log file: it appends ``.1``, ``.2`` ... to its id for further files at one offset."""
    return writer.partition(".")[0]


def log_end_bound(log: SegmentFile, files: Iterable[SegmentFile]) -> int | None:
    """The offset up to which some file of its broker has what ``log`` was for, or could not be; None if its content
    alone tells.

    A broker begins a file where its last one ended, or earlier when it writes again what could not be fsynced. So the
    bound is the broker's next file. ``log`` may go on beyond it, where the next one did not get yet. None marks the
    broker's newest file: it may be appended to, and recovery needs it.
    """
    broker = broker_of(log.writer)
    later = (f.base_offset for f in files if f.kind is FileKind.LOG and broker_of(f.writer) == broker)
    return min((base for base in later if base > log.base_offset), default=None)


def _needed_until(log: SegmentFile, files: Iterable[SegmentFile], segment_end: int | None) -> int | None:
    """Tables hold all up to there before ``log`` may go; None: it stays. In an open segment the broker writes again
    what lies beyond its next file; once it is sealed, nobody does."""
    return log_end_bound(log, files) if segment_end is None else segment_end


def _tables(files: Iterable[SegmentFile]) -> list[SegmentFile]:
    return [f for f in files if f.kind is FileKind.TABLE]


def _last_proven_base(files: Iterable[SegmentFile]) -> int:
    """Where the last log file begins that has frames in a table, so that it is known to be no torso. 0: none has."""
    tables_end = max((f.end_offset or 0 for f in _tables(files)), default=0)
    return max((f.base_offset for f in files if f.kind is FileKind.LOG and f.base_offset < tables_end), default=0)


def is_unconverted(log: SegmentFile, files: Iterable[SegmentFile], segment_end: int | None) -> bool:
    """Whether a log file of a segment may hold records that no table holds."""
    bound = _needed_until(log, files, segment_end)
    return bound is None or covered_since(log.base_offset, bound, _tables(files)) is None


def expired_files(
    segments: Sequence[tuple[int | None, Sequence[SegmentFile]]], policy: RetentionPolicy, now_us: int
) -> list[SegmentFile]:
    """The files of one topic that may be deleted now, in the order in which they may be: logs before tables, tables of
    a segment by offset. A table goes only after all that lie before it in its segment.

    Args:
        segments: per segment its end offset (None while open) and its files.
        now_us: by the clock that dated the files.
    """
    logs: list[SegmentFile] = []
    ages: list[tuple[int, int, SegmentFile]] = []
    free: list[list[SegmentFile]] = []
    for number, (segment_end, files) in enumerate(segments):
        kept_logs: list[tuple[SegmentFile, int | None]] = []
        proven = math.inf if segment_end is not None else _last_proven_base(files)
        for log in (f for f in files if f.kind is FileKind.LOG):
            bound = _needed_until(log, files, segment_end)
            since = None if bound is None else covered_since(log.base_offset, bound, _tables(files))
            if (
                since is not None
                and log.base_offset < proven
                and max(since, log.modified_us) + policy.log_grace_us <= now_us
            ):
                logs.append(log)
            else:
                kept_logs.append((log, bound))
        tables = sorted(_tables(files), key=_reach)
        ages += [(us, number, table) for us, table in zip(stored_us(tables, now_us), tables, strict=True)]
        # A table outlives the logs it was made of, or they would be converted once more.
        held = [any(_overlaps(table, *kept) for kept in kept_logs) for table in tables]
        free.append(tables[: held.index(True)] if True in held else tables)
    chosen_us = _chosen_by_retention(ages, policy)
    going: list[SegmentFile] = []
    for tables in free:
        going += takewhile(
            lambda t: t.path in chosen_us and chosen_us[t.path] + policy.log_grace_us <= now_us,
            tables,
        )
    going += (t for _, files in segments for t in _doubled(files) if t.modified_us + policy.log_grace_us <= now_us)
    going = list({table.path: table for table in going}.values())
    return sorted(logs, key=lambda f: (f.modified_us, f.base_offset, f.path)) + going


def stored_us(tables: Sequence[SegmentFile], now_us: int) -> list[int]:
    """When each of a segment's tables, by offset, was stored at the latest: never falls from one to the next.

    They were made in this order, whatever the clocks of the machines that wrote them said. So a table is as young as
    the youngest before it; and what a clock dated ahead of ``now_us`` is not younger than the next that was not.
    """
    ages: list[int] = []
    later = now_us
    for table in reversed(tables):
        if table.modified_us <= now_us:
            later = table.modified_us
        ages.append(later)
    return list(accumulate(reversed(ages), max))


def _chosen_by_retention(ages: Sequence[tuple[int, int, SegmentFile]], policy: RetentionPolicy) -> dict[str, int]:
    """Path -> the moment at which retention chose the table, perhaps in the future; given when each was stored.

    By size a table is chosen at the moment when a younger one took the sum of all from it on over the limit.
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


def _doubled(files: Iterable[SegmentFile]) -> Iterator[SegmentFile]:
    """Tables of a segment all of whose records another one has: converters that did not see each other made both."""
    reached = 0
    for table in sorted(_tables(files), key=lambda t: (t.base_offset, -(t.end_offset or 0))):
        if (table.end_offset or 0) <= reached:
            yield table
        reached = max(reached, table.end_offset or 0)


def _overlaps(table: SegmentFile, log: SegmentFile, bound: int | None) -> bool:
    end = table.end_offset or 0
    return log.base_offset < end and (bound is None or table.base_offset < bound)


def _reach(table: SegmentFile) -> tuple[int, int]:
    """In this order of a segment's tables any number of the first may go without a hole, even if some overlap."""
    return table.end_offset or 0, table.base_offset
