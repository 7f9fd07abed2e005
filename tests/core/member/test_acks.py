"""What of a segment is dealt with."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.member.acks import ACKED, Ledger, Span, offsets_of


def ledger_of(*counts: int, first: int = 100) -> tuple[Ledger[str], list[Span[str]]]:
    """Frames of so many rows behind one another, all handed out."""
    ledger: Ledger[str] = Ledger({})
    spans = []
    for count in counts:
        span = ledger.arrive(first, count, size_bytes=count * 10)
        span.rows = f"rows from {first}"
        span.hand_out(0, count)
        spans.append(span)
        first += count
    return ledger, spans


def test_the_position_is_the_lowest_offset_that_is_not_acknowledged() -> None:
    ledger, (one, two) = ledger_of(3, 2)
    assert ledger.position() == 100
    ledger.ack(range(101, 105))
    assert ledger.position() == 100
    one.flags[0] = ACKED
    assert ledger.position() == 105
    assert not ledger.has_spans
    assert two.rows is None


def test_nothing_is_known_before_anything_arrived() -> None:
    ledger: Ledger[str] = Ledger({})
    assert ledger.position() is None
    ledger.fetched_to = 7
    assert ledger.position() == 7


def test_rows_that_were_not_handed_out_are_neither_acknowledged_nor_out() -> None:
    ledger: Ledger[str] = Ledger({})
    span = ledger.arrive(0, 10, size_bytes=100)
    assert not ledger.is_out()
    span.hand_out(0, 4)
    assert ledger.is_out()
    ledger.ack(range(10))
    assert (ledger.position(), ledger.unsettled(), ledger.is_out()) == (4, 0, False)
    span.hand_out(4, 2)
    assert (ledger.unsettled(), ledger.out_among(range(10))) == (2, [4, 5])


def test_a_record_that_takes_long_does_not_keep_what_lies_behind_it() -> None:
    ledger, _ = ledger_of(5, 5, 5)
    ledger.ack(range(101, 115))
    assert ledger.position() == 100
    assert ledger.size_bytes() == 50
    assert ledger.find(107) is None
    ledger.ack(range(100, 101))
    assert ledger.position() == 115


def test_counts_of_refused_records_go_with_them() -> None:
    ledger, _ = ledger_of(10)
    assert [ledger.refuse(offset) for offset in (103, 103, 101, 109)] == [1, 2, 1, 1]
    assert ledger.deliveries(10) == {101: 1, 103: 2, 109: 1}
    assert ledger.deliveries(2) == {101: 1, 103: 2}
    ledger.ack(range(100, 103))
    assert ledger.deliveries(10) == {103: 2, 109: 1}


def test_offsets_that_are_a_range_are_taken_as_one() -> None:
    assert offsets_of(np.array([3, 4, 5])) == range(3, 6)
    for other in ([], [3, 5], [1, 1, 3], [5, 4, 3]):
        assert not isinstance(offsets_of(np.array(other, dtype=np.int64)), range)


@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    acks=st.lists(st.lists(st.integers(90, 280), min_size=1, max_size=30), max_size=20),
)
def test_any_acknowledgements_in_any_order(counts: list[int], acks: list[list[int]]) -> None:
    ledger, _ = ledger_of(*counts)
    end = 100 + sum(counts)
    model = set(range(100, end))
    for offsets in acks:
        assert ledger.out_among(offsets_of(np.array(offsets))) == sorted(model & set(offsets))
        ledger.ack(offsets_of(np.array(offsets)))
        model -= set(offsets)
        assert ledger.position() == min(model, default=end)
        assert ledger.unsettled() == len(model)
        assert ledger.is_out() == bool(model)
