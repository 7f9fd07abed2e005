"""Which files may go now. Stateless: the answer follows from the files' names, sizes and ages alone.

A log file may go once Parquet tables hold all its records and the last of them is older than the grace period, so that
readers which still have it open finish. A table may go once retention chose it and the grace period has passed since.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


class StoredFile(Protocol):
    """What is needed of a ``ports.SegmentFile``."""

    @property
    def kind(self) -> str:
        """ "log" or "table"."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int | None: ...

    @property
    def writer(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def modified_us(self) -> int: ...

    @property
    def path(self) -> str: ...


F = TypeVar("F", bound=StoredFile)


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


def log_end_bound(log: StoredFile, files: Iterable[StoredFile], segment_end: int | None) -> int | None:
    """The offset where the records that only ``log`` may hold end; None if its content alone tells.

    A broker begins a file where its last one ended, or earlier when it writes again what could not be fsynced. So the
    bound is the broker's next file, or the end of the sealed segment. None marks the broker's newest file of an open
    segment: it may be appended to, and recovery needs it.
    """
    broker = broker_of(log.writer)
    later = (f.base_offset for f in files if f.kind == "log" and broker_of(f.writer) == broker)
    following = min((base for base in later if base > log.base_offset), default=None)
    bounds = [b for b in (following, segment_end) if b is not None]
    return min(bounds) if bounds else None


def covered_since(base: int, end: int, tables: Iterable[F]) -> int | None:
    """When tables came to hold all of ``[base, end)``: the age of the youngest of them; None if they do not."""
    since, position = 0, base
    for table in sorted((t for t in tables if t.kind == "table"), key=lambda t: t.base_offset):
        if position >= end:
            break
        if table.end_offset is None or table.end_offset <= position:
            continue
        if table.base_offset > position:
            return None
        position = table.end_offset
        since = max(since, table.modified_us)
    return since if position >= end else None


def expired_files(segments: Sequence[tuple[int | None, Sequence[F]]], policy: RetentionPolicy, now_us: int) -> list[F]:
    """The files of one topic that may be deleted now; logs before tables, each oldest first.

    Args:
        segments: per segment its end offset (None while open) and its files.
        now_us: wall clock of the storage, as the files' ``modified_us``.
    """
    kept_logs: list[tuple[F, int | None]] = []
    logs: list[F] = []
    tables: list[F] = []
    for segment_end, files in segments:
        kept_logs.clear()
        for log in (f for f in files if f.kind == "log"):
            bound = log_end_bound(log, files, segment_end)
            since = None if bound is None else covered_since(log.base_offset, bound, files)
            if since is not None and max(since, log.modified_us) + policy.log_grace_us <= now_us:
                logs.append(log)
            else:
                kept_logs.append((log, bound))
        # A table outlives the logs it was made of, or they would be converted once more.
        tables += [f for f in files if f.kind == "table" and not any(_overlaps(f, *kept) for kept in kept_logs)]
    every_table = [f for _, files in segments for f in files if f.kind == "table"]
    chosen_us = _chosen_by_retention(every_table, policy)
    going = [t for t in tables if t.path in chosen_us and chosen_us[t.path] + policy.log_grace_us <= now_us]
    return sorted(logs, key=_age) + sorted(going, key=_age)


def _chosen_by_retention(tables: Sequence[F], policy: RetentionPolicy) -> dict[str, int]:
    """Path -> the moment at which retention chose the table, perhaps in the future.

    By size a table is chosen at the moment when a younger one took the sum of all from it on over the limit.
    """
    chosen: dict[str, int] = {}
    if policy.retention_us is not None:
        chosen = {t.path: t.modified_us + policy.retention_us for t in tables}
    if policy.retention_bytes is not None:
        ordered = sorted(tables, key=_age)
        total, last = 0, 0
        for first, table in enumerate(ordered):
            while last < len(ordered) and total <= policy.retention_bytes:
                total += ordered[last].size_bytes
                last += 1
            if total <= policy.retention_bytes:
                break
            moment = ordered[last - 1].modified_us
            chosen[table.path] = min(moment, chosen.get(table.path, moment))
            total -= ordered[first].size_bytes
    return chosen


def _overlaps(table: StoredFile, log: StoredFile, bound: int | None) -> bool:
    end = table.end_offset or 0
    return log.base_offset < end and (bound is None or table.base_offset < bound)


def _age(file: StoredFile) -> tuple[int, int, str]:
    return file.modified_us, file.base_offset, file.path
