"""Repairs after brokers come and go: replaced segments, their order and remaining replicas, as transcripts."""

from dataclasses import replace

from seaweedmq.core.lineage.repair import repairs
from seaweedmq.model.segment import SegmentId
from seaweedmq.model.topic import TopicName
from tests.core.lineage.repair_transcript import NAME, Transcript

LOST = "its replicas lost each other, or it was sealed without a successor"


def test_what_is_well_stays_and_what_died_is_replaced() -> None:
    transcript = Transcript("a b", "c d")
    assert transcript.due() == []
    assert transcript.is_trusted_again("a") == [], "it was not under suspicion"
    transcript = Transcript("a b", others="c")
    assert transcript.dies("b") == ["0: broker b is not registered; a stays"]
    assert transcript.is_repaired() == ["0 -> 1: a c"]
    assert transcript.due() == []
    transcript = Transcript("a b c", others="d", replicas=3)
    assert transcript.dies("a") == ["0: broker a is not registered; b c stays"]
    assert transcript.is_repaired() == ["0 -> 1: b c d"]
    transcript = Transcript("a b", others="c d")
    assert transcript.dies("a", "b") == ["0: broker a is not registered; no replica stays"]
    assert transcript.is_repaired() == ["0 -> 1: c d"]


def test_what_nobody_can_write_to_comes_before_what_lost_a_follower() -> None:
    transcript = Transcript("a b", "b a", "c d", "d c")
    assert transcript.dies("a") == ["0: broker a is not registered; b stays", "1: broker a is not registered; b stays"]
    assert transcript.is_drained("c")[2:] == [
        "2: broker c is being drained; d stays",
        "3: broker c is being drained; d stays",
    ]
    assert transcript.dies("d") == [
        "0: broker a is not registered; b stays",
        "3: broker d is not registered; no replica stays",
        "1: broker a is not registered; b stays",
        "2: broker d is not registered; no replica stays",
    ]


def test_the_load_of_the_dead_is_spread_over_those_who_are_left_even_if_another_dies_meanwhile() -> None:
    transcript = Transcript("a b", "a c", "a d", "a e")
    transcript.dies("a")
    assert transcript.is_repaired() == ["0 -> 4: b c", "1 -> 5: c b", "2 -> 6: d e", "3 -> 7: e d"]
    assert transcript.due() == []
    transcript = Transcript("a b", "a c", others="d e")
    assert transcript.dies("a") == ["0: broker a is not registered; b stays", "1: broker a is not registered; c stays"]
    assert transcript.is_repaired(1) == ["0 -> 2: b d"]
    assert transcript.dies("d") == ["1: broker a is not registered; c stays", "2: broker d is not registered; b stays"]
    assert transcript.is_repaired() == ["1 -> 3: c e", "2 -> 4: b c"]
    assert transcript.due() == []


def test_who_comes_back_under_its_name_counts_until_somebody_notices_that_it_is_empty() -> None:
    transcript = Transcript("a b", "b a", others="c")
    transcript.dies("a")
    assert transcript.is_repaired(1) == ["0 -> 2: b c"]
    assert transcript.comes("a") == [], "segment 1 has both its replicas again, as far as the metadata tells"
    assert transcript.lost_each_other(1, suspected="c") == [f"1: {LOST}; b a stays"], "a restarted empty, b noticed"


def test_of_replicas_that_lost_each_other_the_suspected_one_goes_as_urgently_as_a_lost_follower() -> None:
    transcript = Transcript("a b", others="c")
    assert transcript.lost_each_other(0, suspected="a") == [f"0: {LOST}; b stays"]
    assert transcript.is_repaired() == ["0 -> 1: b c"]
    assert transcript.is_trusted_again("a") == [], "the segments that it lost stay where they are"
    transcript = Transcript("a b", "b a", others="c")
    assert transcript.lost_each_other(0, suspected="a") == [f"0: {LOST}; b stays"], "1 has its replicas and serves"
    transcript = Transcript("a b", "c d", others="e")
    transcript.lost_each_other(1, suspected="e")
    assert transcript.dies("b") == ["0: broker b is not registered; a stays", f"1: {LOST}; c d stays"]


def test_what_is_broken_is_named_by_its_topic_too() -> None:
    transcript = Transcript("a b")
    others = {SegmentId(TopicName("shop", "returns"), 0)}
    segments = transcript.segments.values()
    assert repairs(segments, transcript.live, draining=(), suspected=(), broken=others) == []
    assert len(repairs(segments, transcript.live, draining=(), suspected=(), broken={SegmentId(NAME, 0)})) == 1


def test_a_broker_that_is_drained_hands_everything_over_after_deaths_are_repaired() -> None:
    transcript = Transcript("a b", "b a", "b c", others="d")
    assert transcript.is_drained("a") == [
        "0: broker a is being drained; b stays",
        "1: broker a is being drained; b stays",
    ]
    assert transcript.is_repaired() == ["0 -> 3: b d", "1 -> 4: b c"]
    assert transcript.due() == []
    transcript = Transcript("a b", "c d", others="e")
    transcript.is_drained("a")
    assert transcript.dies("d") == ["1: broker d is not registered; c stays", "0: broker a is being drained; b stays"]
    transcript = Transcript("a b c d", replicas=4, others="e f")
    transcript.suspected.add("c")
    transcript.is_drained("b")
    assert transcript.dies("a") == ["0: broker a is not registered; d stays"]
    assert transcript.is_repaired() == ["0 -> 1: d e f"], "one is missing until another broker comes"


def test_replicas_that_no_broker_is_left_for_are_added_when_one_comes() -> None:
    transcript = Transcript("a b", "b a")
    assert transcript.dies("a") == ["0: broker a is not registered; b stays", "1: broker a is not registered; b stays"]
    assert transcript.is_repaired() == ["0 -> 2: b", "1 -> 3: b"]
    assert transcript.due() == [], "no broker could be added"
    assert transcript.comes("c") == ["2: a replica was missing; b stays", "3: a replica was missing; b stays"]
    assert transcript.is_repaired_to_the_end() == ["2 -> 4: b c", "3 -> 5: b c"]
    assert transcript.comes("d") == []


def test_a_topic_gets_as_many_replicas_as_there_are_brokers_and_not_one_repair_more() -> None:
    transcript = Transcript("a b c", replicas=3)
    transcript.dies("b", "c")
    assert transcript.is_repaired_to_the_end() == ["0 -> 1: a"]
    transcript.comes("d")
    assert transcript.is_repaired_to_the_end() == ["1 -> 2: a d"]
    transcript.comes("e")
    assert transcript.is_repaired_to_the_end() == ["2 -> 3: a d e"]
    transcript = Transcript("a b", others="c")
    transcript.topic = replace(transcript.topic, replicas=1)
    assert transcript.due() == []
    transcript.dies("b")
    assert transcript.is_repaired() == ["0 -> 1: a"]


def test_nothing_is_added_while_something_is_broken() -> None:
    transcript = Transcript("a b", "b a")
    transcript.dies("a")
    transcript.is_repaired()
    assert transcript.comes("c", "d")[0].startswith("2: a replica was missing")
    transcript.is_repaired(1)
    assert transcript.dies("c") == ["4: broker c is not registered; b stays"]
    assert transcript.is_repaired_to_the_end() == ["4 -> 5: b d", "3 -> 6: b d"]
