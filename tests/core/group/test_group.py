"""The coordinator of a group, as transcripts: each action and the messages that follow.

``test_group_machine`` has the invariants of segments, commits and leaders in any order of events.
"""

from dataclasses import replace

import pytest

from seaweedmq.core.group.description import describe
from seaweedmq.core.group.events import Deleted, Outcome, Tick
from seaweedmq.errors import NotFound
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, Start, StartKind
from tests.core.group.group_transcript import LIMITS, Transcript, segment
from tests.support.segments import NAME


def shared_out(segments: int, *members: str) -> Transcript:
    """Return a group in which these members own the segments in turn, each in generation 1."""
    transcript = Transcript(segments)
    for member in members:
        transcript.opens(member)
    transcript.waits(1)
    return transcript


# --- members come and go
def test_members_that_come_together_are_shared_out_to_once_and_no_more_than_there_is_room_for() -> None:
    transcript = Transcript(4)
    for member in "abcd":
        assert transcript.opens(member) == [f"{member}/1: owns nothing"]
    assert transcript.waits(1) == [f"{m}/1: owns {n}@1 from earliest" for n, m in enumerate("abcd")]
    transcript = Transcript(1)
    for member in "abcde":
        transcript.opens(member)
    assert transcript.opens("f") == ["f/1: bye, ResourceExhausted"]
    assert "f" not in transcript.record.members
    transcript.leaves("a")
    assert transcript.opens("f") == ["f/1: owns nothing"]


def test_a_second_member_gets_its_half_once_the_first_has_let_go() -> None:
    transcript = shared_out(2, "a")
    assert transcript.opens("b") == ["b/1: owns nothing"]
    assert transcript.waits(1) == ["a/1: owns 0@1 from earliest"]
    assert transcript.commits("a", 1, 0, 1) == ["a/1: #1 kept"], "it may finish what it has begun"
    assert transcript.releases("a", _1=1) == ["b/1: owns 1@3 from offset"]


def test_who_leaves_frees_its_segments_and_who_comes_back_in_time_keeps_them() -> None:
    transcript = shared_out(2, "a", "b")
    assert transcript.leaves("b") == ["b/1: bye"]
    assert transcript.waits(1) == ["a/1: owns 0@1 from earliest, 1@2 from earliest"]
    assert transcript.leaves("a") == ["a/1: bye"]
    assert transcript.waits(1) == []
    assert (transcript.record.members, transcript.record.owners) == ({}, {})
    transcript = shared_out(2, "a")
    assert transcript.breaks("a") == []
    assert transcript.waits(5) == []
    assert transcript.opens("a", held={0: 1, 1: 1}) == ["a/1: owns 0@1 from earliest, 1@1 from earliest"]
    assert transcript.waits(100) == []


def test_a_zombie_comes_back_to_nothing_and_its_commits_are_refused() -> None:
    transcript = shared_out(1, "a", "b")
    transcript.publishes(_0=10)
    transcript.breaks("a")
    assert transcript.waits(7) == ["b/1: owns 0@2 from earliest crashed 1"]
    assert transcript.opens("a", held={0: 1}) == ["a/1: owns nothing"]
    assert transcript.commits("a", 0, 5, 1) == [
        "a/1: #1 kept; 0 refused: segment 0 no longer belongs to a: stop reading it"
    ]
    assert transcript.committed == {}


def test_a_later_incarnation_fences_the_earlier_which_never_fences_it_and_takes_over_at_once() -> None:
    transcript = shared_out(2, "a")
    assert transcript.opens("a", incarnation=2) == [
        "a/1: bye, Fenced",
        "a/2: owns 0@2 from earliest, 1@2 from earliest",
    ]
    assert transcript.commits("a", 0, 0, 1) == [
        "a/2: #1 kept; 0 refused: segment 0 was read in generation 1, which is over (now: 2): "
        "stop reading it, and begin again when it is reassigned"
    ]
    transcript = Transcript(1)
    transcript.opens("a")
    transcript.breaks("a")
    transcript.opens("a", incarnation=2)
    assert transcript.opens("a", incarnation=1) == ["a/1: bye, Fenced"]
    assert transcript.waits(1) == ["a/2: owns 0@1 from earliest"]


