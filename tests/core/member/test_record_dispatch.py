"""Records that a member delivers, and their outcomes, as transcripts of order, counts and bounds.

``test_member_machine`` has the rest in any order of events: revoked segments, dead letters, handlers, ownerships.
"""

import pytest

from tests.core.member.member_transcript import Transcript
from tests.core.member.plain_member import BYTES_PER_ROW, ownership


def delivered(keys: str, **bounds: int) -> Transcript:
    """Return a member whose user has taken these records."""
    transcript = Transcript(**bounds)
    transcript.arrives(keys)
    assert len(transcript.takes().split()) == len(keys.split())
    return transcript


def handled(keys: str, **bounds: int) -> Transcript:
    """Return a member with handlers to which these records have come."""
    transcript = Transcript(**bounds)
    transcript.handlers_begin()
    transcript.arrives(keys)
    return transcript


def test_records_go_out_once_and_in_order() -> None:
    transcript = Transcript()
    transcript.arrives("a b a")
    transcript.arrives("- b")
    assert transcript.takes() == "a0 b1 a2 -3 b4"
    assert transcript.has_in_flight == "-3 a0 a2 b1 b4"
    assert transcript.takes() == "nothing"
    transcript.acks("a0 a2 b1 -3 b4")
    assert transcript.has_in_flight == "nothing"


def test_rows_go_out_as_they_arrived_and_what_is_left_of_single_records_first() -> None:
    transcript = Transcript()
    transcript.arrives("a b a b a b")
    transcript.arrives("c")
    assert transcript.takes_rows() == "a0 b1 a2 b3 a4 b5"
    assert transcript.takes_rows() == "c6"
    assert transcript.takes_rows() == "nothing"
    transcript.arrives("a b a b a b")
    assert transcript.takes(1) == "a7"
    assert transcript.takes_rows() == "b8 a9 b10"
    assert transcript.takes_rows() == "a11 b12"


# --- refused records --------------------------------------------------------------------------------------------------
def test_a_refused_record_comes_again_when_its_time_has_come_holds_its_key_and_counts_once() -> None:
    transcript = Transcript()
    transcript.arrives("a b a b -")
    assert transcript.takes(1) == "a0"
    transcript.nacks("a0", delay_s=10)
    assert transcript.takes() == "b1 b3 -4"
    transcript.waits(10)
    assert transcript.takes() == "a0 a2"
    transcript = delivered("a")
    transcript.nacks("a0 a0", delay_s=1)
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 0 seen 0x1"
    transcript.waits(1)
    assert transcript.takes() == "a0"
    assert transcript.takes() == "nothing"


def test_refused_rows_come_again_before_the_rest() -> None:
    transcript = Transcript()
    transcript.arrives("a b a b")
    transcript.arrives("a b")
    assert transcript.takes_rows() == "a0 b1 a2 b3"
    transcript.nacks("a0 b1 a2 b3", delay_s=1)
    assert transcript.takes_rows() == "nothing"
    transcript.waits(1)
    assert transcript.takes_rows() == "a0 b1 a2 b3"
    assert transcript.takes_rows() == "a4 b5"


@pytest.mark.parametrize("is_closed", [True, False])
def test_what_is_refused_after_the_member_was_closed_or_its_segment_revoked_goes_to_the_next(is_closed: bool) -> None:
    transcript = delivered("a b")
    if is_closed:
        transcript.member.dispatch.close()
    else:
        transcript.is_assigned()
    transcript.acks("a0")
    transcript.nacks("b1")
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 1 seen 1x1"
    assert transcript.takes() == "nothing"


# --- records that are given up ----------------------------------------------------------------------------------------
def test_a_record_that_was_delivered_too_often_is_given_up_and_holds_its_key_until_its_letter_is_kept() -> None:
    transcript = Transcript(deliveries_max=2)
    transcript.arrives("a a b")
    assert transcript.takes(1) == "a0"
    transcript.nacks("a0")
    assert transcript.takes() == "b2 a0 a1"
    transcript.nacks("a1")
    transcript.nacks("a0")
    assert transcript.gives_up() == "a0 after 2: nack"
    assert transcript.takes() == "nothing"
    transcript.letter_is_kept()
    assert transcript.takes() == "a1"


def test_who_refuses_what_is_given_up_already_is_not_heard() -> None:
    transcript = delivered("a a", deliveries_max=1)
    transcript.nacks("a0 a0")
    assert transcript.gives_up() == "a0 after 1: nack"
    transcript.letter_is_kept()
    assert transcript.gives_up() == "nothing"
    assert transcript.takes() == "nothing"


