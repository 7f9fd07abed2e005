"""Classic groups, told as transcripts: what somebody asks, who is answered what. A tale for each of Kafka's rules."""

from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.core.kafka.classic_events import Leave, Leaving
from seaweedmq.model.kafka_groups import GroupMetadataRecord
from tests.core.kafka.group_tale import LIMITS, Tale, subscription


def pair(**how: Any) -> Tale:
    """``a`` leads, ``b`` follows, both have what they read."""
    tale = Tale()
    tale.enters("a", **how)
    tale.enters("b", **how)
    tale.waits(2)
    tale.syncs("b")
    tale.syncs("a", a="x", b="y")
    assert tale.state == "Stable"
    return tale


# --- coming in


def test_a_first_member_is_given_an_id_waits_a_moment_leads_and_gets_what_it_says() -> None:
    tale = Tale()
    assert tale.joins("a") == ["a: MEMBER_ID_REQUIRED"]
    assert tale.state == "Empty"
    assert tale.joins("a") == []
    assert tale.state == "PreparingRebalance"
    assert tale.waits(0.4) == []
    assert tale.waits(0.1) == ["a: in 1 by range, leads a"]
    assert tale.state == "CompletingRebalance"
    assert tale.syncs("a", a="all") == ["a: gets all"]
    assert tale.state == "Stable"


def test_before_v4_a_member_is_given_its_id_with_the_generation() -> None:
    tale = Tale()
    assert tale.joins("a", v=3) == []
    assert tale.waits(1) == ["a: in 1 by range, leads a"]
    assert tale.people["a"].member == "a-1"


def test_while_others_come_the_first_wait_on() -> None:
    tale = Tale()
    tale.enters("a")
    tale.waits(0.3)
    tale.enters("b")
    assert tale.waits(0.3) == []
    assert tale.waits(0.4) == ["a: in 1 by range, leads a b", "b: in 1 by range"]


def test_while_others_come_the_first_wait_no_longer_than_their_rebalance_timeout() -> None:
    tale = Tale()
    tale.enters("a", rebalance_s=1.2)
    tale.waits(0.3)
    tale.enters("b")
    tale.waits(0.5)
    tale.enters("c")
    assert tale.waits(0.39) == []
    assert tale.waits(0.02) == ["a: in 1 by range, leads a b c", "b: in 1 by range", "c: in 1 by range"]


def test_members_are_told_apart_by_their_id_alone() -> None:
    tale = Tale()
    for name in ("a", "b"):
        tale.enters(name)
    clients = {member.client_id for member in tale.told.members}
    assert clients == {"a", "b"}
    tale = Tale()
    tale.enters("a")
    tale.person("a").member = ""
    tale.enters("a")
    assert [member.id for member in tale.told.members] == ["a-1", "a-3"]
    assert [member.client_id for member in tale.told.members] == ["a", "a"]


def test_followers_wait_for_the_leaders_word_and_who_it_leaves_out_has_nothing() -> None:
    tale = Tale()
    for name in ("a", "b", "c"):
        tale.enters(name)
    tale.waits(2)
    assert tale.syncs("b") == []
    assert tale.syncs("a", a="x", b="y", stranger="z") == ["a: gets x", "b: gets y"]
    assert tale.syncs("c") == ["c: gets nothing"]


def test_an_id_that_was_never_given_out_is_unknown() -> None:
    tale = Tale()
    assert tale.joins("a", member="made-up") == ["a: UNKNOWN_MEMBER_ID"]
    tale = pair()
    assert tale.joins("c", member="made-up") == ["c: UNKNOWN_MEMBER_ID"]
    assert tale.state == "Stable"


def test_an_id_that_was_given_out_and_never_used_is_forgotten() -> None:
    tale = Tale()
    tale.joins("a", session_s=10)
    assert tale.waits(11) == []
    assert tale.joins("a") == ["a: UNKNOWN_MEMBER_ID"]
    assert tale.shard.groups() == ()


