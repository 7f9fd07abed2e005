"""Rewriting of tables with deleted records: no mistake of timing loses or doubles a living record."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.core.files.compaction import TableMerge, has_log_below, is_better, merges, partly_deleted, superseded
from seaweedmq.core.files.cover import check_no_overlap, uncovered
from seaweedmq.core.files.holes import removed_by
from seaweedmq.core.files.retention import Listed, RetentionPolicy, expired_files
from seaweedmq.errors import Unavailable
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.files import SegmentFile
from tests.core.files.segment_files import log, table
from tests.core.files.test_compaction import row

END = 60


def test_the_rewrite_begins_at_the_low_watermark_and_ends_where_the_table_ends_which_overlaps_none() -> None:
    rewrite = partly_deleted(row(10, 10, 10), 13)
    assert (rewrite.base_offset, rewrite.end_offset, rewrite.leaves_out) == (13, 20, 3)
    assert [t.path for t in rewrite.tables] == ["table 10-20"]
    assert rewrite.modified_us == US_PER_S, "younger than the original"
    assert partly_deleted([table(0, 20), table(15, 30)], 5) is None
    assert partly_deleted([table(0, 20), table(10, 15)], 5) is not None, "the smaller one goes"
    assert has_log_below([log(5)], 6)
    assert not has_log_below([log(6), table(0, 9)], 6)


@pytest.mark.parametrize("low", [0, 10, 20, 30, 99])
def test_a_low_watermark_between_tables_rewrites_none(low: int) -> None:
    assert partly_deleted(row(10, 10, 10), low) is None


def test_the_original_is_replaced_by_the_younger_table_only_below_the_low_watermark_and_recorded() -> None:
    original, rewritten = table(0, 20), table(10, 20, modified_us=US_PER_S)
    assert superseded([original, rewritten], 10) == [original]
    assert superseded([original, rewritten], 15) == [original]
    assert superseded([original, rewritten], 9) == []
    assert superseded([original, rewritten]) == [], "a broker without a low watermark deletes neither"
    assert superseded([original, table(10, 20)], 10) == [table(10, 20)], "left by a merge"
    policy = RetentionPolicy(log_grace_us=0)
    assert expired_files([Listed(None, [original, rewritten], 10)], policy, 9 * US_PER_S) == [original]
    assert removed_by([original, rewritten], [original]) == {0: 10}, "no more than is deleted"


class Storage:
    """Tables of one segment, changed by processes that are killed, or paused, between any two steps."""

    def __init__(self, tables: Sequence[SegmentFile]) -> None:
        self.tables = {t.path: t for t in tables}
        self.low = 0
        self.names = set(self.tables)
        """Every name so far. No table gets the name of a deleted one."""

    def listed(self) -> list[SegmentFile]:
        return list(self.tables.values())

    def put(self, merge: TableMerge) -> Iterator[None]:
        """Publish a merge or rewrite, and remove the names of its tables one by one."""
        base, end = merge.base_offset, merge.end_offset
        new = table(base, end, size_bytes=merge.size_bytes, modified_us=merge.modified_us)
        try:
            check_no_overlap(self.listed(), base, end, merge.tables)
        except Unavailable:
            return
        if new.path in self.names:
            return
        self.names.add(new.path)
        self.tables[new.path] = new
        yield
        yield from self.delete(merge.tables)

    def delete(self, files: Sequence[SegmentFile]) -> Iterator[None]:
        for file in files:
            self.tables.pop(file.path, None)
            yield

    def check(self) -> None:
        assert not list(uncovered(self.listed(), self.low, END)), f"lost, low watermark {self.low}: {[*self.tables]}"


def run(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


@settings(max_examples=300)
@given(data=st.data())
def test_every_living_record_is_in_one_table_wherever_processes_are_killed_or_stand_still(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, END - 1), max_size=6)))
    storage = Storage([table(base, end) for base, end in zip([0, *cuts], [*cuts, END], strict=True)])
    running: list[Iterator[None]] = []
    known = [0]
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["delete records", "rewrite", "merge", "sweep", "step", "step", "kill"])):
            case "delete records":
                storage.low = data.draw(st.integers(storage.low, END - 1))
                known.append(storage.low)
            case "rewrite":
                rewrite = partly_deleted(storage.listed(), data.draw(st.sampled_from(known)))
                running += [storage.put(rewrite)] if rewrite else []
            case "merge":
                running += [storage.put(merge) for merge in merges(storage.listed(), data.draw(st.integers(20, 200)))]
            case "sweep":
                running.append(storage.delete(superseded(storage.listed(), data.draw(st.sampled_from(known)))))
            case "step" if running:
                next(data.draw(st.sampled_from(running)), None)
            case "kill" if running:
                running.pop(data.draw(st.integers(0, len(running) - 1)))
        storage.check()
    for steps in running:
        run(steps)
        storage.check()
    for _ in range(3):
        run(storage.delete(superseded(storage.listed(), storage.low)))
        storage.names.clear()  # their retained links are swept
        rewrite = partly_deleted(storage.listed(), storage.low)
        run(storage.put(rewrite)) if rewrite else None
        storage.check()
    living = [t for t in storage.listed() if (t.end_offset or 0) > storage.low]
    held = sorted(offset for t in living for offset in range(t.base_offset, t.end_offset or 0))
    assert held == list(range(storage.low, END)), [t.path for t in living]


TABLES = st.builds(
    lambda base, size, modified: table(base, base + size, modified_us=modified),
    st.integers(0, 5),
    st.integers(1, 5),
    st.integers(0, 3),
)


@given(tables=st.lists(TABLES, max_size=8, unique_by=lambda t: t.path), low=st.integers(0, 11))
def test_a_table_goes_only_because_of_a_better_one_that_stays(tables: list[SegmentFile], low: int) -> None:
    gone = superseded(tables, low)
    staying = [t for t in tables if t not in gone]
    for file in gone:
        end = file.end_offset or 0
        base = max(file.base_offset, low) if low < end else file.base_offset
        better = [t for t in tables if is_better(t, file)]
        assert any(t.base_offset <= base and end <= (t.end_offset or 0) for t in better)
        assert not list(uncovered(staying, base, end))
