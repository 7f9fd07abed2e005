"""New topics and successors, as values."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.topology import (
    REPLICAS_MAX,
    SEALED_SEQUENCES_MAX,
    SEGMENTS_PER_TOPIC_MAX,
    Change,
    altered,
    check_spec,
    new_topic,
    succeed,
)
from seaweedmq.errors import InvalidArgument, ResourceExhausted
from seaweedmq.model.ring import KeyRange, is_partition
from seaweedmq.model.segment import ProducerSequence
from seaweedmq.model.topic import Durability, Scaling, TopicChange, TopicName, TopicSpec

NAME = TopicName("shop", "orders")


def created(segments: int = 1, **more: object) -> Change:
    spec = TopicSpec(name=NAME, segments=segments, **more)  # type: ignore[arg-type]
    return new_topic(spec, uid=1, now_us=5, placement=[("b-1",)] * segments)


@given(segments=st.integers(1, SEGMENTS_PER_TOPIC_MAX))
def test_the_segments_of_a_new_topic_cut_the_ring_evenly(segments: int) -> None:
    change = created(segments)
    assert is_partition(s.slots for s in change.segments)
    widths = {s.slots.width for s in change.segments}
    assert max(widths) - min(widths) <= 1
    assert [s.id for s in change.segments] == list(range(segments))
    assert change.topic.next_segment == segments
    assert all(s.is_open and s.epoch == 1 and s.start_offset == 0 for s in change.segments)


def test_durability_follows_from_the_replicas_unless_it_is_chosen() -> None:
    assert created().topic.durability is Durability.STORED
    assert created(replicas=2).topic.durability is Durability.REPLICATED
    assert created(durability=Durability.REPLICATED).topic.durability is Durability.REPLICATED


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"segments": 0}, "0 segments"),
        ({"segments": SEGMENTS_PER_TOPIC_MAX + 1}, f"from 1 to {SEGMENTS_PER_TOPIC_MAX}"),
        ({"replicas": 0}, "0 replicas"),
        ({"replicas": REPLICAS_MAX + 1}, f"from 1 to {REPLICAS_MAX}"),
        ({"retention_s": -1.0}, "retention of -1.0 s"),
        ({"retention_s": float("nan")}, "retention of nan s"),
        ({"retention_s": float("inf")}, "retention of inf s"),
        ({"retention_bytes": -1}, "retention of -1 bytes"),
    ],
)
def test_numbers_beyond_the_limits_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        check_spec(TopicSpec(name=NAME, **settings))  # type: ignore[arg-type]


def test_what_alter_leaves_out_stays_and_zero_removes_a_limit() -> None:
    topic = created(retention_s=60.0, retention_bytes=9).topic
    assert altered(topic, TopicChange()) == topic
    assert altered(topic, TopicChange(retention_s=0)) == replace(topic, retention_s=None)
    assert altered(topic, TopicChange(retention_bytes=0)) == replace(topic, retention_bytes=None)
    assert altered(topic, TopicChange(scaling=Scaling.FIXED)).scaling is Scaling.FIXED
    with pytest.raises(InvalidArgument):
        altered(topic, TopicChange(retention_s=-5))


@given(cuts=st.sets(st.integers(1, 65_535), max_size=6), grown=st.integers(0, 1_000), which=st.integers(0, 3))
def test_successors_partition_what_their_parent_had_and_begin_where_it_ends(
    cuts: set[int], grown: int, which: int
) -> None:
    change = created(4)
    parent = replace(change.segments[which], start_offset=10)
    inner = sorted(c for c in cuts if parent.slots.lo < c < parent.slots.hi)
    edges = [parent.slots.lo, *inner, parent.slots.hi]
    ranges = [KeyRange(a, b) for a, b in pairwise(edges)]
    after = succeed(
        change.topic,
        parent,
        end_offset=10 + grown,
        epoch=1,
        sequences=[],
        ranges=ranges,
        placement=[("b-2",)] * len(ranges),
    )
    sealed, *children = after.segments
    assert is_partition([s.slots for s in change.segments if s.id != which] + [c.slots for c in children])
    assert (sealed.is_open, sealed.end_offset, sealed.slots) == (False, 10 + grown, parent.slots)
    assert sealed.successors == tuple(c.id for c in children)
    assert [c.id for c in children] == list(range(4, 4 + len(children)))
    assert after.topic.next_segment == 4 + len(children)
    for child in children:
        assert (child.is_open, child.predecessors, child.start_offset) == (True, (which,), 10 + grown)


def test_a_segment_can_not_end_before_it_begins_or_be_sealed_twice() -> None:
    change = created()
    parent = replace(change.segments[0], start_offset=10)
    rest = {"sequences": [], "ranges": [parent.slots], "placement": [("b",)]}
    with pytest.raises(AssertionError):
        succeed(change.topic, parent, end_offset=9, epoch=1, **rest)  # type: ignore[arg-type]
    sealed = succeed(change.topic, parent, end_offset=10, epoch=1, **rest).segments[0]  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        succeed(change.topic, sealed, end_offset=10, epoch=1, **rest)  # type: ignore[arg-type]


def test_the_record_of_a_sealed_segment_is_bounded_and_keeps_the_most_recent_producers() -> None:
    change = created()
    sequences = [ProducerSequence(producer_id=n, producer_epoch=0, next_sequence=1) for n in range(5_000)]
    sealed, _ = succeed(
        change.topic,
        change.segments[0],
        end_offset=5_000,
        epoch=1,
        sequences=sequences,
        ranges=[change.segments[0].slots],
        placement=[("b",)],
    ).segments
    assert sealed.sequences == tuple(sequences[:SEALED_SEQUENCES_MAX])


def test_segment_ids_run_out_with_a_clear_error() -> None:
    change = created()
    with pytest.raises(ResourceExhausted, match="create a new topic"):
        succeed(
            replace(change.topic, next_segment=10**8 - 1),
            change.segments[0],
            end_offset=0,
            epoch=1,
            sequences=[],
            ranges=[change.segments[0].slots],
            placement=[("b",)],
        )
