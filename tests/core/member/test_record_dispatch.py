"""What a member hands out, and what becomes of it, told as it happens."""

import pytest

from tests.core.member.member_tale import Tale
from tests.core.member.plain_member import BYTES_PER_ROW, ownership


def test_records_go_out_once_and_in_order() -> None:
    tale = Tale()
    tale.arrives("a b a")
    tale.arrives("- b")
    assert tale.takes() == "a0 b1 a2 -3 b4"
    assert tale.is_out == "-3 a0 a2 b1 b4"
    assert tale.takes() == "nothing"
    tale.acks("a0 a2 b1 -3 b4")
    assert tale.is_out == "nothing"


def test_rows_go_out_as_they_arrived() -> None:
    tale = Tale()
    tale.arrives("a b a b a b")
    tale.arrives("c")
    assert tale.takes_rows() == "a0 b1 a2 b3 a4 b5"
    assert tale.takes_rows() == "c6"
    assert tale.takes_rows() == "nothing"


def test_what_is_left_of_the_records_goes_out_as_rows_first() -> None:
    tale = Tale()
    tale.arrives("a b a b a b")
    assert tale.takes(1) == "a0"
    assert tale.takes_rows() == "b1 a2 b3"
    assert tale.takes_rows() == "a4 b5"


# --- refused records --------------------------------------------------------------------------------------------------


def test_a_refused_record_comes_again_when_its_time_has_come_and_holds_its_key() -> None:
    tale = Tale()
    tale.arrives("a b a b -")
    assert tale.takes(1) == "a0"
    tale.nacks("a0", delay_s=10)
    assert tale.takes() == "b1 b3 -4"
    tale.waits(10)
    assert tale.takes() == "a0 a2"


def test_the_wait_of_one_record_is_no_wait_for_another_without_a_key() -> None:
    tale = Tale()
    tale.arrives("- - -")
    assert tale.takes(2) == "-0 -1"
    tale.nacks("-0", delay_s=10)
    tale.nacks("-1", delay_s=5)
    assert tale.takes() == "-2"
    tale.waits(5)
    assert tale.takes() == "-1"
    tale.waits(5)
    assert tale.takes() == "-0"


def test_refusing_twice_counts_once() -> None:
    tale = Tale()
    tale.arrives("a")
    assert tale.takes() == "a0"
    tale.nacks("a0 a0", delay_s=1)
    tale.looks_after()
    assert tale.commits() == "0@1 to 0 seen 0x1"
    tale.waits(1)
    assert tale.takes() == "a0"
    assert tale.takes() == "nothing"


def test_what_is_acknowledged_while_it_waits_does_not_come_again() -> None:
    tale = Tale()
    tale.arrives("a a")
    assert tale.takes(1) == "a0"
    tale.nacks("a0", delay_s=1)
    tale.acks("a0")
    tale.waits(1)
    assert tale.takes() == "a1"


def test_refused_rows_come_again_before_the_rest() -> None:
    tale = Tale()
    tale.arrives("a b a b")
    tale.arrives("a b")
    assert tale.takes_rows() == "a0 b1 a2 b3"
    tale.nacks("a0 b1 a2 b3", delay_s=1)
    assert tale.takes_rows() == "nothing"
    tale.waits(1)
    assert tale.takes_rows() == "a0 b1 a2 b3"
    assert tale.takes_rows() == "a4 b5"


def test_what_is_refused_after_the_member_was_closed_goes_to_the_next() -> None:
    tale = Tale()
    tale.arrives("a b")
    assert tale.takes() == "a0 b1"
    tale.member.dispatch.close()
    tale.acks("a0")
    tale.nacks("b1")
    tale.looks_after()
    assert tale.commits() == "0@1 to 1 seen 1x1"
    assert tale.takes() == "nothing"


# --- records that are given up ----------------------------------------------------------------------------------------


def test_a_record_that_was_delivered_too_often_is_given_up_and_holds_its_key_until_its_letter_is_kept() -> None:
    tale = Tale(deliveries_max=2)
    tale.arrives("a a b")
    assert tale.takes(1) == "a0"
    tale.nacks("a0")
    assert tale.takes() == "b2 a0 a1"
    tale.nacks("a1")
    tale.nacks("a0")
    assert tale.gives_up() == "a0 after 2: nack"
    assert tale.takes() == "nothing"
    tale.letter_is_kept()
    assert tale.takes() == "a1"


