"""Partitions of reads: their sizes, and the files that planning opens."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import Corrupt
from seaweedmq.spark.options import parse_options
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.plan.partitions import plan_partitions, slices
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import Interval, ReadWindow
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.tables.row_groups import RowGroup
from tests.core.files.segment_files import table
from tests.support.topic_files import NOON_US, STEP_US, TopicFiles

REQUIRED = {"storage": "/data", "topic": "shop/orders"}


def piece_of(groups: list[RowGroup]) -> SnapshotPiece:
    base, end = groups[0].base_offset, groups[-1].end_offset
    file = table(base, end, size_bytes=sum(g.size_bytes for g in groups))
    return SnapshotPiece(segment=0, start_offset=base, end_offset=end, files=(file,), complete=True)


def groups_of(sizes: list[int], rows: int = 100) -> list[RowGroup]:
    return [RowGroup(i, i * rows, (i + 1) * rows, size, (i * 10, i * 10 + 9)) for i, size in enumerate(sizes)]


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    target=st.integers(1, 200),
    lo=st.integers(-5, 420),
    width=st.integers(1, 420),
)
def test_slices_hold_every_group_in_time_once(sizes: list[int], target: int, lo: int, width: int) -> None:
    groups = groups_of(sizes)
    interval = Interval(lo, lo + width)
    kept = [g for g in groups if g.timestamps is not None and interval.overlaps(*g.timestamps)]
    found = slices(piece_of(groups), groups, interval, target)
    held = [offset for s in found for offset in range(s.start_offset, s.end_offset or 0)]
    assert held == [offset for g in kept for offset in range(g.base_offset, g.end_offset)]
    if kept == groups:
        assert len(found) <= max(1, round(sum(sizes) / target))


def test_a_large_table_is_cut_evenly() -> None:
    groups = groups_of([16] * 10)
    assert [(s.start_offset, s.end_offset) for s in slices(piece_of(groups), groups, Interval(), 80)] == [
        (0, 500),
        (500, 1_000),
    ]


def test_offsets_decide_without_opening_a_file(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    for start in range(0, 100, 20):
        orders.table(start, start + 20)
    for file in orders.files():
        (tmp_path / file.path).write_bytes(b"not Parquet at all")
    source = TopicSource(place=DirectoryPlace(tmp_path), snapshot=read_snapshot(DirectoryPlace(tmp_path), orders.name))
    window = parse_options({**REQUIRED, "startingOffsets": "30", "endingOffsets": "41"}).window
    (partition,) = plan_partitions(source, window)
    assert [(p.start_offset, p.end_offset) for p in partition] == [(30, 40), (40, 41)]
    with pytest.raises(Corrupt, match="is damaged: its footer"):
        plan_partitions(source, ReadWindow(timestamps=Interval(NOON_US, None)))


def test_tables_out_of_time_are_left_out_by_their_statistics(tmp_path: Path) -> None:
    orders = TopicFiles(tmp_path)
    for start in range(0, 100, 20):
        orders.table(start, start + 20)
    window = ReadWindow(timestamps=Interval(NOON_US + 45 * STEP_US, NOON_US + 61 * STEP_US))
    source = TopicSource(place=DirectoryPlace(tmp_path), snapshot=read_snapshot(DirectoryPlace(tmp_path), orders.name))
    (partition,) = plan_partitions(source, window)
    assert [(p.start_offset, p.end_offset) for p in partition] == [(40, 60), (60, 80)]