def test_a_round_waits_for_an_id_that_was_given_out() -> None:
    tale = pair()
    tale.joins("c", session_s=10)
    tale.joins("a")
    assert tale.joins("b") == []
    assert tale.joins("c") == ["a: in 2 by range, leads a b c", "b: in 2 by range", "c: in 2 by range"]


def test_a_round_waits_for_an_id_that_was_given_out_until_its_session_is_over() -> None:
    tale = pair()
    tale.joins("c", session_s=10)
    tale.joins("a")
    tale.joins("b")
    assert tale.waits(9) == []
    assert tale.waits(1) == ["a: in 2 by range, leads a b", "b: in 2 by range"]


@pytest.mark.parametrize("session_s", [0.001, 5.999, 1_801])
def test_a_session_must_be_of_a_length_that_can_be_kept(session_s: float) -> None:
    assert Tale().joins("a", session_s=session_s) == ["a: INVALID_SESSION_TIMEOUT"]


def test_a_full_group_takes_nobody_else() -> None:
    tale = Tale()
    for name in ("a", "b", "c", "d"):
        tale.enters(name)
    assert tale.enters("e") == ["e: GROUP_MAX_SIZE_REACHED"]
    tale.waits(3)
    assert tale.enters("e") == ["e: GROUP_MAX_SIZE_REACHED"]
    assert tale.syncs("a", a="x") == ["a: gets x"]
    assert tale.enters("e") == ["e: GROUP_MAX_SIZE_REACHED"]
    assert len(tale.told.members) == 4


def test_ids_are_not_given_out_without_end() -> None:
    tale = Tale()
    for name in ("a", "b", "c", "d"):
        assert tale.joins(name) == [f"{name}: MEMBER_ID_REQUIRED"]
    assert tale.joins("e") == ["e: GROUP_MAX_SIZE_REACHED"]


def test_a_group_that_says_too_much_takes_no_more_of_it() -> None:
    tale = Tale(replace(LIMITS, group_bytes_max=10_000))
    tale.enters("a", metadata=bytes(6_000))
    assert tale.joins("b", metadata=bytes(6_000)) == ["b: GROUP_MAX_SIZE_REACHED"]
    assert tale.waits(1) == ["a: in 1 by range, leads a"]


def test_an_assignment_that_is_too_large_is_nobodys() -> None:
    tale = Tale(replace(LIMITS, group_bytes_max=10_000))
    tale.enters("a")
    tale.enters("b")
    tale.waits(2)
    tale.syncs("b")
    assert tale.syncs("a", a="x" * 10_000) == ["a: UNKNOWN_SERVER_ERROR", "b: UNKNOWN_SERVER_ERROR"]
    assert tale.state == "PreparingRebalance"
    assert tale.log == []


def test_names_that_are_too_long_are_refused() -> None:
    tale = Tale()
    assert tale.joins("a", instance="i" * 4_097) == ["a: INVALID_REQUEST"]
    assert tale.joins("b", "p" * 4_097) == ["b: INVALID_REQUEST"]
    assert tale.shard.groups() == ()


@pytest.mark.parametrize("group", ["g" * 32_767, "é" * 16_383])
def test_an_id_of_a_group_may_be_as_long_as_a_string_of_kafka(group: str) -> None:
    tale = Tale(group=group)
    tale.joins("a")
    assert [listed.group for listed in tale.shard.groups()] == [group]


@pytest.mark.parametrize("group", ["", "g" * 32_768, "é" * 16_384])
def test_an_id_of_a_group_is_not_longer_than_a_string_of_kafka(group: str) -> None:
    tale = Tale(group=group)
    for answer in (tale.joins("a"), tale.syncs("a"), tale.beats("a"), tale.leaves("a")):
        assert answer == ["a: INVALID_GROUP_ID"]


# --- protocols