def test_who_refuses_what_is_given_up_already_is_not_heard() -> None:
    tale = Tale(deliveries_max=1)
    tale.arrives("a a")
    assert tale.takes() == "a0 a1"
    tale.nacks("a0 a0")
    assert tale.gives_up() == "a0 after 1: nack"
    tale.letter_is_kept()
    assert tale.gives_up() == "nothing"
    assert tale.takes() == "nothing"


def test_what_is_given_up_is_committed_only_once_its_letter_is_kept() -> None:
    tale = Tale(deliveries_max=1)
    tale.arrives("a b")
    assert tale.takes() == "a0 b1"
    tale.acks("b1")
    tale.nacks("a0")
    tale.looks_after()
    assert tale.commits() == "0@1 to 0 seen 0x1"
    tale.is_answered()
    tale.letter_is_kept()
    tale.looks_after()
    assert tale.commits() == "0@1 to 2"


def test_a_record_that_killed_its_owners_is_given_up_before_it_is_handed_out() -> None:
    tale = Tale(ownership(0, 5, offset=7, crashes=3), deliveries_max=3, limit=10)
    tale.arrives("a a b")
    assert tale.takes() == "b9"
    assert tale.left == 9, "it was not handed out"
    assert tale.gives_up() == "a7 after 3: delivered 3 times and not acknowledged"
    tale.letter_is_kept()
    assert tale.takes() == "a8"


def test_deliveries_of_earlier_owners_count() -> None:
    tale = Tale(ownership(0, 5, offset=7, deliveries={8: 1}), deliveries_max=2)
    tale.arrives("a b")
    assert tale.takes() == "a7 b8"
    tale.nacks("a7 b8")
    assert tale.gives_up() == "b8 after 2: nack"


# --- handlers ---------------------------------------------------------------------------------------------------------


def test_handlers_get_one_record_of_a_key_at_a_time() -> None:
    tale = Tale()
    tale.handlers_begin()
    tale.arrives("a a b a -")
    assert tale.handlers_take() == "a0 b2 -4"
    tale.handler_returns("a0")
    assert tale.handlers_take() == "a1"
    tale.handler_returns("a1")
    tale.handler_returns("b2")
    assert tale.handlers_take() == "a3"


def test_what_a_handler_refuses_comes_again_before_its_key_goes_on() -> None:
    tale = Tale()
    tale.handlers_begin()
    tale.arrives("a a b")
    assert tale.handlers_take() == "a0 b2"
    tale.handler_raises("a0", delay_s=3)
    assert tale.handlers_take() == "nothing"
    tale.waits(3)
    assert tale.handlers_take() == "a0"
    tale.handler_returns("a0")
    assert tale.handlers_take() == "a1"


def test_a_record_that_its_handler_refuses_by_itself_waits_until_that_has_ended() -> None:
    tale = Tale()
    tale.handlers_begin()
    tale.arrives("a a")
    assert tale.handlers_take() == "a0"
    tale.nacks("a0")
    assert tale.handlers_take() == "nothing"
    tale.handler_returns("a0")
    assert tale.handlers_take() == "a0"


def test_a_handler_that_acknowledges_and_then_raises_has_dealt_with_its_record() -> None:
    tale = Tale()
    tale.handlers_begin()
    tale.arrives("a a")
    assert tale.handlers_take() == "a0"
    tale.acks("a0")
    tale.handler_raises("a0")
    assert tale.handlers_take() == "a1"


def test_a_handler_that_gives_its_record_up_does_not_acknowledge_it_by_returning() -> None:
    tale = Tale(deliveries_max=1)
    tale.handlers_begin()
    tale.arrives("a a")
    assert tale.handlers_take() == "a0"
    tale.nacks("a0")
    assert tale.gives_up() == "nothing"
    tale.handler_returns("a0")
    assert tale.gives_up() == "a0 after 1: nack"
    tale.looks_after()
    assert tale.commits() == "0@1 to 0 seen 0x1"
    assert tale.handlers_take() == "nothing"
    tale.letter_is_kept()
    assert tale.handlers_take() == "a1"


def test_what_handlers_did_not_get_any_more_goes_to_who_takes_next() -> None:
    tale = Tale()
    tale.handlers_begin()
    tale.arrives("a a b b c")
    assert tale.handlers_take(1) == "a0"
    tale.handler_raises("a0")
    tale.handlers_stop()
    assert tale.takes() == "b2 b3 c4 a0 a1"


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_limit_counts_every_delivery() -> None:
    tale = Tale(limit=4)
    tale.arrives("a a a a a a")
    assert tale.takes(3) == "a0 a1 a2"
    tale.nacks("a0 a1")
    assert tale.takes() == "a0", "what was to come next gave its place to what comes again"
    assert tale.left == 0


