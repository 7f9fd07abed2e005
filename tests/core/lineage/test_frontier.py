"""Frontiers of a reader in the lineage, and the paths between two of them."""

import pytest

from seaweedmq.core.lineage.batch_ranges import Range, between, cut, tasks
from seaweedmq.core.lineage.frontier import LineageGraph, RecordLimit, advanced, beginning, beginning_at, everything
from seaweedmq.errors import InvalidArgument, Unavailable
from seaweedmq.model.segment import Segment
from tests.core.lineage.test_lineage import HISTORY, segment

ENDS = {1: 15, 4: 23}


def lineage(*segments: Segment) -> LineageGraph:
    return LineageGraph(segments or HISTORY)


def test_all_ends_in_the_open_segments_and_a_finished_one_stays_until_its_last_successor_has_begun() -> None:
    assert beginning(lineage(), {}) == {0: 0, 3: 0}
    assert everything(lineage(), {0: 0, 3: 0}, ENDS) == {1: 15, 4: 23}
    assert between(lineage(), {0: 0, 3: 0}, {1: 15, 4: 23}).records == 10 + 5 + 10 + 7 + 3
    place = advanced(lineage(), {0: 0, 3: 0}, ENDS, RecordLimit(14))
    assert place == {0: 7, 3: 7}  # 3 waits for 2
    assert advanced(lineage(), place, ENDS, RecordLimit(3), serial_max=None) == {1: 10, 2: 10, 3: 7}
    assert advanced(lineage(), {1: 15, 2: 12, 3: 7}, ENDS, RecordLimit(7)) == {1: 15, 2: 19, 3: 7}
    assert advanced(lineage(), {1: 15, 2: 20, 3: 7}, ENDS, RecordLimit(8)) == {1: 15, 4: 23}


def test_a_batch_ends_at_a_split_unless_little_lies_on_both_sides_and_not_at_a_failover() -> None:
    history = [segment(0, end=60), segment(1, (0,), start=60), segment(2, (0,), start=60)]
    ends = {1: 160, 2: 62}
    assert advanced(lineage(*history), {0: 0}, ends, serial_max=100) == {0: 60, 2: 62}
    assert advanced(lineage(*history), {0: 60, 2: 62}, ends, serial_max=100) == {1: 160, 2: 62}
    assert advanced(lineage(*history), {0: 0}, ends, serial_max=None) == {1: 160, 2: 62}
    history = [segment(0, end=1_000), segment(1, (0,), start=1_000)]
    assert advanced(lineage(*history), {0: 0}, {1: 9_000}, serial_max=100) == {1: 9_000}
    assert between(lineage(*history), {0: 0}, {1: 9_000}).paths == ((Range(0, 0, 1_000), Range(1, 1_000, 9_000)),)


def test_limits_are_shared_out_partitions_enter_and_an_end_before_the_position_changes_nothing() -> None:
    history = [segment(0), segment(1), segment(2)]
    assert advanced(lineage(*history), {0: 0, 1: 0, 2: 0}, {0: 90, 1: 2, 2: 90}, RecordLimit(30)) == {
        0: 14,
        1: 2,
        2: 14,
    }
    assert advanced(lineage(*history), {0: 0, 1: 0, 2: 0}, {0: 1, 1: 2, 2: 9}, RecordLimit(1)) == {0: 0, 1: 0, 2: 1}
    assert advanced(lineage(segment(0), segment(1)), {0: 5}, {0: 5, 1: 3}) == {0: 5, 1: 3}
    assert advanced(lineage(segment(0)), {0: 50}, {0: 20}) == {0: 50}
    assert advanced(lineage(segment(0)), {0: 50}, {}) == {0: 50}


def test_what_must_come_in_order_is_one_path_and_the_rest_apart() -> None:
    found = between(lineage(), {0: 8, 3: 7}, {1: 12, 4: 21})
    assert found.paths == ((Range(0, 8, 10), Range(1, 10, 12), Range(2, 10, 20), Range(4, 20, 21)),)
    found = between(lineage(), {1: 10, 2: 10, 3: 7}, {1: 12, 4: 21})
    assert found.paths == ((Range(1, 10, 12),), (Range(2, 10, 20), Range(4, 20, 21)))
    assert between(lineage(), {1: 10, 4: 20}, {1: 10, 4: 20}).paths == ()


def test_nothing_lies_between_where_the_start_is_beyond_the_end_unless_the_lineage_is_older() -> None:
    assert between(lineage(), {1: 10, 4: 20}, {0: 10, 3: 7}).paths == ()
    assert between(lineage(), {1: 10, 2: 10, 3: 0}, {0: 10, 3: 7}).paths == ((Range(3, 0, 7),),)
    assert between(lineage(), {1: 12}, {1: 10}).paths == ()
    later = lineage(segment(2, (1,), start=10, end=20), segment(3, (2,), start=20))
    assert between(later, {2: 10}, {0: 10}).paths == ()  # those segments are pruned
    with pytest.raises(Unavailable, match="older than the checkpoint"):
        between(lineage(segment(0)), {0: 4}, {1: 4})


def test_a_segment_that_is_read_to_its_end_while_its_predecessor_stays_is_not_beyond_the_end() -> None:
    history = [
        segment(0, end=10),
        segment(1, (0,), start=10, end=30),
        segment(2, (0, 5), start=10),
        segment(3, (1,), start=30),
        segment(5, end=10),
    ]
    place = {0: 10, 1: 12, 5: 0}  # 2 waits for 5
    assert between(lineage(*history), place, {0: 10, 3: 31, 5: 0}).records == 18 + 1


def test_what_was_pruned_before_it_was_read_is_lost_and_told_and_not_what_was_pruned_after() -> None:
    kept = [segment(1, (0,), start=10), segment(4, (2, 3), start=20)]
    place = everything(lineage(*kept), {0: 4}, ENDS)
    assert place == {1: 15, 4: 23}
    assert between(lineage(*kept), {0: 4, 3: 7}, place).lost == (0, 2, 3)
    kept = lineage(segment(1, (0,), start=10))
    assert everything(kept, {0: 10}, {1: 15}) == {1: 15}
    assert between(kept, {0: 10}, {1: 15}).lost == ()


def test_who_begins_skips_what_is_not_wanted() -> None:
    assert beginning(lineage(), {}, {0}) == {1: 10, 2: 10, 3: 0}
    assert beginning(lineage(), {}, {3}) == {0: 0, 3: 7}
    assert beginning(lineage(), {2: 14}, {0, 3}) == {1: 10, 2: 14, 3: 7}
    assert beginning_at(lineage(), {}, {4: 21}) == {1: 10, 4: 21}
    assert beginning_at(lineage(), {}, {3: 5}) == {0: 0, 3: 5}
    with pytest.raises(InvalidArgument, match="segment 2 precedes another named segment"):
        beginning_at(lineage(), {}, {2: 12, 4: 21})


def test_small_paths_share_a_task_and_large_ones_are_cut_when_order_does_not_matter() -> None:
    paths = [(Range(n, 0, 40),) for n in range(5)]
    assert [len(task) for task in tasks(paths, records_min=100)] == [3, 2]
    task = (Range(0, 0, 100), Range(1, 100, 130))
    assert cut([task], 0, None) == [task]
    assert cut([task], 0, 60) == [(Range(0, 0, 60),), (Range(0, 60, 100), Range(1, 100, 120)), (Range(1, 120, 130),)]
    assert [sum(r.records for r in part) for part in cut([task], 4, None)] == [32, 32, 32, 32, 2]
    assert cut([task, task], 2, None) == [task, task]
