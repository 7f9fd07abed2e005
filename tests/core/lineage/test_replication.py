"""Open segments that lack replicas, and the texts that report them."""

from collections import Counter
from dataclasses import replace

from seaweedmq.core.lineage.replication import describe_under_replicated, live_replicas, under_replicated
from seaweedmq.model.segment import Segment, SegmentState
from tests.support.segments import make_segment

LIVE = {"a", "b"}


def segment(*replicas: str, state: SegmentState = SegmentState.OPEN) -> Segment:
    return replace(make_segment(), replicas=replicas, state=state)


SEGMENTS = [segment("a", "b"), segment("a"), segment("c", "d"), segment("b", "c"), segment("a", "b", "c")]


def test_replicas_on_dead_brokers_are_missing() -> None:
    assert [live_replicas(each, LIVE) for each in SEGMENTS] == [2, 1, 0, 1, 2]


def test_segments_are_counted_by_their_live_replicas() -> None:
    assert under_replicated(SEGMENTS, 2, LIVE) == Counter({1: 2, 0: 1})
    assert under_replicated(SEGMENTS, 1, LIVE) == Counter({0: 1})
    assert under_replicated([segment("a", "b")], 2, LIVE) == Counter()


def test_sealed_segments_are_files_and_lack_nothing() -> None:
    assert under_replicated([segment("c", state=SegmentState.SEALED)], 2, LIVE) == Counter()


def test_people_read_how_many_segments_have_how_many_replicas() -> None:
    sentence = "under-replicated: 1 of 5 segments with 0 of 2, 2 of 5 segments with 1 of 2 replicas"
    assert describe_under_replicated(SEGMENTS, 2, LIVE) == sentence
    assert describe_under_replicated([segment("a"), segment("b")], 1, LIVE) == ""
