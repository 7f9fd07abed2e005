"""Division of a read between a reader of Parquet, which gets the tables, and the scans of this package.

A reader of Parquet takes a table by its retained link, which outlives the table's replacement (``codec.paths``).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import NotFound
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.storage.plan.log_ends import end_of_logs
from seaweedmq.storage.plan.read_plan import plan_read
from seaweedmq.storage.plan.scan_ranges import BrokerRange, ScanRange
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import Interval, ReadWindow
from seaweedmq.storage.tables.opener import open_table
from seaweedmq.storage.tables.row_groups import row_groups

REPLANS_MAX = 3
"""Maximum number of plans: files may be converted, compacted or removed during planning."""
_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetPlan:
    """The division of a read between a reader of Parquet and scans."""

    whole: tuple[SegmentFile, ...]
    clipped: tuple[SnapshotPiece, ...]
    """Parts of tables."""
    ranges: dict[int, list[tuple[int, int]]]
    """Offset ranges to scan, by segment."""


def plan_parquet(
    source: TopicSource, window: ReadWindow, *, fail_on_data_loss: bool = True, with_tables: bool = True
) -> ParquetPlan:
    """Divide a read into whole tables, parts of tables, and ranges to scan.

    Reads the headers in log files, and reads and verifies the footer of every table. Plans again if files were deleted
    after they were listed. Without ``with_tables`` the tables are ranges as well. Raises NotFound if files were deleted
    during each plan; OutOfRange if requested offsets were removed, as in ``read_plan.plan_read``.
    """
    for attempt in range(REPLANS_MAX):
        try:
            ranges = plan_read(source, window, fail_on_data_loss=fail_on_data_loss)
            return divide(source, ranges, window.timestamps, with_tables=with_tables)
        except NotFound:
            if attempt == REPLANS_MAX - 1:
                raise
            source = source.relisted()
    raise AssertionError("the last attempt returns or raises")


def divide(
    source: TopicSource, ranges: Sequence[ScanRange], timestamps: Interval, *, with_tables: bool = True
) -> ParquetPlan:
    """Divide planned ranges, as :func:`plan_parquet` does; raises NotFound if a listed file was deleted."""
    tables = [r for r in ranges if with_tables and isinstance(r, SnapshotPiece) and r.kind is FileKind.TABLE]
    with ThreadPoolExecutor(_THREADS, "seaweedmq-footer") as pool:
        wanted = list(pool.map(lambda piece: _is_wanted(source, piece.files[0], timestamps), tables))
    whole, clipped = [], []
    for piece, is_wanted in zip(tables, wanted, strict=True):
        if is_wanted:
            file = piece.files[0]
            if (piece.start_offset, piece.end_offset) == (file.base_offset, file.end_offset):
                whole.append(file)
            else:
                clipped.append(piece)
    scanned: dict[int, list[tuple[int, int]]] = {}
    for each in ranges:
        if with_tables and isinstance(each, SnapshotPiece) and each.kind is FileKind.TABLE:
            continue
        end = _end_of(source, each)
        if end > each.start_offset:
            _add(scanned.setdefault(each.segment, []), each.start_offset, end)
    return ParquetPlan(whole=tuple(whole), clipped=tuple(clipped), ranges=scanned)


def _end_of(source: TopicSource, piece: ScanRange) -> int:
    if isinstance(piece, BrokerRange):
        return piece.end_offset
    if piece.end_offset is not None and (source.known is not None or piece.complete):
        return piece.end_offset
    return end_of_logs(source.storage, source.snapshot.topic, piece)


def _add(parts: list[tuple[int, int]], start: int, end: int) -> None:
    """Append a range, joined to the last one if they touch: ranges of one segment come in order."""
    if parts and parts[-1][1] == start:
        start = parts.pop()[0]
    parts.append((start, end))


def _is_wanted(source: TopicSource, file: SegmentFile, timestamps: Interval) -> bool:
    # By the link that the reader of Parquet is going to read: the table itself may be deleted since the listing.
    lasting = replace(file, path=source.storage.lasting_path(file.path))
    with (
        closing(source.storage.open_input(lasting)) as opened,
        open_table(opened, file, source.snapshot.topic) as table,
    ):
        if not timestamps.is_bounded:
            return True
        return any(g.timestamps is None or timestamps.overlaps(*g.timestamps) for g in row_groups(file, table))


def groups_of(pieces: Sequence[SnapshotPiece]) -> list[list[SnapshotPiece]]:
    """Group pieces that one filter on segment and offset may read: no table holds offsets of another in its group."""
    groups: list[list[SnapshotPiece]] = []
    for piece in pieces:
        group = next(
            (g for g in groups if not any(_overlaps_file(piece, other) or _overlaps_file(other, piece) for other in g)),
            None,
        )
        if group is None:
            groups.append([piece])
        else:
            group.append(piece)
    return groups


def _overlaps_file(piece: SnapshotPiece, other: SnapshotPiece) -> bool:
    file = other.files[0]
    end, file_end = piece.end_offset or 0, file.end_offset or 0
    return piece.segment == other.segment and piece.start_offset < file_end and file.base_offset < end
