"""Classic groups, as transcripts of requests and answers, one for each of Kafka's rules."""

from dataclasses import replace
from typing import Any

from seaweedmq.core.kafka.groups.classic_events import Leave, Leaving
from seaweedmq.model.kafka.groups import GroupMetadataRecord
from tests.core.kafka.group_transcript import LIMITS, Transcript, subscription


def awaiting(*names: str, **how: Any) -> Transcript:
    """Return a group of these members that await their shares, led by the first."""
    transcript = Transcript()
    for name in names:
        transcript.enters(name, **how)
    transcript.waits(2)
    return transcript


def pair(**how: Any) -> Transcript:
    """Return ``a``, the leader, and ``b``, a follower, each with its assignment."""
    transcript = awaiting("a", "b", **how)
    transcript.syncs("b")
    transcript.syncs("a", a="x", b="y")
    assert transcript.state == "Stable"
    return transcript


# --- coming in


def test_a_first_member_is_given_an_id_waits_a_moment_leads_and_gets_what_it_says() -> None:
    transcript = Transcript()
    assert transcript.joins("a") == ["a: MEMBER_ID_REQUIRED"]
    assert transcript.state == "Empty"
    assert transcript.joins("a") == []
    assert transcript.state == "PreparingRebalance"
    assert transcript.waits(0.4) == []
    assert transcript.waits(0.1) == ["a: in 1 by range, leads a"]
    assert transcript.state == "CompletingRebalance"
    assert transcript.syncs("a", a="all") == ["a: gets all"]
    assert transcript.state == "Stable"


def test_before_v4_a_member_is_given_its_id_with_the_generation() -> None:
    transcript = Transcript()
    assert transcript.joins("a", v=3) == []
    assert transcript.waits(1) == ["a: in 1 by range, leads a"]
    assert transcript.people["a"].member == "a-1"


def test_while_others_come_the_first_wait_on() -> None:
    transcript = Transcript()
    transcript.enters("a")
    transcript.waits(0.3)
    transcript.enters("b")
    assert transcript.waits(0.3) == []
    assert transcript.waits(0.4) == ["a: in 1 by range, leads a b", "b: in 1 by range"]


def test_while_others_come_the_first_wait_no_longer_than_their_rebalance_timeout() -> None:
    transcript = Transcript()
    transcript.enters("a", rebalance_s=1.2)
    transcript.waits(0.3)
    transcript.enters("b")
    transcript.waits(0.5)
    transcript.enters("c")
    assert transcript.waits(0.39) == []
    assert transcript.waits(0.02) == ["a: in 1 by range, leads a b c", "b: in 1 by range", "c: in 1 by range"]


def test_members_are_told_apart_by_their_id_alone() -> None:
    transcript = Transcript()
    for name in ("a", "b"):
        transcript.enters(name)
    clients = {member.client_id for member in transcript.told.members}
    assert clients == {"a", "b"}
    transcript = Transcript()
    transcript.enters("a")
    transcript.person("a").member = ""
    transcript.enters("a")
    assert [member.id for member in transcript.told.members] == ["a-1", "a-3"]
    assert [member.client_id for member in transcript.told.members] == ["a", "a"]


def test_followers_wait_for_the_leaders_word_and_who_it_leaves_out_has_nothing() -> None:
    transcript = awaiting("a", "b", "c")
    assert transcript.syncs("b") == []
    assert transcript.syncs("a", a="x", b="y", stranger="z") == ["a: gets x", "b: gets y"]
    assert transcript.syncs("c") == ["c: gets nothing"]


def test_an_id_that_was_never_given_out_is_unknown() -> None:
    transcript = Transcript()
    assert transcript.joins("a", member="made-up") == ["a: UNKNOWN_MEMBER_ID"]
    transcript = pair()
    assert transcript.joins("c", member="made-up") == ["c: UNKNOWN_MEMBER_ID"]
    assert transcript.state == "Stable"


