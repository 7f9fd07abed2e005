"""Partitions of a read: prunes files, splits large tables at row groups, and groups small files.

Runs once per query, in the driver, and reads no records. File names alone decide about offsets. The footer of a table
is read only if the table is large enough to split or if timestamps are requested.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import NotFound
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.files import FileKind
from seaweedmq.storage.plan.log_ends import end_of_logs
from seaweedmq.storage.plan.read_plan import plan_read
from seaweedmq.storage.plan.scan_ranges import BrokerRange, ScanRange
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import Interval, ReadWindow
from seaweedmq.storage.tables.row_groups import RowGroup, opened, row_groups

PARTITION_BYTES_MAX = 64 * MIB
PARTITION_BYTES_MIN = 4 * MIB
"""Minimum size of a partition: each costs tens of milliseconds, regardless of its size."""
FILE_COST_BYTES = 256 * KIB
"""Cost of opening a file, as bytes that could be read meanwhile."""
_FOOTER_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The division of records into partitions that the user requested."""

    partitions_min: int | None = None
    """Minimum number of partitions, if there are as many records."""
    records_max: int | None = None
    """Maximum number of records per partition."""


def plan_partitions(
    source: TopicSource,
    window: ReadWindow,
    cores: int | None = None,
    *,
    sharing: Sharing = Sharing(),
    fail_on_data_loss: bool = True,
) -> list[tuple[ScanRange, ...]]:
    """Return partitions for so many cores (None: all of the machine) that hold the requested records, each once."""
    pieces = plan_read(source, window, fail_on_data_loss=fail_on_data_loss)
    total_bytes = sum(p.size_bytes for p in pieces)
    target = min(PARTITION_BYTES_MAX, max(PARTITION_BYTES_MIN, total_bytes // (cores or os.cpu_count() or 1)))
    if sharing.partitions_min is not None:
        target = max(1, min(target, total_bytes // sharing.partitions_min))
    with ThreadPoolExecutor(_FOOTER_THREADS, "seaweedmq-footer") as pool:
        cut = pool.map(lambda piece: _cut(source, piece, window.timestamps, target), pieces)
        if sharing == Sharing():
            return [*_pack((p for part in cut for p in part), target)]
        return shared([e for part in cut for p in part for e in _ended(source, p)], sharing)


def shared(pieces: Sequence[ScanRange], sharing: Sharing) -> list[tuple[ScanRange, ...]]:
    """Return partitions of at most ``records_max`` offsets, at least ``partitions_min``; all pieces have an end."""
    counts = [_count(piece) for piece in pieces]
    total = sum(counts)
    share = sharing.records_max or max(1, total)
    if sharing.partitions_min is not None:
        share = min(share, max(1, -(-total // sharing.partitions_min)))
    return [(part,) for piece, count in zip(pieces, counts, strict=True) for part in _evenly(piece, -(-count // share))]


def _ended(source: TopicSource, piece: ScanRange) -> Iterator[ScanRange]:
    """Yield the piece up to the current end of its log files, if it is not empty."""
    if isinstance(piece, BrokerRange) or piece.end_offset is not None:
        yield piece
    elif (end := end_of_logs(source.storage, source.snapshot.topic, piece)) > piece.start_offset:
        yield replace(piece, end_offset=end)


def _count(piece: ScanRange) -> int:
    return 0 if piece.end_offset is None else piece.end_offset - piece.start_offset


def _evenly(piece: ScanRange, parts: int) -> Iterator[ScanRange]:
    count = _count(piece)
    if parts <= 1:
        yield piece
        return
    edges = [piece.start_offset + count * i // parts for i in range(parts + 1)]
    for start, end in pairwise(edges):
        if isinstance(piece, BrokerRange):
            yield replace(
                piece, start_offset=start, end_offset=end, from_earliest=piece.from_earliest and start == edges[0]
            )
        else:
            yield replace(piece, start_offset=start, end_offset=end)


def slices(
    piece: SnapshotPiece, groups: Sequence[RowGroup], timestamps: Interval, target_bytes: int
) -> list[SnapshotPiece]:
    """Split the piece of a table into about ``target_bytes``, without row groups outside the interval."""
    assert piece.end_offset is not None, f"{piece.files[0].path} is a table without an end offset"
    kept = [
        g
        for g in groups
        if g.end_offset > piece.start_offset
        and g.base_offset < piece.end_offset
        and (g.timestamps is None or timestamps.overlaps(*g.timestamps))
    ]
    count = max(1, round(sum(g.size_bytes for g in kept) / target_bytes))
    share_bytes = sum(g.size_bytes for g in kept) / count
    runs: list[list[RowGroup]] = []
    taken = 0.0
    for group in kept:
        new_share = taken >= share_bytes * len(runs)
        if not runs or runs[-1][-1].end_offset != group.base_offset or new_share:
            runs.append([])
        runs[-1].append(group)
        taken += group.size_bytes
    return [
        replace(
            piece,
            start_offset=max(piece.start_offset, run[0].base_offset),
            end_offset=min(piece.end_offset, run[-1].end_offset),
        )
        for run in runs
    ]


def _cut(source: TopicSource, piece: ScanRange, timestamps: Interval, target_bytes: int) -> Sequence[ScanRange]:
    if (
        isinstance(piece, BrokerRange)
        or piece.kind is FileKind.LOG
        or (piece.size_bytes <= target_bytes * 1.5 and not timestamps.is_bounded)
    ):
        return [piece]
    file = piece.files[0]
    try:
        with opened(source.storage, file, source.snapshot.topic) as table:
            return slices(piece, row_groups(file, table), timestamps, target_bytes)
    except NotFound:
        return [piece]  # the table was removed after the listing; the reader lists what is left


def _pack(pieces: Iterable[ScanRange], target_bytes: int) -> Iterator[tuple[ScanRange, ...]]:
    """Group neighboring pieces up to the target size."""
    waiting: list[ScanRange] = []
    waiting_bytes = 0
    for piece in pieces:
        cost = piece.size_bytes + FILE_COST_BYTES
        if waiting and waiting_bytes + cost > target_bytes * 1.1:
            yield tuple(waiting)
            waiting, waiting_bytes = [], 0
        waiting.append(piece)
        waiting_bytes += cost
    if waiting:
        yield tuple(waiting)