def test_deliveries_of_earlier_owners_count_and_what_killed_them_is_given_up_before_it_is_handed_out() -> None:
    transcript = Transcript(ownership(0, 5, offset=7, crashes=3), deliveries_max=3, limit=10)
    transcript.arrives("a a b")
    assert transcript.takes() == "b9"
    assert transcript.left == 9, "it was not delivered"
    assert transcript.gives_up() == "a7 after 3: delivered 3 times and not acknowledged"
    transcript.letter_is_kept()
    assert transcript.takes() == "a8"
    transcript = Transcript(ownership(0, 5, offset=7, deliveries={8: 1}), deliveries_max=2)
    transcript.arrives("a b")
    assert transcript.takes() == "a7 b8"
    transcript.nacks("a7 b8")
    assert transcript.gives_up() == "b8 after 2: nack"


# --- handlers ---------------------------------------------------------------------------------------------------------
def test_handlers_get_one_record_of_a_key_at_a_time_and_the_rest_goes_to_who_takes_next() -> None:
    transcript = handled("a a b a -")
    assert transcript.handlers_take() == "a0 b2 -4"
    transcript.handler_returns("a0")
    assert transcript.handlers_take() == "a1"
    transcript.handler_returns("a1")
    transcript.handler_returns("b2")
    assert transcript.handlers_take() == "a3"
    transcript = handled("a a b b c")
    assert transcript.handlers_take(1) == "a0"
    transcript.handler_raises("a0")
    transcript.handlers_stop()
    assert transcript.takes() == "b2 b3 c4 a0 a1"


def test_a_handler_that_gives_its_record_up_does_not_acknowledge_it_by_returning() -> None:
    transcript = handled("a a", deliveries_max=1)
    assert transcript.handlers_take() == "a0"
    transcript.nacks("a0")
    assert transcript.gives_up() == "nothing"
    transcript.handler_returns("a0")
    assert transcript.gives_up() == "a0 after 1: nack"
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 0 seen 0x1"
    assert transcript.handlers_take() == "nothing"
    transcript.letter_is_kept()
    assert transcript.handlers_take() == "a1"


# --- bounds -----------------------------------------------------------------------------------------------------------
def test_a_limit_counts_every_delivery_and_what_it_has_no_room_for_waits_on() -> None:
    transcript = Transcript(limit=4)
    transcript.arrives("a a a a a a")
    assert transcript.takes(3) == "a0 a1 a2"
    transcript.nacks("a0 a1")
    assert transcript.takes() == "a0", "a redelivery comes before the next new record"
    assert transcript.left == 0
    transcript = Transcript(ownership(0, 1), ownership(3, 1), limit=8)
    transcript.arrives("x x x x", segment=3)
    assert transcript.takes(1) == "3/x0"
    transcript.arrives("- - -")
    assert transcript.takes() == "3/x1 3/x2 3/x3 -0 -1 -2"
    transcript.nacks("-0 -1 -2")
    assert transcript.takes() == "-0"
    assert transcript.member.dispatch.has_waiting
    transcript.nacks("-0")
    transcript.acks("3/x0 3/x1 3/x2 3/x3")
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 0 seen 0x2 seen 1x1 seen 2x1, 3@1 to 4"


def test_what_is_held_in_bytes_is_bounded_too() -> None:
    transcript = Transcript(unacked_bytes_max=4 * BYTES_PER_ROW)
    for _ in range(4):
        transcript.arrives("a b")
    assert transcript.takes() == "a0 b1 a2 b3 a4 b5"
    assert transcript.is_blocked
    transcript.acks("a0 a2 b3")
    assert not transcript.is_blocked, "the first frame has a record in flight, the second has none"
    assert transcript.takes() == "a6 b7"


# --- segments that go -------------------------------------------------------------------------------------------------
def test_what_was_not_with_the_user_is_not_waited_for_and_no_segment_is_assigned_twice() -> None:
    transcript = Transcript(limit=10)
    transcript.arrives("a b c d e")
    assert transcript.takes(1) == "a0"
    assert transcript.left == 6
    transcript.is_assigned()
    assert transcript.left == 9
    assert transcript.takes() == "nothing"
    assert transcript.looks_after() == "nothing"
    transcript.acks("a0")
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 1"
    transcript.is_answered()
    assert transcript.looks_after() == "release 0@1"
    transcript = Transcript()
    with pytest.raises(AssertionError, match="segment 0 is already held"):
        transcript.member.dispatch.assign(ownership(0, 2))
