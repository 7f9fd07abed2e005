"""What may be done to segments by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.reshaping import check_targets, halves, halving_slot, neighbours
from seaweedmq.core.topology import new_topic
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName, TopicSpec

SPEC = TopicSpec(name=TopicName("shop", "orders"), segments=4, replicas=2)
TOPIC, SEGMENTS = (change := new_topic(SPEC, uid=1, now_us=0, placement=[("b-1", "b-2")] * 4)).topic, change.segments
RANGES = st.tuples(st.integers(0, 65_534), st.integers(2, 65_536)).map(
    lambda pair: KeyRange(min(pair[0], 65_536 - pair[1]), min(pair[0], 65_536 - pair[1]) + pair[1])
)
LOADS = st.lists(st.floats(0, 1e6), min_size=HISTOGRAM_BUCKETS, max_size=HISTOGRAM_BUCKETS)


def with_slots(lo: int, hi: int) -> Segment:
    return replace(SEGMENTS[0], slots=KeyRange(lo, hi))


def test_a_segment_is_cut_at_any_slot_inside_of_it() -> None:
    assert halves(with_slots(10, 13), 11) == (KeyRange(10, 11), KeyRange(11, 13))
    assert halves(with_slots(10, 13), 12) == (KeyRange(10, 12), KeyRange(12, 13))
    for at in (-1, 10, 13, 70_000):
        with pytest.raises(InvalidArgument, match=f"shop/orders#0, slots .10, 13., at slot {at}: choose from 11 to 12"):
            halves(with_slots(10, 13), at)
    with pytest.raises(InvalidArgument, match="has slot 10 only"):
        halves(with_slots(10, 11), 10)


@given(RANGES)
def test_without_traffic_the_middle_is_chosen(slots: KeyRange) -> None:
    for histogram in ((), (0.0,) * HISTOGRAM_BUCKETS):
        lower, upper = slots.split(halving_slot(slots, histogram))
        assert abs(lower.width - upper.width) <= 1


@given(RANGES, LOADS)
def test_the_cut_is_always_inside(slots: KeyRange, histogram: list[float]) -> None:
    assert slots.lo < halving_slot(slots, histogram) < slots.hi


@given(st.integers(1, 4_096), LOADS)
def test_the_halves_carry_the_same_as_far_as_a_slot_allows(scale: int, histogram: list[float]) -> None:
    slots = KeyRange(0, HISTOGRAM_BUCKETS * scale)
    per_slot = [load / scale for load in histogram for _ in range(scale)]
    at = halving_slot(slots, histogram)
    difference = abs(sum(per_slot[:at]) - sum(per_slot[at:]))
    assert difference <= 2 * max(per_slot) + 1e-6 * sum(histogram)


def test_neighbours_are_merged_in_the_order_of_the_ring() -> None:
    assert neighbours(SEGMENTS[1], SEGMENTS[2]) == (SEGMENTS[1], SEGMENTS[2])
    assert neighbours(SEGMENTS[2], SEGMENTS[1]) == (SEGMENTS[1], SEGMENTS[2])
    with pytest.raises(InvalidArgument, match="with itself: name two neighbours"):
        neighbours(SEGMENTS[1], SEGMENTS[1])
    for first, second in ((0, 2), (3, 0)):  # the ring's two ends do not touch: a range does not wrap
        with pytest.raises(InvalidArgument, match="are no neighbours"):
            neighbours(SEGMENTS[first], SEGMENTS[second])


@pytest.mark.parametrize(
    ("brokers", "sentence"),
    [
        ([], "0 brokers named, but segments of shop/orders have 2 replicas: name 1 to 2"),
        (["a", "b", "c"], "3 brokers named"),
        (["a", "a"], "broker a is named twice"),
    ],
)
def test_targets_that_can_not_be_replicas_are_refused(brokers: list[str], sentence: str) -> None:
    check_targets(TOPIC, ["a"])
    check_targets(TOPIC, ["a", "b"])
    with pytest.raises(InvalidArgument, match=sentence):
        check_targets(TOPIC, brokers)
