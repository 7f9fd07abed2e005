"""From a snapshot to Spark partitions: prune, cut large tables at row groups, put small files together.

Runs once a query, in the driver. File names alone decide about offsets; the footer of a table is read only if it is
large enough to cut or if timestamps are asked for. No data is read.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import NotFound
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import Topic
from seaweedmq.spark.table_scan import RowGroup, opened, row_groups
from seaweedmq.spark.window import Interval, ReadWindow
from seaweedmq.storage.snapshot import TopicSnapshot

PARTITION_BYTES_MAX = 64 * MIB
PARTITION_BYTES_MIN = 4 * MIB
"""A partition costs tens of milliseconds whatever its size."""
FILE_COST_BYTES = 256 * KIB
"""What opening a file costs, in bytes that could be read meanwhile."""
_FOOTER_THREADS = 8


class Partition(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """What one task reads, in order."""

    def __init__(self, pieces: tuple[SnapshotPiece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


def plan_partitions(
    root: Path, snapshot: TopicSnapshot, window: ReadWindow, cores: int | None = None
) -> list[Partition]:
    """Partitions that hold what the window wants of the snapshot, each record once.

    Raises:
        InvalidArgument: offsets are given for a segment that does not exist.
        Corrupt: files are missing or unreadable.
    """
    for segment_id in (*window.starting.by_segment, *window.ending.by_segment):
        snapshot.segment(segment_id)
    pieces: list[SnapshotPiece] = []
    for segment in snapshot.segments:
        wanted = window.of(segment)
        if wanted is not None:
            pieces += snapshot.plan(segment.id, *wanted)
    total_bytes = sum(p.size_bytes for p in pieces)
    target = min(PARTITION_BYTES_MAX, max(PARTITION_BYTES_MIN, total_bytes // (cores or os.cpu_count() or 1)))
    with ThreadPoolExecutor(_FOOTER_THREADS, "seaweedmq-footer") as pool:
        cut = pool.map(lambda piece: _cut(root, snapshot.topic, piece, window.timestamps, target), pieces)
        return [Partition(together) for together in _pack((p for part in cut for p in part), target)]


def slices(
    piece: SnapshotPiece, groups: Sequence[RowGroup], timestamps: Interval, target_bytes: int
) -> list[SnapshotPiece]:
    """Cut the piece of a table into runs of row groups of about ``target_bytes`` each, without those that hold no
    timestamp in the interval.
    """
    if piece.end_offset is None:
        raise AssertionError(f"{piece.files[0].path} is a table, and nobody knows where it ends")
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


def _cut(
    root: Path, topic: Topic, piece: SnapshotPiece, timestamps: Interval, target_bytes: int
) -> list[SnapshotPiece]:
    if piece.kind is FileKind.LOG or (piece.size_bytes <= target_bytes * 1.5 and not timestamps.is_bounded):
        return [piece]
    file = piece.files[0]
    try:
        with opened(root, file, topic) as table:
            return slices(piece, row_groups(file, table), timestamps, target_bytes)
    except NotFound:
        return [piece]  # it was expired since the listing; the reader finds out what is left


def _pack(pieces: Iterable[SnapshotPiece], target_bytes: int) -> Iterator[tuple[SnapshotPiece, ...]]:
    """Neighbours together, until they reach the target."""
    waiting: list[SnapshotPiece] = []
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