def test_a_new_stream_of_a_member_ends_its_old_one() -> None:
    transcript = Transcript(1)
    transcript.opens("a")
    old = transcript.streams["a"]
    transcript.waits(1)
    assert transcript.opens("a", held={0: 1}) == ["a/1: bye, StaleMetadata", "a/1: owns 0@1 from earliest"]
    new, transcript.streams["a"] = transcript.streams["a"], old
    assert transcript.breaks("a") == transcript.commits("a", 0, 0, 1) == transcript.leaves("a") == []
    assert transcript.group.connected == {"a"}
    transcript.streams["a"] = new
    assert transcript.commits("a", 0, 0, 1) == ["a/1: #1 kept"]


# --- letting go
def test_who_hangs_with_one_segment_loses_that_one_and_nobody_releases_what_is_anothers() -> None:
    transcript = shared_out(2, "a")
    transcript.opens("b")
    assert transcript.waits(200) == ["a/1: owns 0@1 from earliest"]
    assert transcript.waits(200) == ["b/1: owns 1@3 from earliest"]
    assert transcript.commits("a", 1, 0, 1)[0].startswith("a/1: #1 kept; 1 refused")
    assert transcript.commits("a", 0, 0, 1) == ["a/1: #1 kept"]
    transcript = shared_out(2, "a", "b")
    assert transcript.releases("a", _1=1) == []
    assert transcript.releases("a", _0=0) == []
    assert {s: o.member for s, o in transcript.record.owners.items()} == {0: "a", 1: "b"}


# --- commits
def test_a_successor_begins_once_all_its_predecessors_are_finished_though_not_released() -> None:
    transcript = shared_out(2, "a")
    assert transcript.succeeds({0: 10, 1: 20}, 2) == []
    assert transcript.commits("a", 1, 20, 1) == ["a/1: #1 kept", "a/1: owns 0@1 from earliest"]
    assert transcript.commits("a", 0, 10, 1) == ["a/1: #1 kept", "a/1: owns 2@3 from earliest"]
    transcript = Transcript(0, segment(0, end=0), segment(1, 0))
    transcript.opens("a")
    assert transcript.waits(1) == ["a/1: owns 1@1 from earliest"]
    transcript = shared_out(1, "a", "b")
    transcript.succeeds({0: 10}, 1)
    assert transcript.commits("a", 0, 10, 1) == ["a/1: #1 kept", "a/1: owns 1@2 from earliest"]
    assert transcript.record.owners[0].revoking
    transcript.releases("a", _0=1)
    assert set(transcript.record.owners) == {1}


def test_a_commit_beyond_the_end_is_refused_and_a_segment_sealed_at_the_commit_is_finished() -> None:
    transcript = shared_out(1, "a")
    transcript.publishes(_0=10)
    assert transcript.commits("a", 0, 11, 1) == [
        "a/1: #1 kept; 0 refused: offset 11 lies beyond the end of segment 0, 10: commit only records that were read"
    ]
    assert transcript.commits("a", 0, 10, 1) == ["a/1: #1 kept"]
    assert transcript.succeeds({0: 10}, 1, 2) == ["a/1: owns 1@2 from earliest, 2@2 from earliest"]
    assert transcript.commits("a", 0, 12, 1)[0].startswith("a/1: #1 kept; 0 refused: offset 12 lies beyond")


def test_the_next_owner_learns_what_was_delivered_before() -> None:
    transcript = shared_out(1, "a")
    transcript.publishes(_0=10)
    transcript.commits("a", 0, 5, 1, _5=3, _7=1)
    transcript.leaves("a")
    transcript.opens("b")
    assert transcript.waits(1) == ["b/1: owns 0@2 from offset 5 5 seen 3 7 seen 1"]


