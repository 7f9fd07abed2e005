"""Committed offsets, told as transcripts: who may commit, what is kept, and for how long."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seaweedmq.codec.kafka.group_records import encode_record
from seaweedmq.core.kafka.committed_offsets import CommittedOffsets
from seaweedmq.core.kafka.state_memory import StateMemory
from seaweedmq.model.kafka_groups import GroupMetadataRecord, OffsetRecord, OffsetValue
from tests.core.kafka.group_tale import AT_MS, LIMITS, Tale
from tests.core.kafka.test_classic_group import pair

ORDERS, OTHERS = ("orders", 0), ("others", 3)
DAY_S = 24 * 3_600


def simple() -> Tale:
    """Somebody who reads without a group keeps its place in one."""
    tale = Tale()
    assert tale.commits("a", {ORDERS: 5}, simple=True) == ["a: done"]
    return tale


def lives(tale: Tale, *, days: float) -> None:
    """``a`` and ``b`` go on, with sessions of half an hour."""
    for _ in range(int(days * 48)):
        tale.waits(1_799)
        tale.beats("a")
        tale.beats("b")


# --- who may


def test_anybody_commits_for_a_group_that_nobody_is_in() -> None:
    tale = simple()
    assert tale.committed == {ORDERS: 5}
    assert tale.log == [OffsetRecord("g", "orders", 0, OffsetValue(offset=5, leader_epoch=2, commit_ms=AT_MS))]
    assert (tale.state, tale.told.protocol_type) == ("Empty", "")


def test_while_somebody_is_in_it_nobody_else_does() -> None:
    tale = pair()
    assert tale.commits("x", {ORDERS: 5}, simple=True) == ["x: UNKNOWN_MEMBER_ID"]
    assert tale.commits("a", {ORDERS: 5}) == ["a: done"]
    tale.leaves("a", "b")
    assert tale.commits("x", {ORDERS: 6}, simple=True) == ["x: done"]
    assert tale.committed == {ORDERS: 6}


def test_a_member_commits_in_its_generation_also_while_the_next_is_prepared() -> None:
    tale = pair()
    tale.enters("c")
    assert tale.commits("b", {ORDERS: 5}) == ["b: done"]
    tale.joins("a")
    tale.joins("b")
    assert tale.commits("b", {ORDERS: 6}) == ["b: REBALANCE_IN_PROGRESS"]
    tale.person("b").generation = 1
    assert tale.commits("b", {ORDERS: 6}) == ["b: ILLEGAL_GENERATION"]
    assert tale.committed == {ORDERS: 5}


def test_a_stranger_with_a_generation_is_refused() -> None:
    tale = pair()
    tale.person("x").generation = 1
    assert tale.commits("x", {ORDERS: 5}) == ["x: UNKNOWN_MEMBER_ID"]


@pytest.mark.parametrize(("v", "answer"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")])
def test_a_generation_of_no_group_is_refused(v: int, answer: str) -> None:
    tale = Tale()
    tale.person("x").generation = 1
    assert tale.commits("x", {ORDERS: 5}, v=v) == [f"x: {answer}"]
    assert tale.shard.groups() == ()


# --- what is taken


def test_each_offset_is_taken_for_itself() -> None:
    tale = Tale()
    assert tale.commits("a", {ORDERS: 1}, metadata="m" * 4_096, simple=True) == ["a: done"]
    assert tale.commits("a", {ORDERS: 2}, metadata="m" * 4_097, simple=True) == ["a: OFFSET_METADATA_TOO_LARGE"]
    assert tale.commits("a", {ORDERS: 2}, metadata="é" * 4_097, simple=True) == ["a: OFFSET_METADATA_TOO_LARGE"]
    assert tale.commits("a", {ORDERS: 2}, metadata="😀" * 2_049, simple=True) == ["a: OFFSET_METADATA_TOO_LARGE"]
    assert tale.committed == {ORDERS: 1}


@pytest.mark.parametrize("metadata", ["é" * 4_096, "😀" * 2_048])
def test_metadata_is_counted_in_characters_of_java(metadata: str) -> None:
    assert Tale().commits("a", {ORDERS: 1}, metadata=metadata, simple=True) == ["a: done"]


def test_an_offset_may_go_back() -> None:
    tale = simple()
    tale.commits("a", {ORDERS: 2}, simple=True)
    assert tale.committed == {ORDERS: 2}


def test_a_group_has_so_many_offsets_and_no_more() -> None:
    tale = Tale(replace(LIMITS, offsets_per_group_max=2))
    assert tale.commits("a", {("t", n): 1 for n in range(3)}, simple=True) == ["a: done, done, POLICY_VIOLATION"]
    assert tale.commits("a", {("t", 1): 2}, simple=True) == ["a: done"]


def test_a_full_shard_takes_no_group_for_its_long_name_alone() -> None:
    tale = Tale(LIMITS, group="g" * 6_000, memory=StateMemory(6_000))
    assert tale.commits("a", {ORDERS: 1}, simple=True) == ["a: POLICY_VIOLATION"]
    assert tale.shard.groups() == ()


def test_a_full_shard_takes_no_more_but_lets_go_on_who_is_there() -> None:
    tale = Tale(LIMITS, memory=StateMemory(9_000))
    tale.enters("m")
    tale.waits(1)
    tale.syncs("m", m="x")
    tale.commits("m", {ORDERS: 1})
    answer = tale.commits("m", {("t", n): 1 for n in range(40)})[0]
    assert answer.startswith("m: done, done")
    assert answer.endswith("POLICY_VIOLATION")
    assert tale.commits("m", {ORDERS: 2}) == ["m: done"]
    assert tale.joins("m") == ["m: in 2 by range, leads m"]
    tale.group = "another"
    assert tale.joins("x", metadata=bytes(2_000)) == ["x: POLICY_VIOLATION"]
    assert tale.shard.size_bytes <= 9_000


def test_a_shard_has_so_many_groups_and_no_more() -> None:
    tale = Tale(replace(LIMITS, groups_max=1))
    tale.commits("a", {ORDERS: 1}, simple=True)
    tale.group = "h"
    assert tale.commits("a", {ORDERS: 1}, simple=True) == ["a: POLICY_VIOLATION"]
    assert tale.joins("a") == ["a: POLICY_VIOLATION"]


def test_what_is_asked_for_is_told_and_what_is_not_there_is_left_out() -> None:
    tale = simple()
    assert tale.shard.offsets("g", [ORDERS, OTHERS]) == {ORDERS: OffsetValue(offset=5, leader_epoch=2, commit_ms=AT_MS)}
    assert tale.shard.offsets("other", [ORDERS]) == {}
    assert tale.shard.offsets("other") == {}


# --- what is dropped


def test_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    tale = pair()
    tale.commits("a", {ORDERS: 5, OTHERS: 6})
    assert tale.deletes_offsets(ORDERS, OTHERS, ("never", 0)) == ["admin: GROUP_SUBSCRIBED_TO_TOPIC, done, done"]
    assert tale.committed == {ORDERS: 5}
    assert tale.log[-1] == OffsetRecord("g", "others", 3, None)
    tale.leaves("a", "b")
    assert tale.deletes_offsets(ORDERS) == ["admin: done"]
    assert tale.committed == {}


def test_a_consumer_whose_topics_can_not_be_read_may_be_reading_any() -> None:
    tale = pair(metadata=b"own")
    tale.commits("a", {ORDERS: 5})
    assert tale.deletes_offsets(ORDERS) == ["admin: GROUP_SUBSCRIBED_TO_TOPIC"]


def test_of_a_group_that_is_no_consumer_offsets_are_deleted_only_when_it_is_empty() -> None:
    tale = pair(kind="connect")
    tale.commits("a", {ORDERS: 5})
    assert tale.deletes_offsets(ORDERS) == ["admin: NON_EMPTY_GROUP"]
    tale.leaves("a", "b")
    assert tale.deletes_offsets(ORDERS) == ["admin: done"]


def test_offsets_of_no_group_are_not_found() -> None:
    assert Tale().deletes_offsets(ORDERS) == ["admin: GROUP_ID_NOT_FOUND"]


def test_a_group_is_deleted_with_its_offsets_once_nobody_is_in_it() -> None:
    tale = pair()
    tale.commits("a", {ORDERS: 5})
    assert tale.deletes_group() == ["admin: NON_EMPTY_GROUP"]
    tale.leaves("a", "b")
    assert tale.deletes_group() == ["admin: done"]
    assert tale.log[-2:] == [OffsetRecord("g", "orders", 0, None), GroupMetadataRecord("g", None)]
    assert tale.deletes_group() == ["admin: GROUP_ID_NOT_FOUND"]
    assert (tale.state, tale.shard.groups(), tale.shard.size_bytes) == ("Dead", (), 0)
    assert tale.beats("a") == ["a: UNKNOWN_MEMBER_ID"]


def test_an_id_that_was_given_out_does_not_outlive_the_group() -> None:
    tale = simple()
    tale.joins("b")
    assert tale.deletes_group() == ["admin: done"]
    assert tale.joins("b") == ["b: UNKNOWN_MEMBER_ID"]


def test_the_offsets_of_a_topic_go_with_it() -> None:
    tale = simple()
    tale.commits("a", {OTHERS: 6}, simple=True)
    assert tale.loses_topic("orders") == []
    assert tale.committed == {OTHERS: 6}
    tale.loses_topic("others")
    assert tale.shard.groups() == ()
    assert tale.log[-2:] == [OffsetRecord("g", "orders", 0, None), OffsetRecord("g", "others", 3, None)]


# --- how long they are kept


def test_offsets_are_kept_for_seven_days_after_the_group_is_empty() -> None:
    tale = pair(session_s=1_800)
    tale.commits("a", {ORDERS: 5})
    lives(tale, days=3)
    tale.leaves("a", "b")
    tale.waits(7 * DAY_S - 700)
    assert tale.committed == {ORDERS: 5}
    tale.waits(1_300)
    assert tale.log[-2:] == [OffsetRecord("g", "orders", 0, None), GroupMetadataRecord("g", None)]
    assert tale.shard.groups() == ()


def test_without_a_group_they_are_kept_for_seven_days_after_the_commit() -> None:
    tale = simple()
    tale.waits(6 * DAY_S)
    tale.commits("a", {OTHERS: 6}, simple=True)
    tale.waits(DAY_S + 600)
    assert tale.committed == {OTHERS: 6}
    tale.waits(6 * DAY_S)
    assert tale.shard.groups() == ()


def test_what_a_group_reads_is_kept_and_what_it_does_not_read_any_more_is_not() -> None:
    tale = pair(session_s=1_800)
    tale.commits("a", {ORDERS: 5, OTHERS: 6})
    lives(tale, days=7.1)
    assert tale.committed == {ORDERS: 5}


def test_while_somebody_is_in_a_group_that_is_no_consumer_all_is_kept() -> None:
    tale = pair(session_s=1_800, kind="connect")
    tale.commits("a", {ORDERS: 5})
    lives(tale, days=7.1)
    assert tale.committed == {ORDERS: 5}


def test_an_old_client_says_itself_for_how_long() -> None:
    tale = Tale()
    tale.commits("a", {ORDERS: 5}, simple=True, retention_s=3_600)
    tale.waits(3_000)
    assert tale.committed == {ORDERS: 5}
    tale.waits(1_200)
    assert tale.committed == {}


def test_the_longest_retention_ends_at_the_latest_time() -> None:
    tale = Tale()
    tale.commits("a", {ORDERS: 5}, simple=True, retention_s=(1 << 63) // 1_000)
    kept = tale.log[-1]
    assert isinstance(kept, OffsetRecord)
    assert kept.value is not None
    assert kept.value.expire_ms == (1 << 63) - 1
    assert encode_record(kept)[1] is not None


def test_a_group_without_offsets_is_forgotten_when_nobody_is_in_it() -> None:
    tale = pair()
    tale.leaves("a", "b")
    tale.waits(600)
    assert tale.log[-1] == GroupMetadataRecord("g", None)
    assert tale.shard.groups() == ()


def test_many_offsets_are_not_all_looked_at_in_one_go() -> None:
    tale = Tale(replace(LIMITS, offsets_checked_max=10, offsets_check_ms=10_000, offsets_retention_ms=1_000))
    for number in range(5):
        tale.group = f"g{number}"
        tale.commits("a", {("t", n): 1 for n in range(8)}, simple=True)
    left = []
    for pause in (9.9, 0.1, 0.05, 0.05):
        tale.waits(pause)
        left.append(len(tale.shard.groups()))
    assert left == [5, 3, 1, 0]


# --- clocks that step


@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("begins", ["before", "meanwhile"])
def test_a_clock_that_is_days_ahead_for_a_quarter_of_an_hour_lets_go_of_nothing(is_member: bool, begins: str) -> None:
    tale = pair() if is_member else Tale()
    tale.commits("a", {ORDERS: 5}, simple=not is_member)
    if is_member:
        tale.leaves("a", "b")
    tale.waits(2 * 3_600)
    tale.ahead_s = 8 * DAY_S
    if begins == "meanwhile":
        tale.fails_over()
    tale.waits(900)
    tale.ahead_s = 0
    tale.waits(6 * DAY_S)
    assert tale.committed == {ORDERS: 5}
    tale.waits(DAY_S)
    assert tale.shard.groups() == ()


@pytest.mark.parametrize("behind_s", [8 * DAY_S, 20_000 * DAY_S])
def test_what_a_clock_that_is_behind_stamps_is_kept_for_as_long(behind_s: float) -> None:
    tale = Tale()
    tale.ahead_s = -behind_s
    tale.fails_over()
    tale.commits("a", {ORDERS: 5}, simple=True)
    tale.waits(900)
    tale.ahead_s = 0
    tale.waits(7 * DAY_S - 1_000)
    assert tale.committed == {ORDERS: 5}
    tale.waits(1_000)
    assert tale.shard.groups() == ()


@given(
    steps=st.lists(
        st.tuples(
            st.floats(0, 3 * DAY_S),
            st.sampled_from([-20 * DAY_S, -8 * DAY_S, -5.0, 5.0, 900.0, 8 * DAY_S, 20 * DAY_S]),
            st.floats(1, 3_000),
            st.booleans(),
        ),
        max_size=3,
    ),
    commits_at=st.integers(0, 3),
)
@settings(max_examples=30)
@example(steps=[(60.0, 8 * DAY_S, 660.0, False)], commits_at=0)
@example(steps=[(60.0, 8 * DAY_S, 660.0, True)], commits_at=0)
@example(steps=[(60.0, -8 * DAY_S, 660.0, False)], commits_at=1)
def test_an_offset_goes_after_its_true_week_and_not_before(
    steps: list[tuple[float, float, float, bool]], commits_at: int
) -> None:
    """The clock steps, and is right again within the doubt; or a coordinator whose clock is wrong takes over meanwhile,
    in which case an offset that it stamped itself is left out: nothing that outlives it knows better."""
    tale, committed_s = Tale(replace(LIMITS, offsets_check_ms=3_600_000)), None
    for number, (after_s, by_s, for_s, fails_over) in enumerate(steps):
        tale.waits(after_s)
        tale.ahead_s = by_s
        if fails_over:
            tale.fails_over()
        if number == commits_at and not (committed_s is None and any(f for *_, f in steps[number + 1 :])):
            tale.commits("a", {ORDERS: 5}, simple=True)
            committed_s = tale.now
        tale.waits(for_s)
        tale.ahead_s = 0.0
        if committed_s is not None and tale.now - committed_s < 7 * DAY_S:
            assert tale.committed == {ORDERS: 5}
    if committed_s is None:
        tale.commits("a", {ORDERS: 5}, simple=True)
        committed_s = tale.now
    tale.waits(max(0.0, 7 * DAY_S - 1 - (tale.now - committed_s)))
    assert tale.committed == {ORDERS: 5}
    tale.waits(20 * DAY_S + 2 * 3_600)
    assert tale.committed == {}


# --- what the next coordinator knows


def test_the_next_coordinator_knows_them_all_and_counts_the_same() -> None:
    tale = pair()
    tale.commits("a", {ORDERS: 5, OTHERS: 6}, metadata="where")
    tale.deletes_offsets(OTHERS)
    before = (tale.committed, list(tale.shard.snapshot()), tale.shard.size_bytes)
    tale.fails_over()
    assert (tale.committed, list(tale.shard.snapshot())) == before[:2]
    tale.log = list(tale.shard.snapshot())
    tale.fails_over()
    assert (tale.committed, list(tale.shard.snapshot()), tale.shard.size_bytes) == before


def test_of_a_recreated_topic_only_its_own_offsets_stay() -> None:
    deleted, current = bytes(15) + b"1", bytes(15) + b"2"
    committed = CommittedOffsets("g")
    for number, topic_id in enumerate((deleted, current, None)):
        committed.set(("orders", number), OffsetValue(offset=5, commit_ms=AT_MS, topic_id=topic_id))
    assert set(committed.topic_ids()) == {("orders", deleted), ("orders", current)}
    gone = committed.drop_topics({"orders": current, "unknown": None})
    assert [record.partition for record in gone] == [0, 2]
    assert len(committed) == 1
    committed.drop_topics({"orders": None})
    assert (len(committed), committed.size_bytes) == (0, 0)


def test_tombstones_of_what_was_never_there_leave_nothing() -> None:
    tale = Tale()
    tale.log = [OffsetRecord("g", "orders", 0, None), GroupMetadataRecord("h", None)]
    tale.fails_over()
    assert (tale.shard.groups(), tale.shard.size_bytes) == ((), 0)
