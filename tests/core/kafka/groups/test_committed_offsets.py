"""Committed offsets, as transcripts: authorized clients, stored values, and expiry."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seaweedmq.codec.kafka.group_records import encode_record
from seaweedmq.core.kafka.groups.committed_offsets import CommittedOffsets
from seaweedmq.core.kafka.groups.state_memory import StateMemory
from seaweedmq.model.kafka.groups import GroupMetadataRecord, OffsetRecord, OffsetValue
from tests.core.kafka.group_transcript import AT_MS, LIMITS, Transcript
from tests.core.kafka.groups.test_classic_group import pair

ORDERS, OTHERS = ("orders", 0), ("others", 3)
DAY_S = 24 * 3_600


def simple() -> Transcript:
    """A consumer without a group stores its position in one."""
    transcript = Transcript()
    assert transcript.commits("a", {ORDERS: 5}, simple=True) == ["a: done"]
    return transcript


def lives(transcript: Transcript, *, days: float) -> None:
    """Let ``a`` and ``b`` continue, with sessions of half an hour."""
    for _ in range(int(days * 48)):
        transcript.waits(1_799)
        transcript.beats("a")
        transcript.beats("b")


# --- who may
def test_anybody_commits_for_a_group_that_nobody_is_in_and_is_told_what_is_there() -> None:
    transcript = simple()
    assert transcript.committed == {ORDERS: 5}
    assert transcript.log == [OffsetRecord("g", "orders", 0, OffsetValue(offset=5, leader_epoch=2, commit_ms=AT_MS))]
    assert (transcript.state, transcript.told.protocol_type) == ("Empty", "")
    assert transcript.shard.offsets("g", [ORDERS, OTHERS]) == {
        ORDERS: OffsetValue(offset=5, leader_epoch=2, commit_ms=AT_MS)
    }
    assert transcript.shard.offsets("other", [ORDERS]) == {}
    assert transcript.shard.offsets("other") == {}


def test_a_stranger_with_a_generation_and_a_generation_of_no_group_are_refused() -> None:
    transcript = pair()
    transcript.person("x").generation = 1
    assert transcript.commits("x", {ORDERS: 5}) == ["x: UNKNOWN_MEMBER_ID"]
    for v, answer in ((8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")):
        transcript = Transcript()
        transcript.person("x").generation = 1
        assert transcript.commits("x", {ORDERS: 5}, v=v) == [f"x: {answer}"]
        assert transcript.shard.groups() == ()


# --- what is taken
def test_each_offset_is_taken_for_itself_with_metadata_counted_in_characters_of_java() -> None:
    transcript = Transcript()
    assert transcript.commits("a", {ORDERS: 1}, metadata="m" * 4_096, simple=True) == ["a: done"]
    assert transcript.commits("a", {ORDERS: 2}, metadata="m" * 4_097, simple=True) == ["a: OFFSET_METADATA_TOO_LARGE"]
    assert transcript.commits("a", {ORDERS: 2}, metadata="é" * 4_097, simple=True) == ["a: OFFSET_METADATA_TOO_LARGE"]
    assert transcript.commits("a", {ORDERS: 2}, metadata="😀" * 2_049, simple=True) == ["a: OFFSET_METADATA_TOO_LARGE"]
    assert transcript.committed == {ORDERS: 1}
    for metadata in ("é" * 4_096, "😀" * 2_048):
        assert transcript.commits("a", {ORDERS: 2}, metadata=metadata, simple=True) == ["a: done"]
    transcript.commits("a", {ORDERS: 1}, simple=True)
    assert transcript.committed == {ORDERS: 1}, "it may go back"


def test_groups_and_their_offsets_are_so_many_and_no_more() -> None:
    transcript = Transcript(replace(LIMITS, offsets_per_group_max=2))
    assert transcript.commits("a", {("t", n): 1 for n in range(3)}, simple=True) == ["a: done, done, POLICY_VIOLATION"]
    assert transcript.commits("a", {("t", 1): 2}, simple=True) == ["a: done"]
    transcript = Transcript(LIMITS, group="g" * 6_000, memory=StateMemory(6_000))
    assert transcript.commits("a", {ORDERS: 1}, simple=True) == ["a: POLICY_VIOLATION"]
    assert transcript.shard.groups() == ()
    transcript = Transcript(replace(LIMITS, groups_max=1))
    transcript.commits("a", {ORDERS: 1}, simple=True)
    transcript.group = "h"
    assert transcript.commits("a", {ORDERS: 1}, simple=True) == ["a: POLICY_VIOLATION"]
    assert transcript.joins("a") == ["a: POLICY_VIOLATION"]


def test_a_full_shard_takes_no_more_but_lets_go_on_who_is_there() -> None:
    transcript = Transcript(LIMITS, memory=StateMemory(9_000))
    transcript.enters("m")
    transcript.waits(1)
    transcript.syncs("m", m="x")
    transcript.commits("m", {ORDERS: 1})
    answer = transcript.commits("m", {("t", n): 1 for n in range(40)})[0]
    assert answer.startswith("m: done, done")
    assert answer.endswith("POLICY_VIOLATION")
    assert transcript.commits("m", {ORDERS: 2}) == ["m: done"]
    assert transcript.joins("m") == ["m: in 2 by range, leads m"]
    transcript.group = "another"
    assert transcript.joins("x", metadata=bytes(2_000)) == ["x: POLICY_VIOLATION"]
    assert transcript.shard.size_bytes <= 9_000


# --- what is dropped
def test_offsets_of_a_topic_that_is_or_may_be_read_are_not_deleted() -> None:
    transcript = pair()
    transcript.commits("a", {ORDERS: 5, OTHERS: 6})
    assert transcript.deletes_offsets(ORDERS, OTHERS, ("never", 0)) == ["admin: GROUP_SUBSCRIBED_TO_TOPIC, done, done"]
    assert transcript.committed == {ORDERS: 5}
    assert transcript.log[-1] == OffsetRecord("g", "others", 3, None)
    transcript.leaves("a", "b")
    assert transcript.deletes_offsets(ORDERS) == ["admin: done"]
    assert transcript.committed == {}
    assert Transcript().deletes_offsets(ORDERS) == ["admin: GROUP_ID_NOT_FOUND"]
    for how, answer in (({"metadata": b"own"}, "GROUP_SUBSCRIBED_TO_TOPIC"), ({"kind": "connect"}, "NON_EMPTY_GROUP")):
        transcript = pair(**how)
        transcript.commits("a", {ORDERS: 5})
        assert transcript.deletes_offsets(ORDERS) == [f"admin: {answer}"]
        transcript.leaves("a", "b")
        assert transcript.deletes_offsets(ORDERS) == ["admin: done"]


def test_a_group_is_deleted_with_its_offsets_and_ids_once_nobody_is_in_it() -> None:
    transcript = pair()
    transcript.commits("a", {ORDERS: 5})
    assert transcript.deletes_group() == ["admin: NON_EMPTY_GROUP"]
    transcript.leaves("a", "b")
    assert transcript.deletes_group() == ["admin: done"]
    assert transcript.log[-2:] == [OffsetRecord("g", "orders", 0, None), GroupMetadataRecord("g", None)]
    assert transcript.deletes_group() == ["admin: GROUP_ID_NOT_FOUND"]
    assert (transcript.state, transcript.shard.groups(), transcript.shard.size_bytes) == ("Dead", (), 0)
    assert transcript.beats("a") == ["a: UNKNOWN_MEMBER_ID"]
    transcript = simple()
    transcript.joins("b")
    assert transcript.deletes_group() == ["admin: done"]
    assert transcript.joins("b") == ["b: UNKNOWN_MEMBER_ID"]


def test_the_offsets_of_a_topic_go_with_it() -> None:
    transcript = simple()
    transcript.commits("a", {OTHERS: 6}, simple=True)
    assert transcript.loses_topic("orders") == []
    assert transcript.committed == {OTHERS: 6}
    transcript.loses_topic("others")
    assert transcript.shard.groups() == ()
    assert transcript.log[-2:] == [OffsetRecord("g", "orders", 0, None), OffsetRecord("g", "others", 3, None)]


# --- how long they are kept
def test_offsets_are_kept_for_seven_days_after_the_group_is_empty_or_without_a_group_after_the_commit() -> None:
    transcript = pair(session_s=1_800)
    transcript.commits("a", {ORDERS: 5})
    lives(transcript, days=3)
    transcript.leaves("a", "b")
    transcript.waits(7 * DAY_S - 700)
    assert transcript.committed == {ORDERS: 5}
    transcript.waits(1_300)
    assert transcript.log[-2:] == [OffsetRecord("g", "orders", 0, None), GroupMetadataRecord("g", None)]
    assert transcript.shard.groups() == ()
    transcript = simple()
    transcript.waits(6 * DAY_S)
    transcript.commits("a", {OTHERS: 6}, simple=True)
    transcript.waits(DAY_S + 600)
    assert transcript.committed == {OTHERS: 6}
    transcript.waits(6 * DAY_S)
    assert transcript.shard.groups() == ()
    transcript = pair()
    transcript.leaves("a", "b")
    transcript.waits(600)
    assert transcript.log[-1] == GroupMetadataRecord("g", None)
    assert transcript.shard.groups() == ()


def test_what_a_group_reads_is_kept_and_all_of_one_that_is_no_consumer() -> None:
    transcript = pair(session_s=1_800)
    transcript.commits("a", {ORDERS: 5, OTHERS: 6})
    lives(transcript, days=7.1)
    assert transcript.committed == {ORDERS: 5}
    transcript = pair(session_s=1_800, kind="connect")
    transcript.commits("a", {ORDERS: 5})
    lives(transcript, days=7.1)
    assert transcript.committed == {ORDERS: 5}


def test_an_old_client_says_itself_for_how_long_until_the_latest_time() -> None:
    transcript = Transcript()
    transcript.commits("a", {ORDERS: 5}, simple=True, retention_s=3_600)
    transcript.waits(3_000)
    assert transcript.committed == {ORDERS: 5}
    transcript.waits(1_200)
    assert transcript.committed == {}
    transcript.commits("a", {ORDERS: 5}, simple=True, retention_s=(1 << 63) // 1_000)
    kept = transcript.log[-1]
    assert isinstance(kept, OffsetRecord)
    assert kept.value.expire_ms == (1 << 63) - 1
    assert encode_record(kept)[1] is not None


def test_many_offsets_are_not_all_looked_at_in_one_go() -> None:
    transcript = Transcript(
        replace(LIMITS, offsets_checked_max=10, offsets_check_ms=10_000, offsets_retention_ms=1_000)
    )
    for number in range(5):
        transcript.group = f"g{number}"
        transcript.commits("a", {("t", n): 1 for n in range(8)}, simple=True)
    left = []
    for pause in (9.9, 0.1, 0.05, 0.05):
        transcript.waits(pause)
        left.append(len(transcript.shard.groups()))
    assert left == [5, 3, 1, 0]


# --- clocks that step
@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("begins", ["before", "meanwhile"])
def test_a_clock_that_is_days_ahead_for_a_quarter_of_an_hour_lets_go_of_nothing(is_member: bool, begins: str) -> None:
    transcript = pair() if is_member else Transcript()
    transcript.commits("a", {ORDERS: 5}, simple=not is_member)
    if is_member:
        transcript.leaves("a", "b")
    transcript.waits(2 * 3_600)
    transcript.ahead_s = 8 * DAY_S
    if begins == "meanwhile":
        transcript.fails_over()
    transcript.waits(900)
    transcript.ahead_s = 0
    transcript.waits(6 * DAY_S)
    assert transcript.committed == {ORDERS: 5}
    transcript.waits(DAY_S)
    assert transcript.shard.groups() == ()


@pytest.mark.parametrize("behind_s", [8 * DAY_S, 20_000 * DAY_S])
def test_what_a_clock_that_is_behind_stamps_is_kept_for_as_long(behind_s: float) -> None:
    transcript = Transcript()
    transcript.ahead_s = -behind_s
    transcript.fails_over()
    transcript.commits("a", {ORDERS: 5}, simple=True)
    transcript.waits(900)
    transcript.ahead_s = 0
    transcript.waits(7 * DAY_S - 1_000)
    assert transcript.committed == {ORDERS: 5}
    transcript.waits(1_000)
    assert transcript.shard.groups() == ()


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
    """The clock steps, and is right again within the doubt; or a coordinator with a wrong clock takes over meanwhile.
    In the latter case an offset that it stamped itself is excluded: nothing that survives it knows better."""
    transcript, committed_s = Transcript(replace(LIMITS, offsets_check_ms=3_600_000)), None
    for number, (after_s, by_s, for_s, fails_over) in enumerate(steps):
        transcript.waits(after_s)
        transcript.ahead_s = by_s
        if fails_over:
            transcript.fails_over()
        if number == commits_at and not (committed_s is None and any(f for *_, f in steps[number + 1 :])):
            transcript.commits("a", {ORDERS: 5}, simple=True)
            committed_s = transcript.now
        transcript.waits(for_s)
        transcript.ahead_s = 0.0
        if committed_s is not None and transcript.now - committed_s < 7 * DAY_S:
            assert transcript.committed == {ORDERS: 5}
    if committed_s is None:
        transcript.commits("a", {ORDERS: 5}, simple=True)
        committed_s = transcript.now
    transcript.waits(max(0.0, 7 * DAY_S - 1 - (transcript.now - committed_s)))
    assert transcript.committed == {ORDERS: 5}
    transcript.waits(20 * DAY_S + 2 * 3_600)
    assert transcript.committed == {}


# --- what the next coordinator knows
def test_the_next_coordinator_knows_them_all_counts_the_same_and_nothing_of_tombstones() -> None:
    transcript = pair()
    transcript.commits("a", {ORDERS: 5, OTHERS: 6}, metadata="where")
    transcript.deletes_offsets(OTHERS)
    before = (transcript.committed, list(transcript.shard.snapshot()), transcript.shard.size_bytes)
    transcript.fails_over()
    assert (transcript.committed, list(transcript.shard.snapshot())) == before[:2]
    transcript.log = list(transcript.shard.snapshot())
    transcript.fails_over()
    assert (transcript.committed, list(transcript.shard.snapshot()), transcript.shard.size_bytes) == before
    transcript = Transcript()
    transcript.log = [OffsetRecord("g", "orders", 0, None), GroupMetadataRecord("h", None)]
    transcript.fails_over()
    assert (transcript.shard.groups(), transcript.shard.size_bytes) == ((), 0)


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