def test_owners_lost_over_the_same_record_are_counted_until_somebody_gets_past_it_or_counts_deliveries() -> None:
    transcript = shared_out(1, "a")
    transcript.publishes(_0=10)
    assert transcript.opens("a", incarnation=2)[1:] == ["a/2: owns 0@2 from earliest crashed 1"]
    assert transcript.opens("a", incarnation=3)[1:] == ["a/3: owns 0@3 from earliest crashed 2"]
    transcript.commits("a", 0, 0, 3)
    assert transcript.record.crashes == {0: 2}, "nothing was dealt with"
    transcript.commits("a", 0, 1, 3)
    assert transcript.record.crashes == {}
    transcript.commits("a", 0, 10, 3)
    assert transcript.opens("a", incarnation=4)[1:] == ["a/4: owns 0@4 from offset 10"], "it had nothing to read"
    transcript = shared_out(1, "a")
    transcript.publishes(_0=10)
    transcript.opens("a", incarnation=2)
    transcript.commits("a", 0, 0, 2, _0=2)
    assert (transcript.record.crashes, dict(transcript.committed[0].deliveries)) == ({}, {0: 2})


# --- where a group begins
@pytest.mark.parametrize("start", [EARLIEST, Start(StartKind.TIME, 5), Start(StartKind.OFFSET, 3)])
def test_segments_of_the_time_before_the_group_begin_where_it_said_and_later_ones_at_the_earliest(start: Start) -> None:
    transcript = Transcript(1, start=start)
    transcript.opens("a")
    (told,) = transcript.waits(1)
    assert told == f"a/1: owns 0@1 from {start.kind}" + (f" {start.value}" if start.value else "")
    transcript.succeeds({0: 10}, 1)
    assert transcript.commits("a", 0, 10, 1)[1:] == ["a/1: owns 1@2 from earliest"]


def test_what_ends_before_the_start_is_skipped_and_what_retention_removed_is_forgotten() -> None:
    start = Start(StartKind.OFFSET, 10)
    transcript = Transcript(
        0, segment(0, end=10), segment(1, 0, start=10, end=20), segment(2, 1, start=20), start=start
    )
    transcript.opens("a")
    assert transcript.waits(1) == ["a/1: owns 1@1 from offset 10"]
    transcript = shared_out(1, "a")
    transcript.publishes(_0=5)
    transcript.commits("a", 0, 5, 1)
    transcript.succeeds({0: 10}, 1)
    assert transcript.expires(0) == ["a/1: owns 1@2 from earliest"]
    assert (transcript.committed, set(transcript.record.owners)) == ({}, {1})


# --- the leader changes
def test_a_new_leader_moves_nothing_until_members_had_time_to_come_back() -> None:
    transcript = shared_out(4, "a", "b")
    before = transcript.record
    assert transcript.leader_dies() == []
    assert transcript.opens("b", held={1: 1, 3: 1}) == ["b/1: owns 1@1 from earliest, 3@1 from earliest"]
    assert transcript.opens("a") == ["a/1: owns 0@1 from earliest, 2@1 from earliest"], "the message was lost"
    assert transcript.waits(60) == []
    assert transcript.record == before
    transcript = shared_out(2, "a", "b")
    transcript.leader_dies()
    transcript.opens("b", held={1: 1})
    assert transcript.waits(5) == []
    assert transcript.waits(2) == ["b/1: owns 0@2 from earliest, 1@1 from earliest"]


# --- administration
def test_a_reset_takes_effect_once_everybody_has_let_go() -> None:
    transcript = shared_out(2, "a")
    transcript.publishes(_0=10, _1=10)
    transcript.commits("a", 0, 9, 1)
    assert transcript.resets(EARLIEST) == ["a/1: owns nothing"]
    assert transcript.committed == {}
    assert transcript.commits("a", 0, 10, 1)[0].startswith("a/1: #1 kept; 0 refused")
    assert transcript.releases("a", _0=1, _1=1) == ["a/1: owns 0@3 from earliest, 1@3 from earliest"]


