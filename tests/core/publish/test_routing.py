"""Routes: every slot goes to one segment, and a hand-over moves only the slots that were handed over."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.publish.routing import Routes, SuccessorMap
from seaweedmq.errors import Unavailable
from seaweedmq.model.ring import RING_SLOTS_MAX, WHOLE_RING, KeyRange
from seaweedmq.model.segment import Segment
from tests.support.segments import make_segment


def segment(number: int, lo: int, hi: int) -> Segment:
    return replace(make_segment(), id=number, slots=KeyRange(lo, hi))


@given(
    st.sets(st.integers(1, RING_SLOTS_MAX - 1), max_size=12).map(sorted),
    st.lists(st.integers(0, RING_SLOTS_MAX - 1), min_size=1, max_size=200),
)
def test_partition_agrees_with_the_ranges_and_keeps_the_order_of_rows(cuts: list[int], slots: list[int]) -> None:
    edges = [0, *cuts, RING_SLOTS_MAX]
    segments = [segment(i, lo, hi) for i, (lo, hi) in enumerate(pairwise(edges))]
    routes = Routes.to_open(WHOLE_RING, segments)
    parts = routes.partition(np.array(slots, dtype=np.uint16))
    for number, rows in parts:
        assert list(rows) == [i for i, slot in enumerate(slots) if slot in segments[number].slots]
    assert sum(len(rows) for _, rows in parts) == len(slots)
    assert all(slot in segments[routes.segment_of(slot)].slots for slot in slots)


def test_after_a_merge_each_side_changes_over_when_it_was_handed_over() -> None:
    half = RING_SLOTS_MAX // 2
    routes = Routes.to_open(WHOLE_RING, [segment(0, 0, half), segment(1, half, RING_SLOTS_MAX)])
    merged = segment(2, 0, RING_SLOTS_MAX)
    routes = routes.replace(0, [merged])
    assert (routes.segment_of(5), routes.segment_of(half)) == (2, 1)
    assert routes.whole() is None
    routes = routes.replace(1, [merged])
    assert (routes.segment_of(5), routes.segment_of(half)) == (2, 2)
    parts = routes.partition(np.array([half, 5, half], dtype=np.uint16))
    assert [(number, list(rows)) for number, rows in parts] == [(2, [0, 1, 2])]


def test_slots_that_two_successors_have_go_to_the_newer_one() -> None:
    """6 precedes 8 in the lineage: the publisher continued from 6's neighbor, and never was in 6 itself."""
    half, end = RING_SLOTS_MAX // 2, RING_SLOTS_MAX
    routes = Routes(WHOLE_RING, [(KeyRange(0, half), 3), (KeyRange(half, end), 1)])
    routes = routes.replace(1, [segment(3, 0, half), segment(6, half + 200, end), segment(8, half, end - 100)])
    found = [routes.segment_of(slot) for slot in (half - 1, half, half + 200, end - 101, end - 100)]
    assert found == [3, 8, 8, 8, 6]


def test_a_topic_with_a_smaller_ring_is_covered_by_less_and_holes_pass() -> None:
    twelve = KeyRange(0, 12)
    routes = Routes.to_open(twelve, [segment(0, 0, 5), segment(1, 5, 12)])
    assert [routes.segment_of(slot) for slot in (0, 4, 5, 11)] == [0, 0, 1, 1]
    assert routes.whole() is None
    moved = routes.replace(0, [segment(2, 0, 5)]).replace(1, [segment(2, 0, 12)])
    assert moved.replace(2, [segment(3, 0, 12)]).segments == {3}
    assert Routes.to_open(twelve, [segment(0, 0, 12)]).whole() == 0
    with pytest.raises(Unavailable, match="do not cover the key ring"):
        Routes.to_open(twelve, [segment(0, 0, 11)])
    with pytest.raises(Unavailable, match="do not cover the key ring"):
        Routes.to_open(WHOLE_RING, [segment(0, 0, 100)])


def test_what_the_ring_gets_goes_to_the_segments_that_are_there() -> None:
    routes = Routes.to_open(KeyRange(0, 2), [segment(0, 0, 1), segment(1, 1, 2)])
    grown = routes.grow(KeyRange(0, 4), [segment(0, 0, 1), segment(5, 1, 2), segment(2, 2, 3), segment(3, 3, 4)])
    assert [grown.segment_of(slot) for slot in range(4)] == [0, 1, 2, 3]  # 1 was not handed over yet
    with pytest.raises(Unavailable, match="do not cover"):
        routes.grow(KeyRange(0, 4), [segment(2, 2, 3)])


def split_and_merged(successor_map: SuccessorMap, times: int, *, also: int | None = None) -> int:
    """Split and merge the upper side as publishers leave the segments; return the open one."""
    upper = 1
    for _ in range(times):
        lower, higher, merged = upper + 1, upper + 2, upper + 3
        for left, successors in ((upper, (lower, higher)), (lower, (merged,)), (higher, (merged,))):
            open_now = {successors[0]} if also is None else {also, successors[0]}
            edges = [0, *range(1, len(open_now)), RING_SLOTS_MAX]
            parts = zip(pairwise(edges), sorted(open_now), strict=True)
            successor_map.record(
                left, successors, Routes(WHOLE_RING, ((KeyRange(lo, hi), number) for (lo, hi), number in parts))
            )
        upper = merged
    return upper


def test_a_lineage_of_many_splits_and_merges_is_followed_once_and_what_is_out_of_reach_forgotten() -> None:
    """There are 2**60 paths from the first to the last."""
    successor_map = SuccessorMap()
    last = split_and_merged(successor_map, 60, also=0)
    assert successor_map.resolve([1]) == {last}
    assert successor_map.resolve([last - 2, last + 7]) == {last, last + 7}
    assert successor_map.resolve([]) == set()
    successor_map = SuccessorMap()
    last = split_and_merged(successor_map, 1_000)
    assert all(successor_map.resolve([number]) == {number} for number in range(last))
    successor_map = SuccessorMap()
    last = split_and_merged(successor_map, 10, also=0)
    left = [number for number in range(last) if successor_map.resolve([number]) == {last}]
    assert left == list(range(1, last)), "who has not left segment 0 may come to all that came after it"
