"""Segments that a member holds, and its commits of them, as transcripts."""

from tests.core.member.member_transcript import Transcript
from tests.core.member.plain_member import ownership
from tests.core.member.test_record_dispatch import delivered


def test_positions_follow_what_is_acknowledged_or_where_reading_begins_though_nothing_arrives() -> None:
    transcript = Transcript()
    assert transcript.looks_after() == "nothing"
    assert transcript.commits() == "nothing", "the start of reading is still unknown"
    transcript.arrives("a b c")
    transcript.takes()
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 0"
    transcript.is_answered()
    transcript.acks("a0 c2")
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 1"
    transcript.acks("b1")
    transcript.looks_after()
    assert transcript.commits() == "nothing", "one commit is under way at a time"
    transcript.is_answered()
    assert transcript.commits() == "0@1 to 3"
    transcript = Transcript()
    transcript.member.dispatch.assigned[0].begin_at(40)
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 40"


def test_between_commits_only_what_others_wait_for_is_looked_after_and_reported() -> None:
    transcript = Transcript(ownership(0, 1), ownership(3, 1))
    transcript.arrives("a")
    transcript.arrives("x", segment=3)
    transcript.takes()
    transcript.acks("a0 3/x0")
    transcript.looks_after(is_time=False)
    assert transcript.commits() == "nothing"
    transcript.ends_there(segment=3)
    transcript.looks_after(is_time=False)
    assert transcript.commits() == "3@1 to 1"
    transcript = Transcript(ownership(0, 1), ownership(3, 1))
    transcript.arrives("a")
    transcript.arrives("x", segment=3)
    transcript.takes()
    transcript.is_assigned(ownership(0, 1))
    transcript.looks_after()
    assigned = transcript.member.dispatch.assigned
    assert [assigned[segment].is_watched for segment in (0, 3)] == [False, True]


def test_a_segment_is_released_when_its_last_position_was_answered() -> None:
    transcript = delivered("a b")
    assert transcript.is_assigned() == "stop 0@1"
    transcript.acks("a0 b1")
    assert transcript.looks_after() == "nothing"
    assert transcript.commits() == "0@1 to 2"
    assert transcript.looks_after() == "nothing"
    transcript.is_answered()
    assert transcript.looks_after() == "release 0@1"
    assert transcript.member.holdings.held == {}


def test_a_refused_commit_is_not_tried_again() -> None:
    transcript = delivered("a b")
    transcript.acks("a0")
    transcript.looks_after()
    assert transcript.commits() == "0@1 to 1"
    assert transcript.is_answered(0) == "stop 0@1"
    assert transcript.looks_after() == "nothing", "the user still has b1"
    transcript.acks("b1")
    assert transcript.looks_after() == "release 0@1"
    assert transcript.commits() == "nothing"
    assert transcript.looks_after() == "nothing", "the member no longer trusts that assignment"


def test_a_segment_that_was_given_anew_begins_once_it_was_released() -> None:
    transcript = delivered("a")
    assert transcript.is_assigned(ownership(0, 4)) == "stop 0@1"
    assert transcript.member.holdings.held == {0: 1}
    transcript.acks("a0")
    transcript.looks_after()
    transcript.commits()
    transcript.is_answered()
    assert transcript.looks_after() == "release 0@1, begin 0@4"
    assert transcript.member.holdings.held == {0: 4}


def test_when_the_membership_is_over_nothing_is_read_or_committed() -> None:
    transcript = Transcript(ownership(0, 1), ownership(3, 1))
    transcript.arrives("a")
    transcript.takes()
    transcript.acks("a0")
    assert transcript.is_over() == "stop 0@1, stop 3@1"
    assert transcript.looks_after() == "nothing"
    assert transcript.commits() == "nothing"
    assert transcript.is_assigned(ownership(5, 9)) == "nothing"
    assert transcript.takes() == "nothing"