def test_what_is_let_go_of_late_is_not_what_was_given_since() -> None:
    """A segment is revoked, assigned again and withdrawn again before its owner learns of it: the next owner waits
    until it has released it in each generation."""
    transcript = shared_out(1, "a")
    transcript.resets(EARLIEST)
    assert transcript.waits(301) == ["a/1: owns 0@3 from earliest"]
    assert transcript.resets(EARLIEST) == ["a/1: owns nothing"]
    assert transcript.releases("a", _0=1) == []
    assert transcript.leader_dies() == []
    assert transcript.opens("a", held={0: 3}) == ["a/1: owns nothing"]
    transcript.waits(1)
    assert transcript.releases("a", _0=1) == []
    assert transcript.releases("a", _0=3) == ["a/1: owns 0@5 from earliest"]
    transcript = shared_out(1, "a")
    transcript.resets(EARLIEST)
    transcript.waits(301)
    transcript.breaks("a")
    transcript.resets(EARLIEST)
    assert transcript.opens("a", held={0: 1}) == ["a/1: owns 0@5 from earliest"]


@pytest.mark.parametrize(("session_s", "revoke_s"), [(6.0, 300.0), (5.0, 5.0), (2.0, 300.0), (6.0, 2.0), (0.3, 0.3)])
def test_a_member_is_not_given_up_while_it_may_trust_what_it_has(session_s: float, revoke_s: float) -> None:
    """It detects the end of its stream as late as possible; the coordinator detected it at once, or revoked it then."""
    limits = replace(LIMITS, session_timeout_s=session_s, revoke_timeout_s=revoke_s)
    until_s = limits.detection_s + limits.trust_s
    transcript = Transcript(1, limits=limits)
    transcript.opens("a")
    transcript.waits(1)
    transcript.opens("b")
    transcript.breaks("a")
    transcript.resets(EARLIEST)
    assert transcript.waits(until_s - 0.01) == []
    (line,) = transcript.waits(max(session_s, revoke_s))
    assert line.startswith("b/1: owns 0@")


def test_a_reset_replaces_what_was_committed_and_takes_successors_of_finished_segments_away() -> None:
    transcript = shared_out(2, "a")
    transcript.publishes(_0=10)
    transcript.commits("a", 0, 3, 1)
    transcript.leaves("a")
    transcript.resets(LATEST, _0=10, _1=4)
    assert {s: c.offset for s, c in transcript.committed.items()} == {0: 10, 1: 4}
    transcript.opens("a")
    assert transcript.waits(1) == ["a/1: owns 0@3 from offset 10, 1@3 from offset 4"]
    transcript = shared_out(1, "a")
    transcript.succeeds({0: 10}, 1)
    transcript.commits("a", 0, 10, 1)
    transcript.releases("a", _0=1)
    assert transcript.resets(EARLIEST) == ["a/1: owns 0@4 from earliest"]
    assert transcript.record.owners[1].revoking
    transcript.releases("a", _1=2)
    assert set(transcript.record.owners) == {0}


def test_a_deleted_group_tells_everybody_and_outcomes_add_up() -> None:
    transcript = Transcript(1)
    transcript.opens("a")
    transcript.opens("b")
    assert transcript.does(Deleted(NotFound("topic shop/orders was deleted"))) == [
        "a/1: bye, NotFound",
        "b/1: bye, NotFound",
    ]
    transcript = Transcript(1)
    first = transcript.group.handle(Tick(), 1)
    assert first == Outcome() == first.then(Outcome())


def test_a_description_shows_owners_and_lag() -> None:
    transcript = shared_out(2, "a")
    transcript.publishes(_0=10)
    transcript.commits("a", 0, 4, 1)
    transcript.succeeds({1: 20}, 2)
    transcript.commits("a", 1, 20, 1)
    seen = describe(
        NAME, transcript.group.record, transcript.group.progress, transcript.group.connected, {0: 12, 2: 25}
    )
    assert [(m.id, m.connected, m.segments) for m in seen.members] == [("a", True, (0, 1, 2))]
    assert [(s.segment, s.owner, s.committed, s.end_offset, s.lag_records) for s in seen.segments] == [
        (0, "a", 4, 12, 8),
        (2, "a", None, 25, 5),
    ]
    assert seen.finished == (1,)
