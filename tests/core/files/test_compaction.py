"""Selection of tables to merge: few large ones in the end, in order of offsets, and no table again and again."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.files.compaction import (
    AUTO_TABLES_MAX,
    AUTO_TABLES_MIN,
    TableMerge,
    containing,
    due_merge,
    merges,
    superseded,
)
from seaweedmq.model.files import SegmentFile
from tests.core.files.segment_files import table

SIZES = st.lists(st.integers(1, 400), max_size=60)


def row(*sizes: int, base: int = 0) -> list[SegmentFile]:
    """Adjacent tables of ten records each."""
    return [table(base + 10 * n, base + 10 * n + 10, size_bytes=size) for n, size in enumerate(sizes)]


def story(found: list[TableMerge]) -> list[tuple[int, int]]:
    return [(merge.base_offset, merge.end_offset) for merge in found]


def merged(tables: list[SegmentFile], merge: TableMerge) -> list[SegmentFile]:
    """Return the tables after the merge."""
    new = table(merge.base_offset, merge.end_offset, size_bytes=merge.size_bytes)
    return sorted([*(t for t in tables if t not in merge.tables), new], key=lambda t: t.base_offset)


def test_what_another_table_has_or_can_not_be_read_is_no_part_of_a_merge_and_kinds_stay_apart() -> None:
    tables = [*row(10, 10, 10, 10), table(0, 20, size_bytes=20)]
    assert [t.path for t in superseded(tables)] == ["table 0-10", "table 10-20"]
    assert containing(tables[0], tables) == tables[4]
    assert containing(tables[2], tables) is None
    assert story(merges(tables, 100)) == [(0, 40)]
    assert [t.path for t in merges(tables, 100)[0].tables] == ["table 0-20", "table 20-30", "table 30-40"]
    tables = row(*[10] * 8)
    kinds = {t.path: kind for t, kind in zip(tables, "ppptt?tt", strict=True)}
    found = merges(tables, 100, lambda t: NotImplemented if kinds[t.path] == "?" else kinds[t.path])
    assert story(found) == [(0, 30), (30, 50), (60, 80)]


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ([], []),
        (row(10), []),
        (row(10, 10, 10), [(0, 30)]),
        (row(10, 10, 50, 10, 10), [(0, 20), (30, 50)]),  # tables of a good size are left alone and part the others
        (row(10, 60, 10, 300, 10), []),
        (row(*[10] * 26), [(0, 90), (90, 170), (170, 260)]),  # too much for one table becomes several of one size
        ([*row(10, 10), *row(10, 10, base=50)], [(0, 20), (50, 70)]),  # a gap is not bridged
        ([*row(10, 10), table(20, 35), table(30, 40), *row(10, 10, base=40)], [(0, 20), (40, 60)]),  # an overlap
    ],
)
def test_small_tables_that_follow_one_another_become_one(
    tables: list[SegmentFile], found: list[tuple[int, int]]
) -> None:
    assert story(merges(tables, 100)) == found


@given(sizes=SIZES, target=st.integers(2, 500))
def test_merging_ends_and_no_table_grows_beyond_the_target_by_more_than_one(sizes: list[int], target: int) -> None:
    tables = row(*sizes)
    for _ in range(20):
        found = merges(tables, target)
        if not found:
            break
        for merge in found:
            assert all(t.size_bytes < target / 2 for t in merge.tables)
            assert merge.size_bytes <= 2 * target
            tables = merged(tables, merge)
    else:
        raise AssertionError("it does not end")
    assert sum(t.size_bytes for t in tables) == sum(sizes)
    assert all(one.end_offset == other.base_offset for one, other in pairwise(tables))
    small = [t.size_bytes < target / 2 for t in tables]
    assert not any(one and other for one, other in pairwise(small)), "no two small ones side by side"


def due(tables: list[SegmentFile], target_bytes: int) -> list[TableMerge]:
    """Return the merge to make on the side, or none."""
    found = due_merge(tables, target_bytes)
    return [] if found is None else [found]


def test_on_the_side_a_few_tables_wait_a_large_one_is_not_written_again_and_many_are_merged_at_any_cost() -> None:
    assert due(row(*[10] * (AUTO_TABLES_MIN - 1)), 1_000) == []
    assert story(due(row(*[10] * AUTO_TABLES_MIN), 1_000)) == [(0, 10 * AUTO_TABLES_MIN)]
    tables = row(100, *[10] * 8)
    (merge,) = due(tables, 1_000)
    assert story([merge]) == [(10, 90)]
    assert due(merged(tables, merge), 1_000) == []
    assert story(due(row(80, *[10] * 8), 1_000)) == [(0, 90)]
    sizes = [3**n for n in range(AUTO_TABLES_MAX)]
    assert due(row(*sizes[: AUTO_TABLES_MAX - 1]), 10**40) == []
    (merge,) = due(row(*sizes), 10**40)
    assert len(merge.tables) == AUTO_TABLES_MAX


def test_a_stream_of_small_tables_leaves_few_and_writes_each_record_a_few_times() -> None:
    tables: list[SegmentFile] = []
    written, most = 0, 0
    for n in range(5_000):
        tables.append(table(n * 10, n * 10 + 10, size_bytes=10 + n % 7))
        while (merge := due_merge(tables, 20_000)) is not None:
            written += merge.size_bytes
            tables = merged(tables, merge)
        most = max(most, sum(t.size_bytes < 10_000 for t in tables))
    assert most < 40
    assert written < 8 * sum(t.size_bytes for t in tables)
