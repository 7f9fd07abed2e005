"""Under-replicated and unrecoverable segments: what is reported of them, and which one is replaced next."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.lineage.problems import (
    RETRY_S_FIRST,
    RETRY_S_MAX,
    SHOWN_MAX,
    check_recoverable,
    describe_problems,
    problem_of,
    retry_pause_s,
)
from seaweedmq.core.lineage.replication import describe_under_replicated, live_replicas, under_replicated
from seaweedmq.core.lineage.short_segments import ShortSegments
from seaweedmq.errors import Corrupt
from seaweedmq.model.segment import PROBLEM_CHARS_MAX, Segment, SegmentId, SegmentState
from tests.support.segments import make_segment, make_topic

TOPIC = replace(make_topic(), replicas=3)
TOPICS = {TOPIC.name: TOPIC}
BROKERS = ("a", "b", "c")


class View:
    """Open segments of one topic, and the number of lookups."""

    def __init__(self) -> None:
        self.open: dict[SegmentId, Segment] = {}
        self.lookups = 0

    def add(self, number: int, replicas: int) -> SegmentId:
        segment = replace(make_segment(), topic=TOPIC.name, id=number, replicas=BROKERS[:replicas])
        self.open[segment.key] = segment
        return segment.key

    def find(self, key: SegmentId) -> Segment | None:
        self.lookups += 1
        return self.open.get(key)


def next_of(short: ShortSegments, view: View, available: int, *busy: SegmentId) -> SegmentId | None:
    found = short.next(available, TOPICS, view.find, frozenset(busy))
    return None if found is None else found.segment.key


def test_the_first_that_could_have_more_replicas_is_next() -> None:
    view, short = View(), ShortSegments()
    keys = [view.add(number, replicas) for number, replicas in enumerate([2, 1, 1])]
    for key in keys:
        short.add(key)
    assert next_of(short, view, 2) == keys[1]
    assert next_of(short, view, 2, keys[1]) == keys[2], "a segment in replacement is skipped"
    assert next_of(short, view, 2, keys[1], keys[2]) is None
    assert next_of(short, view, 3, keys[1], keys[2]) == keys[0], "it could not have more before"


def test_closed_ones_and_those_that_have_enough_are_dropped_until_they_change() -> None:
    view, short = View(), ShortSegments()
    closed, forgotten, whole = view.add(0, 1), view.add(1, 1), view.add(2, 3)
    for key in (closed, forgotten, whole):
        short.add(key)
    del view.open[closed]
    short.forget(forgotten)
    assert next_of(short, view, 3) is None
    view.lookups = 0
    assert next_of(short, view, 3) is None
    assert view.lookups == 0
    view, short = View(), ShortSegments()
    key = view.add(0, 2)
    short.add(key)
    assert next_of(short, view, 2) is None
    view.add(0, 1)
    short.add(key)
    assert next_of(short, view, 2) == key


def test_thousands_that_cannot_have_more_are_looked_at_once() -> None:
    view, short = View(), ShortSegments()
    for number in range(3_000):
        short.add(view.add(number, 2))
    for number in range(3_000, 6_000):
        short.add(view.add(number, 1))
        found = next_of(short, view, 2)
        assert found == SegmentId(TOPIC.name, number)
        del view.open[found]
    assert view.lookups <= 9_000
    assert next_of(short, view, 3) == SegmentId(TOPIC.name, 0)


LIVE = {"a", "b"}


def segment(*replicas: str, state: SegmentState = SegmentState.OPEN) -> Segment:
    return replace(make_segment(), replicas=replicas, state=state)


SEGMENTS = [segment("a", "b"), segment("a"), segment("c", "d"), segment("b", "c"), segment("a", "b", "c")]


def test_open_segments_are_counted_and_described_by_their_live_replicas() -> None:
    assert under_replicated(SEGMENTS, 2, LIVE) == Counter({1: 2, 0: 1})
    assert under_replicated(SEGMENTS, 1, LIVE) == Counter({0: 1})
    assert under_replicated([segment("a", "b")], 2, LIVE) == Counter()
    assert [live_replicas(each, LIVE) for each in SEGMENTS] == [2, 1, 0, 1, 2]
    assert under_replicated([segment("c", state=SegmentState.SEALED)], 2, LIVE) == Counter()
    sentence = "under-replicated: 1 of 5 segments with 0 of 2, 2 of 5 segments with 1 of 2 replicas"
    assert describe_under_replicated(SEGMENTS, 2, LIVE) == sentence
    assert describe_under_replicated([segment("a"), segment("b")], 1, LIVE) == ""


SEGMENT = replace(make_segment(), id=3)


def broken(number: int) -> Segment:
    segment = replace(SEGMENT, id=number)
    return replace(segment, problem=problem_of(segment, Corrupt(f"x-{number}.log is damaged at byte 7")))


@given(st.text(max_size=3 * PROBLEM_CHARS_MAX))
def test_a_problem_names_segment_and_remedy_whatever_was_wrong_and_is_bounded(reason: str) -> None:
    problem = problem_of(SEGMENT, Corrupt(reason))
    assert len(problem) <= PROBLEM_CHARS_MAX
    assert problem.startswith("shop/orders#3 cannot be recovered: ")
    assert problem.endswith("; repair or restore its files, recovery is retried within 60 s")
    assert reason[: PROBLEM_CHARS_MAX // 2] in problem


@given(st.integers(1, 10_000))
def test_pauses_grow_up_to_a_minute(attempts: int) -> None:
    assert retry_pause_s(1) == RETRY_S_FIRST
    assert retry_pause_s(attempts) <= retry_pause_s(attempts + 1) <= RETRY_S_MAX
    assert retry_pause_s(attempts + 10) == RETRY_S_MAX


def test_an_unrecoverable_segment_is_an_error_with_the_file_and_others_are_none() -> None:
    check_recoverable(SEGMENT)
    with pytest.raises(Corrupt, match=r"x-3\.log is damaged at byte 7"):
        check_recoverable(broken(3))


@given(st.integers(0, 20))
def test_a_topic_s_text_has_the_first_problems_and_counts_the_rest(count: int) -> None:
    text = describe_problems([SEGMENT, *map(broken, range(count))])
    assert text.count(".log is damaged") == min(count, SHOWN_MAX)
    assert (f"{count - SHOWN_MAX} more segments cannot be recovered" in text) == (count > SHOWN_MAX)
    assert bool(text) == bool(count)
