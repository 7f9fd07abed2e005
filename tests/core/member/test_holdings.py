"""Which segments a member holds, and what it commits of them, told as it happens."""

from tests.core.member.member_tale import Tale
from tests.core.member.plain_member import ownership


def test_positions_follow_what_is_acknowledged() -> None:
    tale = Tale()
    assert tale.looks_after() == "nothing"
    assert tale.commits() == "nothing", "nobody knows yet where reading begins"
    tale.arrives("a b c")
    tale.takes()
    tale.looks_after()
    assert tale.commits() == "0@1 to 0"
    tale.is_answered()
    tale.acks("a0 c2")
    tale.looks_after()
    assert tale.commits() == "0@1 to 1"
    tale.acks("b1")
    tale.looks_after()
    assert tale.commits() == "nothing", "one commit is under way at a time"
    tale.is_answered()
    assert tale.commits() == "0@1 to 3"


def test_where_reading_begins_is_committed_though_nothing_arrives() -> None:
    tale = Tale()
    tale.member.dispatch.assigned[0].begin_at(40)
    tale.looks_after()
    assert tale.commits() == "0@1 to 40"


def test_between_commits_only_what_others_wait_for_is_looked_after() -> None:
    tale = Tale(ownership(0, 1), ownership(3, 1))
    tale.arrives("a")
    tale.arrives("x", segment=3)
    tale.takes()
    tale.acks("a0 3/x0")
    tale.looks_after(is_time=False)
    assert tale.commits() == "nothing"
    tale.ends_there(segment=3)
    tale.looks_after(is_time=False)
    assert tale.commits() == "3@1 to 1"


def test_acknowledgements_are_reported_only_where_somebody_waits_for_them() -> None:
    tale = Tale(ownership(0, 1), ownership(3, 1))
    tale.arrives("a")
    tale.arrives("x", segment=3)
    tale.takes()
    tale.is_assigned(ownership(0, 1))
    tale.looks_after()
    assigned = tale.member.dispatch.assigned
    assert [assigned[segment].is_watched for segment in (0, 3)] == [False, True]


def test_a_segment_is_released_when_its_last_position_was_answered() -> None:
    tale = Tale()
    tale.arrives("a b")
    tale.takes()
    assert tale.is_assigned() == "stop 0@1"
    tale.acks("a0 b1")
    assert tale.looks_after() == "nothing"
    assert tale.commits() == "0@1 to 2"
    assert tale.looks_after() == "nothing"
    tale.is_answered()
    assert tale.looks_after() == "release 0@1"
    assert tale.member.holdings.held == {}


def test_a_commit_that_went_with_its_stream_is_waited_for_on_the_next() -> None:
    tale = Tale()
    tale.arrives("a")
    tale.takes()
    tale.acks("a0")
    tale.is_assigned()
    tale.looks_after()
    assert tale.commits() == "0@1 to 1"
    tale.loses_its_stream()
    assert tale.looks_after() == "nothing"
    assert tale.commits() == "0@1 to 1"
    tale.is_answered()
    assert tale.looks_after() == "release 0@1"


def test_a_refused_commit_is_not_tried_again() -> None:
    tale = Tale()
    tale.arrives("a b")
    tale.takes()
    tale.acks("a0")
    tale.looks_after()
    assert tale.commits() == "0@1 to 1"
    assert tale.is_answered(0) == "stop 0@1"
    assert tale.looks_after() == "nothing", "the user still has b1"
    tale.acks("b1")
    assert tale.looks_after() == "release 0@1"
    assert tale.commits() == "nothing"
    assert tale.looks_after() == "nothing", "the assignment that gave it is not believed any more"


def test_a_segment_that_was_given_anew_begins_once_it_was_released() -> None:
    tale = Tale()
    tale.arrives("a")
    tale.takes()
    assert tale.is_assigned(ownership(0, 4)) == "stop 0@1"
    assert tale.member.holdings.held == {0: 1}
    tale.acks("a0")
    tale.looks_after()
    tale.commits()
    tale.is_answered()
    assert tale.looks_after() == "release 0@1, begin 0@4"
    assert tale.member.holdings.held == {0: 4}


def test_when_the_membership_is_over_nothing_is_read_or_committed() -> None:
    tale = Tale(ownership(0, 1), ownership(3, 1))
    tale.arrives("a")
    tale.takes()
    tale.acks("a0")
    assert tale.is_over() == "stop 0@1, stop 3@1"
    assert tale.looks_after() == "nothing"
    assert tale.commits() == "nothing"
    assert tale.is_assigned(ownership(5, 9)) == "nothing"
    assert tale.takes() == "nothing"