def test_an_id_that_was_given_out_and_never_used_is_forgotten() -> None:
    transcript = Transcript()
    transcript.joins("a", session_s=10)
    assert transcript.waits(11) == []
    assert transcript.joins("a") == ["a: UNKNOWN_MEMBER_ID"]
    assert transcript.shard.groups() == ()


def test_a_round_waits_for_an_id_that_was_given_out_until_its_session_is_over() -> None:
    transcript = pair()
    transcript.joins("c", session_s=10)
    transcript.joins("a")
    assert transcript.joins("b") == []
    assert transcript.joins("c") == ["a: in 2 by range, leads a b c", "b: in 2 by range", "c: in 2 by range"]

    transcript = pair()
    transcript.joins("c", session_s=10)
    transcript.joins("a")
    transcript.joins("b")
    assert transcript.waits(9) == []
    assert transcript.waits(1) == ["a: in 2 by range, leads a b", "b: in 2 by range"]


def test_what_can_not_be_kept_is_refused() -> None:
    """Sessions that are too short or too long, a group without a protocol type, and names that are too long."""
    for how, refusal in (
        ({"session_s": 0.001}, "INVALID_SESSION_TIMEOUT"),
        ({"session_s": 5.999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_s": 1_801}, "INVALID_SESSION_TIMEOUT"),
        ({"kind": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"instance": "i" * 4_097}, "INVALID_REQUEST"),
    ):
        transcript = Transcript()
        assert transcript.joins("a", **how) == [f"a: {refusal}"], how
        assert transcript.joins("b", "p" * 4_097) == ["b: INVALID_REQUEST"]
        assert transcript.shard.groups() == ()


def test_a_full_group_takes_nobody_else() -> None:
    transcript = Transcript()
    for name in ("a", "b", "c", "d"):
        transcript.enters(name)
    assert transcript.enters("e") == ["e: GROUP_MAX_SIZE_REACHED"]
    transcript.waits(3)
    assert transcript.enters("e") == ["e: GROUP_MAX_SIZE_REACHED"]
    assert transcript.syncs("a", a="x") == ["a: gets x"]
    assert transcript.enters("e") == ["e: GROUP_MAX_SIZE_REACHED"]
    assert len(transcript.told.members) == 4


def test_ids_are_not_given_out_without_end() -> None:
    transcript = Transcript()
    for name in ("a", "b", "c", "d"):
        assert transcript.joins(name) == [f"{name}: MEMBER_ID_REQUIRED"]
    assert transcript.joins("e") == ["e: GROUP_MAX_SIZE_REACHED"]


def test_a_group_that_says_too_much_takes_no_more_of_it() -> None:
    transcript = Transcript(replace(LIMITS, group_bytes_max=10_000))
    transcript.enters("a", metadata=bytes(6_000))
    assert transcript.joins("b", metadata=bytes(6_000)) == ["b: GROUP_MAX_SIZE_REACHED"]
    assert transcript.waits(1) == ["a: in 1 by range, leads a"]


def test_an_assignment_that_is_too_large_is_nobodys() -> None:
    transcript = Transcript(replace(LIMITS, group_bytes_max=10_000))
    transcript.enters("a")
    transcript.enters("b")
    transcript.waits(2)
    transcript.syncs("b")
    assert transcript.syncs("a", a="x" * 10_000) == ["a: UNKNOWN_SERVER_ERROR", "b: UNKNOWN_SERVER_ERROR"]
    assert transcript.state == "PreparingRebalance"
    assert transcript.log == []


def test_an_id_of_a_group_may_be_as_long_as_a_string_of_kafka_and_no_longer() -> None:
    for group in ("g" * 32_767, "é" * 16_383):
        transcript = Transcript(group=group)
        transcript.joins("a")
        assert [listed.group for listed in transcript.shard.groups()] == [group]
    for group in ("", "g" * 32_768, "é" * 16_384):
        transcript = Transcript(group=group)
        for answer in (transcript.joins("a"), transcript.syncs("a"), transcript.beats("a"), transcript.leaves("a")):
            assert answer == ["a: INVALID_GROUP_ID"]


# --- protocols


def test_the_protocol_that_most_prefer_of_those_that_all_speak_and_of_equals_the_first() -> None:
    transcript = Transcript()
    transcript.enters("a", "range", "sticky", "own")
    transcript.enters("b", "sticky", "range")
    transcript.enters("c", "sticky", "range")
    assert transcript.waits(2)[0] == "a: in 1 by sticky, leads a b c"

    transcript = Transcript()
    transcript.enters("a", "range", "sticky")
    transcript.enters("b", "sticky", "range")
    assert transcript.waits(2)[0] == "a: in 1 by range, leads a b"


def test_who_speaks_nothing_that_all_speak_stays_out() -> None:
    transcript = pair()
    assert transcript.joins("c", "sticky") == ["c: INCONSISTENT_GROUP_PROTOCOL"]
    assert transcript.joins("c", "range", kind="connect") == ["c: INCONSISTENT_GROUP_PROTOCOL"]
    assert transcript.joins("a", "sticky") == ["a: INCONSISTENT_GROUP_PROTOCOL"]
    assert transcript.state == "Stable"


def test_any_protocol_type_will_do_and_an_empty_group_may_take_another() -> None:
    for kind in ("consumer", "connect", "sr", "anything"):
        transcript = pair()
        transcript.leaves("a", "b")
        assert (transcript.state, transcript.told.protocol_type) == ("Empty", "consumer")
        assert transcript.enters("c", "own", kind=kind, metadata=b"any") == []
        assert transcript.waits(1) == ["c: in 3 by own, leads c"]
        assert transcript.told.protocol_type == kind


def test_a_sync_that_names_another_protocol_is_refused() -> None:
    transcript = awaiting("a")
    assert transcript.syncs("a", protocol="sticky") == ["a: INCONSISTENT_GROUP_PROTOCOL"]
    assert transcript.syncs("a", protocol="range", a="x") == ["a: gets x"]


# --- rounds


def test_a_third_member_makes_a_round_in_which_the_others_have_time_to_come() -> None:
    transcript = pair()
    assert transcript.enters("c") == []
    assert transcript.beats("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert transcript.syncs("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert transcript.joins("b") == []
    assert transcript.joins("a") == ["a: in 2 by range, leads a b c", "b: in 2 by range", "c: in 2 by range"]


def test_the_generation_rises_when_the_join_phase_ends_not_before() -> None:
    transcript = pair()
    transcript.enters("c")
    assert transcript.beats("a", generation=1) == ["a: REBALANCE_IN_PROGRESS"]
    assert transcript.beats("a", generation=2) == ["a: ILLEGAL_GENERATION"]
    transcript.joins("a")
    transcript.joins("b")
    assert transcript.beats("b", generation=1) == ["b: ILLEGAL_GENERATION"]
    assert transcript.beats("b", generation=2) == ["b: alive"]


def test_who_does_not_come_in_time_is_out() -> None:
    transcript = pair(rebalance_s=5)
    transcript.enters("c", rebalance_s=3)
    assert transcript.waits(4.9, "a", "b") == ["a: REBALANCE_IN_PROGRESS", "b: REBALANCE_IN_PROGRESS"] * 4
    transcript.joins("b", rebalance_s=5)
    assert transcript.waits(0.1) == ["b: in 2 by range, leads b c", "c: in 2 by range"]
    assert transcript.beats("a") == ["a: UNKNOWN_MEMBER_ID"]


def test_a_leader_that_does_not_come_in_time_is_replaced() -> None:
    transcript = pair(rebalance_s=5)
    transcript.joins("b", "range", "sticky", rebalance_s=5)
    assert transcript.waits(6, "a")[-2:] == ["b: in 2 by range, leads b", "a: UNKNOWN_MEMBER_ID"]


def test_a_member_keeps_its_share_until_the_next_one() -> None:
    transcript = pair()
    transcript.enters("c")
    assert [member.assignment for member in transcript.told.members] == [b"x", b"y", b""]


def test_a_join_while_shares_are_awaited_begins_a_new_round() -> None:
    transcript = awaiting("a", "b")
    assert transcript.syncs("b") == []
    transcript.joins("c")
    assert transcript.joins("c") == ["b: REBALANCE_IN_PROGRESS"]
    assert transcript.syncs("a", a="x") == ["a: REBALANCE_IN_PROGRESS"]
    transcript.joins("b")
    assert transcript.joins("a") == ["a: in 2 by range, leads a b c", "b: in 2 by range", "c: in 2 by range"]


def test_a_member_with_nothing_new_is_told_the_generation_once_more() -> None:
    transcript = pair()
    assert transcript.joins("b") == ["b: in 1 by range"]
    assert transcript.syncs("b") == ["b: gets y"]
    assert transcript.state == "Stable"


def test_a_leader_that_joins_again_makes_a_round_whatever_it_says() -> None:
    transcript = pair()
    assert transcript.joins("a") == []
    assert transcript.state == "PreparingRebalance"


def test_a_member_that_subscribes_to_something_else_makes_a_round() -> None:
    transcript = pair()
    assert transcript.joins("b", topics=("orders", "payments")) == []
    assert transcript.joins("a") == ["a: in 2 by range, leads a b", "b: in 2 by range"]


def test_an_answer_to_a_join_that_got_lost_is_said_again_while_shares_are_awaited() -> None:
    transcript = awaiting("a", "b")
    assert transcript.joins("a") == ["a: in 1 by range, leads a b"]
    assert transcript.joins("b") == ["b: in 1 by range"]
    assert transcript.joins("b", topics=("payments",)) == []
    assert transcript.state == "PreparingRebalance"


def test_a_join_sent_twice_is_answered_twice() -> None:
    transcript = pair()
    transcript.joins("a")
    assert transcript.joins("a") == ["a: REBALANCE_IN_PROGRESS"]
    assert transcript.waiting == ["a"]


def test_a_sync_sent_twice_is_answered_twice() -> None:
    transcript = awaiting("a", "b")
    transcript.syncs("b")
    assert transcript.syncs("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert transcript.syncs("a", b="y") == ["a: gets nothing", "b: gets y"]


def test_who_does_not_ask_for_its_share_in_time_is_out() -> None:
    transcript = awaiting("a", "b", rebalance_s=5)
    transcript.syncs("a", a="x", b="y")
    assert transcript.waits(5, "a", "b")[-1] == "b: UNKNOWN_MEMBER_ID"
    assert transcript.state == "PreparingRebalance"
    assert transcript.joins("a") == ["a: in 2 by range, leads a"]


def test_a_leader_that_assigns_nothing_in_time_is_out_and_the_others_are_told() -> None:
    transcript = Transcript()
    transcript.enters("a", rebalance_s=5)
    transcript.enters("b", rebalance_s=5)
    transcript.waits(1)
    transcript.syncs("b")
    assert transcript.waits(5, "a") == ["b: REBALANCE_IN_PROGRESS"]
    assert transcript.joins("b") == ["b: in 2 by range, leads b"]


def test_a_word_of_another_generation_is_refused() -> None:
    transcript = pair()
    transcript.person("a").generation = 7
    assert transcript.syncs("a") == ["a: ILLEGAL_GENERATION"]
    assert transcript.beats("a") == ["a: ILLEGAL_GENERATION"]
    assert transcript.commits("a", {("orders", 0): 1}) == ["a: ILLEGAL_GENERATION"]


# --- going


def test_who_says_nothing_for_its_session_is_out() -> None:
    transcript = pair(session_s=10)
    assert transcript.waits(10.5, "a") == ["a: REBALANCE_IN_PROGRESS"]
    assert transcript.joins("a") == ["a: in 2 by range, leads a"]


def test_who_waits_says_nothing_and_is_not_out_for_it() -> None:
    transcript = pair(session_s=6, rebalance_s=60)
    transcript.enters("c", session_s=6, rebalance_s=60)
    assert transcript.waits(30, "a", "b")[-1] == "b: REBALANCE_IN_PROGRESS"
    transcript.joins("b", session_s=6)
    transcript.waits(20, "a")
    assert transcript.joins("a", session_s=6)[0] == "a: in 2 by range, leads a b c"


def test_a_first_join_waits_five_minutes_at_most() -> None:
    transcript = pair(rebalance_s=1_000)
    transcript.enters("c", rebalance_s=1_000)
    assert transcript.waits(299, "a", "b").count("c: UNKNOWN_MEMBER_ID") == 0
    assert transcript.waits(2, "a", "b").count("c: UNKNOWN_MEMBER_ID") == 1
    assert transcript.waiting == []


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    transcript = pair(session_s=10)
    for _ in range(4):
        transcript.waits(5, "a")
        assert transcript.commits("b", {("orders", 1): 5}) == ["b: done"]
    assert transcript.state == "Stable"


def test_who_leaves_makes_a_round() -> None:
    transcript = pair()
    assert transcript.leaves("b") == ["b: gone"]
    assert transcript.state == "PreparingRebalance"
    assert transcript.joins("a") == ["a: in 2 by range, leads a"]


def test_when_the_leader_leaves_the_one_that_is_there_longest_leads() -> None:
    transcript = pair()
    transcript.leaves("a")
    assert transcript.joins("b") == ["b: in 2 by range, leads b"]


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    transcript = pair()
    assert transcript.leaves("a", "b") == ["a,b: gone, gone"]
    assert transcript.state == "Empty"
    assert transcript.log[-1] == GroupMetadataRecord(
        "g",
        replace(
            transcript.log[0].value, generation=2, protocol=None, leader=None, since_ms=transcript.at_ms, members=()
        ),
    )


def test_of_those_who_leave_each_is_answered_for_itself() -> None:
    transcript = pair()
    lines = transcript.asks(
        "admin", Leave(token=0, group="g", members=(Leaving("b-1"), Leaving("nobody"), Leaving("", "no-instance")))
    )
    assert lines == ["admin: gone, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID"]
    assert [member.id for member in transcript.told.members] == ["a-1"]


def test_who_waits_and_leaves_is_answered() -> None:
    transcript = Transcript()
    transcript.enters("a")
    assert transcript.leaves("a") == ["a: UNKNOWN_MEMBER_ID", "a: gone"]
    transcript = awaiting("a", "b")
    transcript.syncs("b")
    assert transcript.leaves("b") == ["b: UNKNOWN_MEMBER_ID", "b: gone"]


def test_an_id_that_was_given_out_may_leave_without_a_round() -> None:
    transcript = pair()
    transcript.joins("c")
    assert transcript.leaves("c") == ["c: gone"]
    assert transcript.state == "Stable"


def test_of_a_group_that_does_not_exist_nobody_is_known() -> None:
    transcript = Transcript()
    transcript.people["a"] = transcript.person("a")
    transcript.person("a").member = "a-1"
    assert transcript.syncs("a") == ["a: UNKNOWN_MEMBER_ID"]
    assert transcript.beats("a") == ["a: UNKNOWN_MEMBER_ID"]
    assert transcript.leaves("a") == ["a: UNKNOWN_MEMBER_ID"]


# --- static members


def test_a_static_member_needs_no_second_join() -> None:
    transcript = Transcript()
    assert transcript.joins("a", instance="i-a") == []
    assert transcript.waits(1) == ["a: in 1 by range, leads a"]


def static_pair(v: int = 9) -> Transcript:
    transcript = Transcript()
    transcript.joins("a", instance="i-a", v=v)
    transcript.joins("b", instance="i-b", v=v)
    transcript.waits(2)
    transcript.syncs("a", a="x", b="y")
    transcript.syncs("b")
    return transcript


def test_a_static_member_that_restarts_keeps_its_share_without_a_round() -> None:
    transcript = static_pair()
    before = len(transcript.log)
    assert transcript.joins("b", member="") == ["b: in 1 by range"]
    assert transcript.people["b"].member == "b-2"
    assert transcript.syncs("b") == ["b: gets y"]
    assert transcript.state == "Stable"
    assert len(transcript.log) == before + 1, "its new id is written"


def test_a_static_leader_that_restarts_is_told_that_all_is_assigned() -> None:
    transcript = static_pair()
    assert transcript.joins("a", member="") == ["a: in 1 by range, leads a b, all is assigned"]
    assert transcript.syncs("a") == ["a: gets x"]


def test_before_v9_a_static_leader_that_restarts_is_not_told_that_it_leads() -> None:
    transcript = static_pair(v=8)
    assert transcript.joins("a", member="", v=8) == ["a: in 1 by range"]
    assert transcript.syncs("a") == ["a: gets x"]


def test_a_static_member_that_restarts_and_prefers_another_protocol_makes_a_round() -> None:
    transcript = Transcript()
    transcript.joins("a", "range", "sticky", instance="i-a")
    transcript.joins("b", "range", "sticky", instance="i-b")
    transcript.waits(2)
    transcript.syncs("a", a="x", b="y")
    transcript.syncs("b")
    assert transcript.joins("b", "sticky", member="") == []
    assert transcript.joins("a", "range", "sticky") == ["a: in 2 by sticky, leads a b", "b: in 2 by sticky"]


def test_a_static_member_that_restarts_while_shares_are_awaited_makes_a_round() -> None:
    transcript = Transcript()
    transcript.joins("a", instance="i-a")
    transcript.joins("b", instance="i-b")
    transcript.waits(2)
    transcript.syncs("b")
    assert transcript.joins("b", member="") == ["b: FENCED_INSTANCE_ID"]
    assert transcript.state == "PreparingRebalance"
    assert transcript.joins("a") == ["a: in 2 by range, leads a b", "b: in 2 by range"]


def test_a_static_member_that_restarts_while_it_waits_fences_its_last_self() -> None:
    transcript = Transcript()
    transcript.joins("a", instance="i-a")
    assert transcript.joins("a", member="") == ["a: FENCED_INSTANCE_ID"]
    assert transcript.waits(1) == ["a: in 1 by range, leads a"]


def test_whoever_has_the_last_id_of_a_static_member_is_fenced() -> None:
    transcript = static_pair()
    transcript.joins("b", member="")
    transcript.person("b").member = "b-1"
    assert transcript.beats("b") == ["b: FENCED_INSTANCE_ID"]
    assert transcript.syncs("b") == ["b: FENCED_INSTANCE_ID"]
    assert transcript.joins("b") == ["b: FENCED_INSTANCE_ID"]
    assert transcript.commits("b", {("orders", 0): 1}) == ["b: FENCED_INSTANCE_ID"]
    assert transcript.leaves("b") == ["b: FENCED_INSTANCE_ID"]
    assert len(transcript.told.members) == 2


def test_a_static_member_that_is_away_is_not_waited_for_but_stays_until_its_session_is_over() -> None:
    transcript = Transcript()
    transcript.joins("a", instance="i-a", rebalance_s=5, session_s=30)
    transcript.joins("b", instance="i-b", rebalance_s=5, session_s=30)
    transcript.waits(2)
    transcript.syncs("a", a="x", b="y")
    transcript.syncs("b")
    transcript.joins("a", rebalance_s=5, session_s=30)
    assert transcript.waits(5) == ["a: in 2 by range, leads a b"]


def test_static_members_that_are_all_away_are_waited_for_until_their_sessions_are_over() -> None:
    transcript = Transcript()
    transcript.joins("a", instance="i-a", rebalance_s=5, session_s=30)
    transcript.joins("b", instance="i-b", rebalance_s=5, session_s=20)
    transcript.waits(2)
    transcript.syncs("b")
    transcript.syncs("a", a="x", b="y")
    transcript.enters("c", rebalance_s=5)
    transcript.leaves("c")
    transcript.waits(19)
    assert (transcript.state, len(transcript.told.members)) == ("PreparingRebalance", 2)
    transcript.waits(9)
    assert (transcript.state, len(transcript.told.members)) == ("PreparingRebalance", 1)
    transcript.waits(2)
    assert (transcript.state, len(transcript.told.members)) == ("Empty", 0)


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    transcript = static_pair()
    assert transcript.evicts("i-b") == ["admin: gone"]
    assert transcript.joins("a") == ["a: in 2 by range, leads a"]


def test_a_static_member_may_restart_in_a_full_group() -> None:
    transcript = Transcript(replace(LIMITS, members_max=2))
    transcript.joins("a", instance="i-a")
    transcript.joins("b", instance="i-b")
    transcript.waits(2)
    transcript.syncs("a", a="x", b="y")
    assert transcript.joins("b", member="") == ["b: in 1 by range"]
    assert transcript.joins("c", instance="i-c") == ["c: GROUP_MAX_SIZE_REACHED"]


# --- another coordinator


def test_members_go_on_without_noticing_that_the_coordinator_failed() -> None:
    transcript = pair()
    transcript.fails_over()
    assert transcript.state == "Stable"
    assert transcript.beats("a") == ["a: alive"]
    assert transcript.beats("b") == ["b: alive"]
    assert transcript.commits("b", {("orders", 1): 7}) == ["b: done"]
    assert transcript.syncs("b") == ["b: gets y"]
    assert transcript.waits(9) == []


def test_sessions_begin_anew_with_a_coordinator() -> None:
    transcript = pair(session_s=10)
    transcript.waits(9)
    transcript.fails_over()
    assert transcript.waits(9) == []
    assert transcript.state == "Stable"
    transcript.waits(2)
    assert transcript.state == "Empty"


def test_a_round_that_was_not_written_is_begun_anew() -> None:
    transcript = pair()
    transcript.enters("c")
    transcript.joins("a")
    transcript.joins("b")
    transcript.syncs("b")
    transcript.fails_over()
    assert transcript.syncs("a", a="x") == ["a: ILLEGAL_GENERATION"]
    assert transcript.joins("c") == ["c: UNKNOWN_MEMBER_ID"]
    assert transcript.joins("b") == ["b: in 1 by range"]
    assert transcript.joins("a") == []
    assert transcript.joins("b") == ["a: in 2 by range, leads a b", "b: in 2 by range"]


def test_a_group_that_was_never_written_is_not_known() -> None:
    transcript = Transcript()
    transcript.enters("a")
    transcript.fails_over()
    assert transcript.joins("a") == ["a: UNKNOWN_MEMBER_ID"]


def test_a_static_member_is_known_to_the_next_coordinator() -> None:
    transcript = static_pair()
    transcript.joins("b", member="")
    transcript.fails_over()
    assert transcript.joins("b", member="") == ["b: in 1 by range"]
    assert transcript.syncs("b") == ["b: gets y"]
    assert transcript.joins("a", member="") == ["a: in 1 by range, leads a b, all is assigned"]


def test_a_group_that_is_larger_than_it_may_be_now_is_cut_down() -> None:
    transcript = pair()
    transcript.limits = replace(LIMITS, members_max=1)
    transcript.fails_over()
    assert transcript.beats("a") == ["a: REBALANCE_IN_PROGRESS"]
    assert transcript.joins("b") == []
    assert transcript.joins("a") == ["a: GROUP_MAX_SIZE_REACHED", "b: in 2 by range, leads b"]


# --- descriptions


def test_only_a_stable_group_shows_what_its_members_said() -> None:
    transcript = pair()
    assert (transcript.told.protocol, [m.metadata for m in transcript.told.members]) == (
        "range",
        [subscription("orders")] * 2,
    )
    transcript.enters("c")
    assert (transcript.told.protocol, {m.metadata for m in transcript.told.members}) == ("", {b""})
    assert [member.client_host for member in transcript.told.members] == ["/127.0.0.1"] * 3
    assert [(g.group, g.protocol_type, g.state.value) for g in transcript.shard.groups()] == [
        ("g", "consumer", "PreparingRebalance")
    ]
    assert transcript.shard.describe("other").state.value == "Dead"
