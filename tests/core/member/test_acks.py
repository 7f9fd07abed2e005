"""Acknowledged rows of a segment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.member.acks import ACKED, DEAD_LETTER, IN_FLIGHT, NEW, WAITING, Ledger, Offsets, RowSpan, offsets_of


def ledger_of(*counts: int, first: int = 100) -> tuple[Ledger[str], list[RowSpan[str]]]:
    """Contiguous frames of so many rows, all delivered."""
    ledger: Ledger[str] = Ledger({})
    spans = []
    for count in counts:
        span = ledger.arrive(first, count, size_bytes=count * 10)
        span.rows = f"rows from {first}"
        span.deliver(count)
        spans.append(span)
        first += count
    return ledger, spans


def in_flight_among(ledger: Ledger[str], offsets: Offsets) -> list[int]:
    return [offset for _, some in ledger.in_flight_among(offsets) for offset in some]


def test_rows_that_were_not_delivered_are_neither_acknowledged_nor_out_and_nothing_is_known_at_first() -> None:
    ledger: Ledger[str] = Ledger({})
    span = ledger.arrive(0, 10, size_bytes=100)
    assert not ledger.has_in_flight()
    span.deliver(4)
    assert ledger.has_in_flight()
    ledger.ack(range(10))
    assert (ledger.position(), ledger.unacked(), ledger.has_in_flight()) == (4, 0, False)
    span.deliver(2)
    assert (ledger.unacked(), in_flight_among(ledger, range(10))) == (2, [4, 5])
    ledger: Ledger[str] = Ledger({})
    assert ledger.position() is None
    ledger.fetched_to = 7
    assert ledger.position() == 7


def test_a_record_that_takes_long_does_not_keep_what_lies_behind_it() -> None:
    ledger, (one, two, three) = ledger_of(5, 5, 5)
    ledger.ack(range(101, 115))
    assert ledger.position() == 100
    assert ledger.size_bytes() == 50
    assert [span.rows is None for span in (one, two, three)] == [False, True, True]
    ledger.ack(range(100, 101))
    assert ledger.position() == 115
    assert not ledger.has_spans


def test_what_waits_or_is_given_up_holds_the_position_like_what_is_out_which_alone_is_acknowledged() -> None:
    for state, has_in_flight in ((IN_FLIGHT, True), (WAITING, False), (DEAD_LETTER, True)):
        ledger, (span, _) = ledger_of(5, 5)
        ledger.ack(range(100, 110))
        assert not ledger.has_in_flight()
        span.put(103, state)
        assert (span.position(), ledger.position(), ledger.has_in_flight()) == (103, 103, has_in_flight)
        assert ledger.unacked() == 1
    _, (span,) = ledger_of(6)
    span.put(102, WAITING)
    span.put(103, DEAD_LETTER)
    span.ack_in_flight(101, 4)
    assert list(span.states) == [IN_FLIGHT, ACKED, WAITING, DEAD_LETTER, ACKED, IN_FLIGHT]
    assert span.position() == 100
    assert NEW not in span.states


def test_counts_of_refused_records_go_with_them_and_a_range_of_offsets_is_one() -> None:
    ledger, _ = ledger_of(10)
    assert [ledger.reject(offset) for offset in (103, 103, 101, 109)] == [1, 2, 1, 1]
    assert ledger.deliveries(10) == {101: 1, 103: 2, 109: 1}
    assert ledger.deliveries(2) == {101: 1, 103: 2}
    ledger.ack(range(100, 103))
    assert ledger.deliveries(10) == {103: 2, 109: 1}
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
        assert in_flight_among(ledger, offsets_of(np.array(offsets))) == sorted(model & set(offsets))
        ledger.ack(offsets_of(np.array(offsets)))
        model -= set(offsets)
        assert ledger.position() == min(model, default=end)
        assert ledger.unacked() == len(model)
        assert ledger.has_in_flight() == bool(model)
