"""Rules for manual changes of segments."""

from dataclasses import replace

import pytest

from seaweedmq.core.lineage.segment_rules import check_replicas, check_unpartitioned, halves, neighbors
from seaweedmq.core.lineage.topology import new_topic
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName, TopicSpec

SPEC = TopicSpec(name=TopicName("shop", "orders"), segments=4, replicas=2)
TOPIC, SEGMENTS = (change := new_topic(SPEC, uid=1, now_us=0, placement=[("b-1", "b-2")] * 4)).topic, change.segments


def with_slots(lo: int, hi: int) -> Segment:
    return replace(SEGMENTS[0], slots=KeyRange(lo, hi))


def test_a_segment_is_cut_at_any_slot_inside_of_it_unless_publishers_choose_it() -> None:
    assert halves(with_slots(10, 13), 11) == (KeyRange(10, 11), KeyRange(11, 13))
    assert halves(with_slots(10, 13), 12) == (KeyRange(10, 12), KeyRange(12, 13))
    for at in (-1, 10, 13, 70_000):
        with pytest.raises(InvalidArgument, match=f"shop/orders#0, slots .10, 13., at slot {at}: choose from 11 to 12"):
            halves(with_slots(10, 13), at)
    with pytest.raises(InvalidArgument, match="has only slot 10 and cannot be split"):
        halves(with_slots(10, 11), 10)
    check_unpartitioned(TOPIC, "split")
    with pytest.raises(InvalidArgument, match=r"shop/orders has 4 partitions, .* which cannot be split"):
        check_unpartitioned(replace(TOPIC, partitions=4), "split")


def test_neighbours_are_merged_in_the_order_of_the_ring() -> None:
    assert neighbors(SEGMENTS[1], SEGMENTS[2]) == (SEGMENTS[1], SEGMENTS[2])
    assert neighbors(SEGMENTS[2], SEGMENTS[1]) == (SEGMENTS[1], SEGMENTS[2])
    with pytest.raises(InvalidArgument, match="with itself: name two adjacent segments"):
        neighbors(SEGMENTS[1], SEGMENTS[1])
    for first, second in ((0, 2), (3, 0)):  # the ring's two ends do not touch: a range does not wrap
        with pytest.raises(InvalidArgument, match="are not adjacent"):
            neighbors(SEGMENTS[first], SEGMENTS[second])


@pytest.mark.parametrize(
    ("brokers", "sentence"),
    [
        ([], "0 brokers named, but segments of shop/orders have 2 replicas: name 1 to 2"),
        (["a", "b", "c"], "3 brokers named"),
        (["a", "a"], "broker a is named twice"),
    ],
)
def test_targets_that_can_not_be_replicas_are_refused(brokers: list[str], sentence: str) -> None:
    check_replicas(TOPIC, ["a"])
    check_replicas(TOPIC, ["a", "b"])
    with pytest.raises(InvalidArgument, match=sentence):
        check_replicas(TOPIC, brokers)
