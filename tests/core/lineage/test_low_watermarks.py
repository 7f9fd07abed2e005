"""Low watermarks after manual deletions of records."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.lineage.low_watermarks import raised
from seaweedmq.errors import InvalidArgument, OutOfRange, Unavailable
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.topic import Topic
from tests.support.segments import make_topic

PARTS = replace(make_topic(), partitions=4)


def marked(*marks: int) -> Topic:
    return replace(PARTS, low_watermarks=marks)


def test_marks_rise_as_far_as_is_committed_and_never_fall() -> None:
    assert raised(PARTS, {2: 7}, {2: 7}) == (0, 0, 7)
    assert raised(marked(0, 0, 7), {2: 3, 0: 5}, {0: 9, 2: 9}) == (5, 0, 7)
    assert raised(marked(0, 0, 7), {2: 7, 1: 0}, {}) == (0, 0, 7), "already deleted records need no end offset"
    with pytest.raises(OutOfRange, match="partition 2 of shop/orders has committed records up to offset 7, not to 8"):
        raised(PARTS, {2: 8}, {2: 7})
    with pytest.raises(Unavailable, match="partition 1 of shop/orders is being moved"):
        raised(PARTS, {1: 1}, {2: 7})
    topic = marked(5, 9, 7)
    assert topic.low_watermark(KeyRange(0, 3)) == 5
    assert topic.low_watermark(KeyRange(1, 3)) == 7
    assert topic.low_watermark(KeyRange(1, 4)) == 0
    assert make_topic().low_watermark(KeyRange(0, 65_536)) == 0


@pytest.mark.parametrize(
    ("topic", "before", "sentence"),
    [
        (make_topic(), {0: 1}, "has key ranges instead of partitions.*set a retention instead"),
        (PARTS, {4: 1}, "has no partition 4: it has 4 partitions, the first is 0"),
        (PARTS, {-1: 1}, "has no partition -1"),
        (PARTS, {0: -1}, "offset -1 of partition 0 of shop/orders: use an offset from 0 on"),
    ],
)
def test_what_no_partition_holds_is_refused(topic: Topic, before: Mapping[int, int], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        raised(topic, before, dict.fromkeys(before, 9))


@given(
    st.lists(st.integers(0, 20), max_size=4).map(tuple),
    st.dictionaries(st.integers(0, 3), st.integers(0, 30), max_size=4),
)
def test_every_partition_has_the_higher_of_both(marks: tuple[int, ...], before: Mapping[int, int]) -> None:
    after = raised(marked(*marks), before, dict.fromkeys(range(4), 30))
    assert [low(after, p) for p in range(4)] == [max(low(marks, p), before.get(p, 0)) for p in range(4)]


def low(marks: tuple[int, ...], partition: int) -> int:
    return marked(*marks).low_watermark(KeyRange(partition, partition + 1))