def test_what_the_limit_has_no_room_for_waits_on() -> None:
    tale = Tale(ownership(0, 1), ownership(3, 1), limit=8)
    tale.arrives("x x x x", segment=3)
    assert tale.takes(1) == "3/x0"
    tale.arrives("- - -")
    assert tale.takes() == "3/x1 3/x2 3/x3 -0 -1 -2"
    tale.nacks("-0 -1 -2")
    assert tale.takes() == "-0"
    assert tale.member.dispatch.holds_back
    tale.nacks("-0")
    tale.acks("3/x0 3/x1 3/x2 3/x3")
    tale.looks_after()
    assert tale.commits() == "0@1 to 0 seen 0x2 seen 1x1 seen 2x1, 3@1 to 4"


def test_delivery_waits_for_acknowledgements() -> None:
    tale = Tale(unacked_max=3)
    tale.arrives("a b c d e")
    assert tale.takes() == "a0 b1 c2"
    assert tale.is_blocked
    tale.acks("b1")
    assert tale.takes() == "d3"
    tale.acks("a0 c2 d3")
    assert tale.takes() == "e4"
    assert not tale.is_blocked


def test_what_is_held_in_bytes_is_bounded_too() -> None:
    tale = Tale(unacked_bytes_max=4 * BYTES_PER_ROW)
    for _ in range(4):
        tale.arrives("a b")
    assert tale.takes() == "a0 b1 a2 b3 a4 b5"
    assert tale.is_blocked
    tale.acks("a0 a2 b3")
    assert not tale.is_blocked, "the first frame has a record that is out, the second has none"
    assert tale.takes() == "a6 b7"


# --- segments that go -------------------------------------------------------------------------------------------------


def test_nothing_of_a_revoked_segment_goes_out() -> None:
    tale = Tale(ownership(0, 1), ownership(3, 1))
    tale.arrives("a b c d e")
    tale.arrives("x y", segment=3)
    assert tale.takes(2) == "a0 b1"
    tale.nacks("b1")
    assert tale.is_assigned(ownership(3, 1)) == "stop 0@1"
    tale.waits(60)
    assert tale.takes() == "3/x0 3/y1"


def test_what_was_not_with_the_user_is_not_waited_for() -> None:
    tale = Tale(limit=10)
    tale.arrives("a b c d e")
    assert tale.takes(1) == "a0"
    assert tale.left == 6
    tale.is_assigned()
    assert tale.left == 9
    assert tale.takes() == "nothing"
    assert tale.looks_after() == "nothing"
    tale.acks("a0")
    tale.looks_after()
    assert tale.commits() == "0@1 to 1"
    tale.is_answered()
    assert tale.looks_after() == "release 0@1"


def test_what_is_refused_after_its_segment_was_revoked_goes_to_the_next_owner() -> None:
    tale = Tale()
    tale.arrives("a b")
    assert tale.takes() == "a0 b1"
    tale.is_assigned()
    tale.acks("a0")
    tale.nacks("b1")
    tale.looks_after()
    assert tale.commits() == "0@1 to 1 seen 1x1"
    assert tale.takes() == "nothing"


def test_a_letter_under_way_is_waited_for() -> None:
    tale = Tale(deliveries_max=1)
    tale.arrives("a")
    assert tale.takes() == "a0"
    tale.nacks("a0")
    tale.is_assigned()
    tale.looks_after()
    tale.commits()
    tale.is_answered()
    assert tale.looks_after() == "nothing"
    tale.letter_is_kept()
    tale.looks_after()
    assert tale.commits() == "0@1 to 1"


def test_acknowledgements_of_an_earlier_ownership_do_not_count_in_the_next() -> None:
    tale = Tale()
    tale.arrives("a b")
    assert tale.takes() == "a0 b1"
    tale.nacks("b1")
    assert tale.is_assigned(ownership(0, 2)) == "stop 0@1"
    tale.acks("a0")
    tale.looks_after()
    tale.commits()
    tale.is_answered()
    assert tale.looks_after() == "release 0@1, begin 0@2"
    tale.arrives("a b")
    old = tale.taken["b1"]
    assert tale.takes() == "a0 b1"
    tale.member.ack(old)
    assert tale.is_out == "a0 b1"


def test_a_segment_is_not_assigned_twice() -> None:
    tale = Tale()
    with pytest.raises(AssertionError, match="segment 0 is held already"):
        tale.member.dispatch.assign(ownership(0, 2))
