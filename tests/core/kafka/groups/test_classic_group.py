"""Classic groups, as transcripts: how a group begins, changes and fails over, and the rules that are not in its model.

``test_group_machine`` compares all answers with a model: ids, rebalances, votes, timeouts, static members, departures.
"""

from dataclasses import replace
from typing import Any

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


def test_followers_wait_for_the_leaders_word_and_a_third_member_makes_a_round() -> None:
    transcript = awaiting("a", "b", "c")
    assert transcript.syncs("b") == []
    assert transcript.syncs("a", a="x", b="y", stranger="z") == ["a: gets x", "b: gets y"]
    assert transcript.syncs("c") == ["c: gets nothing"]
    transcript = pair()
    assert transcript.enters("c") == []
    assert transcript.beats("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert transcript.syncs("b") == ["b: REBALANCE_IN_PROGRESS"]
    assert transcript.joins("b") == []
    assert transcript.joins("a") == ["a: in 2 by range, leads a b c", "b: in 2 by range", "c: in 2 by range"]


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


def test_ids_what_members_say_and_assignments_have_bounds() -> None:
    transcript = Transcript()
    for name in ("a", "b", "c", "d"):
        assert transcript.joins(name) == [f"{name}: MEMBER_ID_REQUIRED"]
    assert transcript.joins("e") == ["e: GROUP_MAX_SIZE_REACHED"]
    transcript = Transcript(replace(LIMITS, group_bytes_max=10_000))
    transcript.enters("a", metadata=bytes(6_000))
    assert transcript.joins("b", metadata=bytes(6_000)) == ["b: GROUP_MAX_SIZE_REACHED"]
    assert transcript.waits(1) == ["a: in 1 by range, leads a"]
    transcript = Transcript(replace(LIMITS, group_bytes_max=10_000))
    transcript.enters("a")
    transcript.enters("b")
    transcript.waits(2)
    transcript.syncs("b")
    assert transcript.syncs("a", a="x" * 10_000) == ["a: UNKNOWN_SERVER_ERROR", "b: UNKNOWN_SERVER_ERROR"]
    assert transcript.state == "PreparingRebalance"
    assert transcript.log == []
    transcript = Transcript(replace(LIMITS, group_bytes_max=10_000))
    transcript.enters("a")
    transcript.waits(1)
    for share in ("x" * 6_000, "y" * 7_000, "z" * 8_000):
        assert transcript.syncs("a", a=share) == [f"a: gets {share}"], "it replaces the share before"
        transcript.joins("a", topics=(share[0],))


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


def test_any_protocol_type_will_do_and_an_empty_group_may_take_another() -> None:
    for kind in ("consumer", "connect", "sr", "anything"):
        transcript = pair()
        transcript.leaves("a", "b")
        assert (transcript.state, transcript.told.protocol_type) == ("Empty", "consumer")
        assert transcript.enters("c", "own", kind=kind, metadata=b"any") == []
        assert transcript.waits(1) == ["c: in 3 by own, leads c"]
        assert transcript.told.protocol_type == kind


def test_a_word_of_another_protocol_or_generation_is_refused() -> None:
    transcript = awaiting("a")
    assert transcript.syncs("a", protocol="sticky") == ["a: INCONSISTENT_GROUP_PROTOCOL"]
    assert transcript.syncs("a", protocol="range", a="x") == ["a: gets x"]
    transcript = pair()
    transcript.person("a").generation = 7
    assert transcript.syncs("a") == ["a: ILLEGAL_GENERATION"]
    assert transcript.beats("a") == ["a: ILLEGAL_GENERATION"]
    assert transcript.commits("a", {("orders", 0): 1}) == ["a: ILLEGAL_GENERATION"]


# --- rounds


# --- going
def test_a_first_join_waits_five_minutes_at_most_and_a_commit_is_as_good_as_a_heartbeat() -> None:
    transcript = pair(rebalance_s=1_000)
    transcript.enters("c", rebalance_s=1_000)
    assert transcript.waits(299, "a", "b").count("c: UNKNOWN_MEMBER_ID") == 0
    assert transcript.waits(2, "a", "b").count("c: UNKNOWN_MEMBER_ID") == 1
    assert transcript.waiting == []
    transcript = pair(session_s=10)
    for _ in range(4):
        transcript.waits(5, "a")
        assert transcript.commits("b", {("orders", 1): 5}) == ["b: done"]
    assert transcript.state == "Stable"


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


# --- static members
def static_pair() -> Transcript:
    transcript = Transcript()
    transcript.joins("a", instance="i-a")
    transcript.joins("b", instance="i-b")
    transcript.waits(2)
    transcript.syncs("a", a="x", b="y")
    transcript.syncs("b")
    return transcript


def test_a_static_member_that_restarts_keeps_its_share_and_whoever_has_its_last_id_is_fenced() -> None:
    transcript = static_pair()
    before = len(transcript.log)
    assert transcript.joins("b", member="") == ["b: in 1 by range"]
    assert transcript.people["b"].member == "b-2"
    assert transcript.syncs("b") == ["b: gets y"]
    assert transcript.state == "Stable"
    assert len(transcript.log) == before + 1, "its new id is written"
    transcript.person("b").member = "b-1"
    assert transcript.beats("b") == ["b: FENCED_INSTANCE_ID"]
    assert transcript.syncs("b") == ["b: FENCED_INSTANCE_ID"]
    assert transcript.joins("b") == ["b: FENCED_INSTANCE_ID"]
    assert transcript.commits("b", {("orders", 0): 1}) == ["b: FENCED_INSTANCE_ID"]
    assert transcript.leaves("b") == ["b: FENCED_INSTANCE_ID"]
    assert len(transcript.told.members) == 2


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


def test_a_static_member_may_restart_in_a_full_group_and_with_the_next_coordinator() -> None:
    transcript = Transcript(replace(LIMITS, members_max=2))
    transcript.joins("a", instance="i-a")
    transcript.joins("b", instance="i-b")
    transcript.waits(2)
    transcript.syncs("a", a="x", b="y")
    assert transcript.joins("b", member="") == ["b: in 1 by range"]
    assert transcript.joins("c", instance="i-c") == ["c: GROUP_MAX_SIZE_REACHED"]
    transcript = static_pair()
    transcript.joins("b", member="")
    transcript.fails_over()
    assert transcript.joins("b", member="") == ["b: in 1 by range"]
    assert transcript.syncs("b") == ["b: gets y"]
    assert transcript.joins("a", member="") == ["a: in 1 by range, leads a b, all is assigned"]


# --- another coordinator
def test_the_next_coordinator_goes_on_unnoticed_unless_the_group_is_larger_than_it_may_be_now() -> None:
    transcript = pair()
    transcript.fails_over()
    assert transcript.state == "Stable"
    assert transcript.beats("a") == ["a: alive"]
    assert transcript.beats("b") == ["b: alive"]
    assert transcript.commits("b", {("orders", 1): 7}) == ["b: done"]
    assert transcript.syncs("b") == ["b: gets y"]
    assert transcript.waits(9) == []
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
    assert [member.assignment for member in transcript.told.members] == [b"x", b"y", b""], "until the next one"
    assert [member.client_host for member in transcript.told.members] == ["/127.0.0.1"] * 3
    assert [(g.group, g.protocol_type, g.state.value) for g in transcript.shard.groups()] == [
        ("g", "consumer", "PreparingRebalance")
    ]
    assert transcript.shard.describe("other").state.value == "Dead"