def test_the_protocol_that_most_prefer_of_those_that_all_speak() -> None:
    tale = Tale()
    tale.enters("a", "range", "sticky", "own")
    tale.enters("b", "sticky", "range")
    tale.enters("c", "sticky", "range")
    assert tale.waits(2)[0] == "a: in 1 by sticky, leads a b c"


def test_of_equals_the_one_that_was_named_first() -> None:
    tale = Tale()
    tale.enters("a", "range", "sticky")
    tale.enters("b", "sticky", "range")
    assert tale.waits(2)[0] == "a: in 1 by range, leads a b"


def test_who_speaks_nothing_that_all_speak_stays_out() -> None:
    tale = pair()
    assert tale.joins("c", "sticky") == ["c: INCONSISTENT_GROUP_PROTOCOL"]
    assert tale.joins("c", "range", kind="connect") == ["c: INCONSISTENT_GROUP_PROTOCOL"]
    assert tale.joins("a", "sticky") == ["a: INCONSISTENT_GROUP_PROTOCOL"]
    assert tale.state == "Stable"


def test_a_group_needs_a_protocol_type() -> None:
    assert Tale().joins("a", kind="") == ["a: INCONSISTENT_GROUP_PROTOCOL"]


@pytest.mark.parametrize("kind", ["consumer", "connect", "sr", "anything"])
def test_any_protocol_type_will_do_and_an_empty_group_may_take_another(kind: str) -> None:
    tale = pair()
    tale.leaves("a", "b")
    assert (tale.state, tale.told.protocol_type) == ("Empty", "consumer")
    assert tale.enters("c", "own", kind=kind, metadata=b"whatever") == []
    assert tale.waits(1) == ["c: in 3 by own, leads c"]
    assert tale.told.protocol_type == kind


def test_a_sync_that_names_another_protocol_is_refused() -> None:
    tale = Tale()
    tale.enters("a")
    tale.waits(1)
    assert tale.syncs("a", protocol="sticky") == ["a: INCONSISTENT_GROUP_PROTOCOL"]
    assert tale.syncs("a", protocol="range", a="x") == ["a: gets x"]


# --- rounds


