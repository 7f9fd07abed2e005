"""Rings of any size, and how they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import RING_SLOTS_MAX, WHOLE_RING, KeyRange, covers_ring, even_ranges
from tests.support.segments import make_topic


@given(st.integers(1, RING_SLOTS_MAX), st.data())
def test_a_ring_is_cut_evenly_and_whole(slots: int, data: st.DataObject) -> None:
    ring = KeyRange(0, slots)
    ranges = even_ranges(ring, data.draw(st.integers(1, min(slots, 300))))
    assert covers_ring(ranges, ring)
    widths = {r.width for r in ranges}
    assert max(widths) - min(widths) <= 1


def test_a_ring_is_not_covered_by_less_by_more_or_twice() -> None:
    ring = KeyRange(0, 12)
    assert covers_ring([KeyRange(5, 12), KeyRange(0, 5)], ring)
    for ranges in ([], [KeyRange(0, 11)], [KeyRange(0, 13)], [KeyRange(1, 12)], [KeyRange(0, 6), KeyRange(5, 12)]):
        assert not covers_ring(ranges, ring)


@pytest.mark.parametrize(("slots", "count"), [(12, 0), (12, 13), (RING_SLOTS_MAX, RING_SLOTS_MAX + 1)])
def test_no_segment_is_without_a_slot(slots: int, count: int) -> None:
    with pytest.raises(InvalidArgument, match=f"a topic has 1 to {slots}, at most one per slot"):
        even_ranges(KeyRange(0, slots), count)


def test_a_topic_that_does_not_say_otherwise_has_as_many_slots_as_there_can_be() -> None:
    assert make_topic().ring == WHOLE_RING