def test_a_third_member_makes_a_round_in_which_the_others_have_time_to_come() -> None:
    tale = pair()
    assert tale.enters("c") == []
    assert tale.beats("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert tale.syncs("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert tale.joins("b") == []
    assert tale.joins("a") == ["a: in 2 by range, leads a b c", "b: in 2 by range", "c: in 2 by range"]


def test_the_generation_rises_when_the_join_phase_ends_not_before() -> None:
    tale = pair()
    tale.enters("c")
    assert tale.beats("a", generation=1) == ["a: REBALANCE_IN_PROGRESS"]
    assert tale.beats("a", generation=2) == ["a: ILLEGAL_GENERATION"]
    tale.joins("a")
    tale.joins("b")
    assert tale.beats("b", generation=1) == ["b: ILLEGAL_GENERATION"]
    assert tale.beats("b", generation=2) == ["b: alive"]


def test_who_does_not_come_in_time_is_out() -> None:
    tale = pair(rebalance_s=5)
    tale.enters("c", rebalance_s=3)
    assert tale.waits(4.9, "a", "b") == ["a: REBALANCE_IN_PROGRESS", "b: REBALANCE_IN_PROGRESS"] * 4
    tale.joins("b", rebalance_s=5)
    assert tale.waits(0.1) == ["b: in 2 by range, leads b c", "c: in 2 by range"]
    assert tale.beats("a") == ["a: UNKNOWN_MEMBER_ID"]


def test_a_leader_that_does_not_come_in_time_is_replaced() -> None:
    tale = pair(rebalance_s=5)
    tale.joins("b", "range", "sticky", rebalance_s=5)
    assert tale.waits(6, "a")[-2:] == ["b: in 2 by range, leads b", "a: UNKNOWN_MEMBER_ID"]


def test_a_member_keeps_its_share_until_the_next_one() -> None:
    tale = pair()
    tale.enters("c")
    assert [member.assignment for member in tale.told.members] == [b"x", b"y", b""]


def test_a_join_while_shares_are_awaited_begins_a_new_round() -> None:
    tale = Tale()
    tale.enters("a")
    tale.enters("b")
    tale.waits(2)
    assert tale.syncs("b") == []
    tale.joins("c")
    assert tale.joins("c") == ["b: REBALANCE_IN_PROGRESS"]
    assert tale.syncs("a", a="x") == ["a: REBALANCE_IN_PROGRESS"]
    tale.joins("b")
    assert tale.joins("a") == ["a: in 2 by range, leads a b c", "b: in 2 by range", "c: in 2 by range"]


def test_a_member_with_nothing_new_is_told_the_generation_once_more() -> None:
    tale = pair()
    assert tale.joins("b") == ["b: in 1 by range"]
    assert tale.syncs("b") == ["b: gets y"]
    assert tale.state == "Stable"


def test_a_leader_that_joins_again_makes_a_round_whatever_it_says() -> None:
    tale = pair()
    assert tale.joins("a") == []
    assert tale.state == "PreparingRebalance"


def test_a_member_that_subscribes_to_something_else_makes_a_round() -> None:
    tale = pair()
    assert tale.joins("b", topics=("orders", "payments")) == []
    assert tale.joins("a") == ["a: in 2 by range, leads a b", "b: in 2 by range"]


def test_an_answer_to_a_join_that_got_lost_is_said_again_while_shares_are_awaited() -> None:
    tale = Tale()
    tale.enters("a")
    tale.enters("b")
    tale.waits(2)
    assert tale.joins("a") == ["a: in 1 by range, leads a b"]
    assert tale.joins("b") == ["b: in 1 by range"]
    assert tale.joins("b", topics=("payments",)) == []
    assert tale.state == "PreparingRebalance"


def test_a_join_sent_twice_is_answered_twice() -> None:
    tale = pair()
    tale.joins("a")
    assert tale.joins("a") == ["a: REBALANCE_IN_PROGRESS"]
    assert tale.waiting == ["a"]


def test_a_sync_sent_twice_is_answered_twice() -> None:
    tale = Tale()
    tale.enters("a")
    tale.enters("b")
    tale.waits(2)
    tale.syncs("b")
    assert tale.syncs("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert tale.syncs("a", b="y") == ["a: gets nothing", "b: gets y"]


def test_who_does_not_ask_for_its_share_in_time_is_out() -> None:
    tale = Tale()
    tale.enters("a", rebalance_s=5)
    tale.enters("b", rebalance_s=5)
    tale.waits(2)
    tale.syncs("a", a="x", b="y")
    assert tale.waits(5, "a", "b")[-1] == "b: UNKNOWN_MEMBER_ID"
    assert tale.state == "PreparingRebalance"
    assert tale.joins("a") == ["a: in 2 by range, leads a"]


def test_a_leader_that_assigns_nothing_in_time_is_out_and_the_others_are_told() -> None:
    tale = Tale()
    tale.enters("a", rebalance_s=5)
    tale.enters("b", rebalance_s=5)
    tale.waits(1)
    tale.syncs("b")
    assert tale.waits(5, "a") == ["b: REBALANCE_IN_PROGRESS"]
    assert tale.joins("b") == ["b: in 2 by range, leads b"]


def test_a_word_of_another_generation_is_refused() -> None:
    tale = pair()
    tale.person("a").generation = 7
    assert tale.syncs("a") == ["a: ILLEGAL_GENERATION"]
    assert tale.beats("a") == ["a: ILLEGAL_GENERATION"]
    assert tale.commits("a", {("orders", 0): 1}) == ["a: ILLEGAL_GENERATION"]


# --- going


def test_who_says_nothing_for_its_session_is_out() -> None:
    tale = pair(session_s=10)
    assert tale.waits(10.5, "a") == ["a: REBALANCE_IN_PROGRESS"]
    assert tale.joins("a") == ["a: in 2 by range, leads a"]


def test_who_waits_says_nothing_and_is_not_out_for_it() -> None:
    tale = pair(session_s=6, rebalance_s=60)
    tale.enters("c", session_s=6, rebalance_s=60)
    assert tale.waits(30, "a", "b")[-1] == "b: REBALANCE_IN_PROGRESS"
    tale.joins("b", session_s=6)
    tale.waits(20, "a")
    assert tale.joins("a", session_s=6)[0] == "a: in 2 by range, leads a b c"


def test_a_first_join_waits_five_minutes_at_most() -> None:
    tale = pair(rebalance_s=1_000)
    tale.enters("c", rebalance_s=1_000)
    assert tale.waits(299, "a", "b").count("c: UNKNOWN_MEMBER_ID") == 0
    assert tale.waits(2, "a", "b").count("c: UNKNOWN_MEMBER_ID") == 1
    assert tale.waiting == []


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    tale = pair(session_s=10)
    for _ in range(4):
        tale.waits(5, "a")
        assert tale.commits("b", {("orders", 1): 5}) == ["b: done"]
    assert tale.state == "Stable"


def test_who_leaves_makes_a_round() -> None:
    tale = pair()
    assert tale.leaves("b") == ["b: gone"]
    assert tale.state == "PreparingRebalance"
    assert tale.joins("a") == ["a: in 2 by range, leads a"]


def test_when_the_leader_leaves_the_one_that_is_there_longest_leads() -> None:
    tale = pair()
    tale.leaves("a")
    assert tale.joins("b") == ["b: in 2 by range, leads b"]


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    tale = pair()
    assert tale.leaves("a", "b") == ["a,b: gone, gone"]
    assert tale.state == "Empty"
    assert tale.log[-1] == GroupMetadataRecord(
        "g",
        replace(tale.log[0].value, generation=2, protocol=None, leader=None, since_ms=tale.at_ms, members=()),
    )


def test_of_those_who_leave_each_is_answered_for_itself() -> None:
    tale = pair()
    lines = tale.asks(
        "admin", Leave(token=0, group="g", members=(Leaving("b-1"), Leaving("nobody"), Leaving("", "no-instance")))
    )
    assert lines == ["admin: gone, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID"]
    assert [member.id for member in tale.told.members] == ["a-1"]


def test_who_waits_and_leaves_is_answered() -> None:
    tale = Tale()
    tale.enters("a")
    assert tale.leaves("a") == ["a: UNKNOWN_MEMBER_ID", "a: gone"]
    tale = Tale()
    tale.enters("a")
    tale.enters("b")
    tale.waits(2)
    tale.syncs("b")
    assert tale.leaves("b") == ["b: UNKNOWN_MEMBER_ID", "b: gone"]


def test_an_id_that_was_given_out_may_leave_without_a_round() -> None:
    tale = pair()
    tale.joins("c")
    assert tale.leaves("c") == ["c: gone"]
    assert tale.state == "Stable"


def test_of_a_group_that_does_not_exist_nobody_is_known() -> None:
    tale = Tale()
    tale.people["a"] = tale.person("a")
    tale.person("a").member = "a-1"
    assert tale.syncs("a") == ["a: UNKNOWN_MEMBER_ID"]
    assert tale.beats("a") == ["a: UNKNOWN_MEMBER_ID"]
    assert tale.leaves("a") == ["a: UNKNOWN_MEMBER_ID"]


# --- static members


def test_a_static_member_needs_no_second_join() -> None:
    tale = Tale()
    assert tale.joins("a", instance="i-a") == []
    assert tale.waits(1) == ["a: in 1 by range, leads a"]


def static_pair(v: int = 9) -> Tale:
    tale = Tale()
    tale.joins("a", instance="i-a", v=v)
    tale.joins("b", instance="i-b", v=v)
    tale.waits(2)
    tale.syncs("a", a="x", b="y")
    tale.syncs("b")
    return tale


def test_a_static_member_that_restarts_keeps_its_share_without_a_round() -> None:
    tale = static_pair()
    before = len(tale.log)
    assert tale.joins("b", member="") == ["b: in 1 by range"]
    assert tale.people["b"].member == "b-2"
    assert tale.syncs("b") == ["b: gets y"]
    assert tale.state == "Stable"
    assert len(tale.log) == before + 1, "its new id is written"


def test_a_static_leader_that_restarts_is_told_that_all_is_assigned() -> None:
    tale = static_pair()
    assert tale.joins("a", member="") == ["a: in 1 by range, leads a b, all is assigned"]
    assert tale.syncs("a") == ["a: gets x"]


def test_before_v9_a_static_leader_that_restarts_is_not_told_that_it_leads() -> None:
    tale = static_pair(v=8)
    assert tale.joins("a", member="", v=8) == ["a: in 1 by range"]
    assert tale.syncs("a") == ["a: gets x"]


def test_a_static_member_that_restarts_and_prefers_another_protocol_makes_a_round() -> None:
    tale = Tale()
    tale.joins("a", "range", "sticky", instance="i-a")
    tale.joins("b", "range", "sticky", instance="i-b")
    tale.waits(2)
    tale.syncs("a", a="x", b="y")
    tale.syncs("b")
    assert tale.joins("b", "sticky", member="") == []
    assert tale.joins("a", "range", "sticky") == ["a: in 2 by sticky, leads a b", "b: in 2 by sticky"]


def test_a_static_member_that_restarts_while_shares_are_awaited_makes_a_round() -> None:
    tale = Tale()
    tale.joins("a", instance="i-a")
    tale.joins("b", instance="i-b")
    tale.waits(2)
    tale.syncs("b")
    assert tale.joins("b", member="") == ["b: FENCED_INSTANCE_ID"]
    assert tale.state == "PreparingRebalance"
    assert tale.joins("a") == ["a: in 2 by range, leads a b", "b: in 2 by range"]


def test_a_static_member_that_restarts_while_it_waits_fences_its_last_self() -> None:
    tale = Tale()
    tale.joins("a", instance="i-a")
    assert tale.joins("a", member="") == ["a: FENCED_INSTANCE_ID"]
    assert tale.waits(1) == ["a: in 1 by range, leads a"]


def test_whoever_has_the_last_id_of_a_static_member_is_fenced() -> None:
    tale = static_pair()
    tale.joins("b", member="")
    tale.person("b").member = "b-1"
    assert tale.beats("b") == ["b: FENCED_INSTANCE_ID"]
    assert tale.syncs("b") == ["b: FENCED_INSTANCE_ID"]
    assert tale.joins("b") == ["b: FENCED_INSTANCE_ID"]
    assert tale.commits("b", {("orders", 0): 1}) == ["b: FENCED_INSTANCE_ID"]
    assert tale.leaves("b") == ["b: FENCED_INSTANCE_ID"]
    assert len(tale.told.members) == 2


def test_a_static_member_that_is_away_is_not_waited_for_but_stays_until_its_session_is_over() -> None:
    tale = Tale()
    tale.joins("a", instance="i-a", rebalance_s=5, session_s=30)
    tale.joins("b", instance="i-b", rebalance_s=5, session_s=30)
    tale.waits(2)
    tale.syncs("a", a="x", b="y")
    tale.syncs("b")
    tale.joins("a", rebalance_s=5, session_s=30)
    assert tale.waits(5) == ["a: in 2 by range, leads a b"]


def test_static_members_that_are_all_away_are_waited_for_until_their_sessions_are_over() -> None:
    tale = Tale()
    tale.joins("a", instance="i-a", rebalance_s=5, session_s=30)
    tale.joins("b", instance="i-b", rebalance_s=5, session_s=20)
    tale.waits(2)
    tale.syncs("b")
    tale.syncs("a", a="x", b="y")
    tale.enters("c", rebalance_s=5)
    tale.leaves("c")
    tale.waits(19)
    assert (tale.state, len(tale.told.members)) == ("PreparingRebalance", 2)
    tale.waits(9)
    assert (tale.state, len(tale.told.members)) == ("PreparingRebalance", 1)
    tale.waits(2)
    assert (tale.state, len(tale.told.members)) == ("Empty", 0)


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    tale = static_pair()
    assert tale.evicts("i-b") == ["admin: gone"]
    assert tale.joins("a") == ["a: in 2 by range, leads a"]


def test_a_static_member_may_restart_in_a_full_group() -> None:
    tale = Tale(replace(LIMITS, members_max=2))
    tale.joins("a", instance="i-a")
    tale.joins("b", instance="i-b")
    tale.waits(2)
    tale.syncs("a", a="x", b="y")
    assert tale.joins("b", member="") == ["b: in 1 by range"]
    assert tale.joins("c", instance="i-c") == ["c: GROUP_MAX_SIZE_REACHED"]


# --- another coordinator


def test_members_go_on_without_noticing_that_the_coordinator_failed() -> None:
    tale = pair()
    tale.fails_over()
    assert tale.state == "Stable"
    assert tale.beats("a") == ["a: alive"]
    assert tale.beats("b") == ["b: alive"]
    assert tale.commits("b", {("orders", 1): 7}) == ["b: done"]
    assert tale.syncs("b") == ["b: gets y"]
    assert tale.waits(9) == []


def test_sessions_begin_anew_with_a_coordinator() -> None:
    tale = pair(session_s=10)
    tale.waits(9)
    tale.fails_over()
    assert tale.waits(9) == []
    assert tale.state == "Stable"
    tale.waits(2)
    assert tale.state == "Empty"


def test_a_round_that_was_not_written_is_begun_anew() -> None:
    tale = pair()
    tale.enters("c")
    tale.joins("a")
    tale.joins("b")
    tale.syncs("b")
    tale.fails_over()
    assert tale.syncs("a", a="x") == ["a: ILLEGAL_GENERATION"]
    assert tale.joins("c") == ["c: UNKNOWN_MEMBER_ID"]
    assert tale.joins("b") == ["b: in 1 by range"]
    assert tale.joins("a") == []
    assert tale.joins("b") == ["a: in 2 by range, leads a b", "b: in 2 by range"]


def test_a_group_that_was_never_written_is_not_known() -> None:
    tale = Tale()
    tale.enters("a")
    tale.fails_over()
    assert tale.joins("a") == ["a: UNKNOWN_MEMBER_ID"]


def test_a_static_member_is_known_to_the_next_coordinator() -> None:
    tale = static_pair()
    tale.joins("b", member="")
    tale.fails_over()
    assert tale.joins("b", member="") == ["b: in 1 by range"]
    assert tale.syncs("b") == ["b: gets y"]
    assert tale.joins("a", member="") == ["a: in 1 by range, leads a b, all is assigned"]


def test_a_group_that_is_larger_than_it_may_be_now_is_cut_down() -> None:
    tale = pair()
    tale.limits = replace(LIMITS, members_max=1)
    tale.fails_over()
    assert tale.beats("a") == ["a: REBALANCE_IN_PROGRESS"]
    assert tale.joins("b") == []
    assert tale.joins("a") == ["a: GROUP_MAX_SIZE_REACHED", "b: in 2 by range, leads b"]


# --- to people


def test_only_a_stable_group_shows_what_its_members_said() -> None:
    tale = pair()
    assert (tale.told.protocol, [m.metadata for m in tale.told.members]) == ("range", [subscription("orders")] * 2)
    tale.enters("c")
    assert (tale.told.protocol, {m.metadata for m in tale.told.members}) == ("", {b""})
    assert [member.client_host for member in tale.told.members] == ["/127.0.0.1"] * 3
    assert [(g.group, g.protocol_type, g.state.value) for g in tale.shard.groups()] == [
        ("g", "consumer", "PreparingRebalance")
    ]
    assert tale.shard.describe("other").state.value == "Dead"
