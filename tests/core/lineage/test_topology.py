"""New topics and successors, as values."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.state.metadata import segment_to_json
from seaweedmq.core.lineage.topology import (
    REPLICAS_MAX,
    SEALED_SEQUENCES_MAX,
    SEGMENT_IDS,
    SEGMENTS_PER_TOPIC_MAX,
    MetadataChange,
    SegmentEnd,
    altered,
    check_spec,
    new_topic,
    succeed,
    with_partitions,
)
from seaweedmq.errors import InvalidArgument, ResourceExhausted
from seaweedmq.model.ring import WHOLE_RING, KeyRange, covers_ring
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import PARTITIONS_MAX, Durability, Scaling, TopicChange, TopicName, TopicSpec

NAME = TopicName("shop", "orders")


def created(segments: int = 1, **more: object) -> MetadataChange:
    spec = TopicSpec(name=NAME, segments=segments, **more)  # type: ignore[arg-type]
    return new_topic(spec, uid=1, now_us=5, placement=[("b-1",)] * segments)


@given(segments=st.integers(1, SEGMENTS_PER_TOPIC_MAX))
def test_the_segments_of_a_new_topic_cut_the_ring_evenly(segments: int) -> None:
    change = created(segments)
    assert covers_ring((s.slots for s in change.segments), WHOLE_RING)
    widths = {s.slots.width for s in change.segments}
    assert max(widths) - min(widths) <= 1
    assert [s.id for s in change.segments] == list(range(segments))
    assert change.topic.next_segment == segments
    assert all(s.is_open and s.epoch == 1 and s.start_offset == 0 for s in change.segments)


@given(partitions=st.integers(1, PARTITIONS_MAX), more=st.integers(0, 50))
def test_each_partition_is_a_segment_and_those_that_are_added_begin_at_the_start(partitions: int, more: int) -> None:
    spec = TopicSpec(name=NAME, partitions=partitions, replicas=2)
    change = new_topic(spec, uid=1, now_us=5, placement=[("b-1", "b-2")] * partitions)
    assert change.topic.scaling is Scaling.FIXED
    assert [s.slots for s in change.segments] == [KeyRange(p, p + 1) for p in range(partitions)]
    total = min(PARTITIONS_MAX, partitions + more)
    ahead = replace(change.topic, next_segment=partitions + 7)  # some segments were moved since
    grown = with_partitions(ahead, total, now_us=9, placement=[("b-3", "b-4")] * (total - partitions))
    assert (grown.topic.partitions, grown.topic.next_segment) == (total, total + 7)
    assert covers_ring((s.slots for s in (*change.segments, *grown.segments)), grown.topic.ring)
    assert [s.id for s in grown.segments] == list(range(partitions + 7, total + 7))
    assert all(s.is_open and s.start_offset == 0 and not s.predecessors for s in grown.segments)


def test_what_partitions_can_not_be_is_refused() -> None:
    (change,) = (new_topic(TopicSpec(name=NAME, partitions=3), uid=1, now_us=5, placement=[("b-1",)] * 3),)
    with pytest.raises(InvalidArgument, match="has 3 partitions, 2 requested: their number only grows"):
        with_partitions(change.topic, 2, now_us=9, placement=[])
    with pytest.raises(InvalidArgument, match=f"from 1 to {PARTITIONS_MAX}"):
        with_partitions(change.topic, PARTITIONS_MAX + 1, now_us=9, placement=[])
    with pytest.raises(InvalidArgument, match="has key ranges instead of partitions"):
        with_partitions(created(3).topic, 4, now_us=9, placement=[("b-1",)])
    internal = replace(change.topic, name=TopicName("kafka", "__consumer_offsets"))
    with pytest.raises(InvalidArgument, match="keeps its 3 partitions: Kafka's coordinators find their state by them"):
        with_partitions(internal, 4, now_us=9, placement=[("b-1",)])
    with pytest.raises(InvalidArgument, match="its scaling stays fixed"):
        altered(change.topic, TopicChange(scaling=Scaling.AUTO))


def test_durability_follows_from_the_replicas_unless_it_is_chosen() -> None:
    assert created().topic.durability is Durability.STORED
    assert created(replicas=2).topic.durability is Durability.REPLICATED
    assert created(durability=Durability.REPLICATED).topic.durability is Durability.REPLICATED


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"segments": 0}, "0 segments"),
        ({"segments": SEGMENTS_PER_TOPIC_MAX + 1}, f"from 1 to {SEGMENTS_PER_TOPIC_MAX}"),
        ({"partitions": 0}, "0 partitions requested: a topic has from 1"),
        ({"partitions": PARTITIONS_MAX + 1}, f"from 1 to {PARTITIONS_MAX}"),
        ({"partitions": 2, "segments": 2}, "2 partitions and 2 segments requested: .* name one of the two"),
        ({"partitions": 2, "scaling": Scaling.AUTO}, "omit scaling or set it to fixed"),
        ({"replicas": 0}, "0 replicas"),
        ({"replicas": REPLICAS_MAX + 1}, f"from 1 to {REPLICAS_MAX}"),
        ({"retention_s": -1.0}, "retention of -1.0 s"),
        ({"retention_s": float("nan")}, "retention of nan s"),
        ({"retention_s": float("inf")}, "retention of inf s"),
        ({"retention_bytes": -1}, "retention of -1 bytes"),
        ({"target_bytes_per_s": -1.0}, "target of -1 bytes/s"),
        ({"target_records_per_s": 0.5}, "target of 0.5 records/s: set 1 or more"),
        ({"target_records_per_s": float("nan")}, "target of nan records/s"),
        ({"target_bytes_per_s": float("inf")}, "target of inf bytes/s"),
        ({"configs": (("segment.ms", "soon"),)}, "segment.ms is 'soon'"),
        ({"configs": (("min.insync.replicas", "2"),)}, "min.insync.replicas of 2 exceeds 1 replica,"),
    ],
)
def test_numbers_beyond_the_limits_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        check_spec(TopicSpec(name=NAME, **settings))  # type: ignore[arg-type]


def test_what_alter_leaves_out_stays_zero_removes_a_limit_and_configs_are_replaced_as_a_whole() -> None:
    topic = created(replicas=2, configs=(("a", "1"), ("min.insync.replicas", "2"))).topic
    assert altered(topic, TopicChange()).configs == topic.configs == (("a", "1"), ("min.insync.replicas", "2"))
    assert altered(topic, TopicChange(configs=(("b", "2"),))).configs == (("b", "2"),)
    assert altered(topic, TopicChange(configs=())).configs == ()
    with pytest.raises(InvalidArgument, match=r"min\.insync\.replicas of 3 exceeds 2 replicas"):
        altered(topic, TopicChange(configs=(("min.insync.replicas", "3"),)))
    topic = created(retention_s=60.0, retention_bytes=9, target_bytes_per_s=5.0, target_records_per_s=6.0).topic
    assert altered(topic, TopicChange()) == topic
    assert altered(topic, TopicChange(retention_s=0)) == replace(topic, retention_s=None)
    assert altered(topic, TopicChange(retention_bytes=0)) == replace(topic, retention_bytes=None)
    assert altered(topic, TopicChange(target_bytes_per_s=0)) == replace(topic, target_bytes_per_s=None)
    assert altered(topic, TopicChange(target_records_per_s=7)).target_records_per_s == 7
    assert altered(topic, TopicChange(scaling=Scaling.FIXED)).scaling is Scaling.FIXED
    with pytest.raises(InvalidArgument):
        altered(topic, TopicChange(retention_s=-5))
    with pytest.raises(InvalidArgument):
        altered(topic, TopicChange(target_bytes_per_s=-5))


def sealing(segment: Segment, end_offset: int | None = None, **more: object) -> SegmentEnd:
    end = segment.start_offset if end_offset is None else end_offset
    return SegmentEnd(segment=segment, end_offset=end, **({"epoch": segment.epoch, "sequences": ()} | more))  # type: ignore[arg-type]


@st.composite
def histories(draw: st.DrawFn) -> list[MetadataChange]:
    """A topic after splits, merges and moves of up to three predecessors and successors at a time."""
    changes = [created(draw(st.integers(1, 5)))]
    opened = list(changes[0].segments)
    for step in range(draw(st.integers(1, 12))):
        at = draw(st.integers(0, len(opened) - 1))
        predecessors = opened[at : at + draw(st.integers(1, 3))]
        lo, hi = predecessors[0].slots.lo, predecessors[-1].slots.hi
        cuts = draw(st.sets(st.integers(lo + 1, hi - 1), max_size=2)) if hi - lo > 1 else set()
        ranges = [KeyRange(a, b) for a, b in pairwise([lo, *sorted(cuts), hi])]
        change = succeed(
            changes[-1].topic,
            [sealing(p, p.start_offset + draw(st.integers(0, 99))) for p in predecessors],
            ranges=ranges,
            placement=[("b-2",)] * len(ranges),
            now_us=step,
        )
        changes.append(change)
        opened[at : at + len(predecessors)] = [s for s in change.segments if s.is_open]
    return changes


def after_all(changes: list[MetadataChange]) -> dict[int, Segment]:
    return {segment.id: segment for change in changes for segment in change.segments}


@given(histories(), st.integers(0, 65_535))
def test_open_segments_partition_the_ring_and_offsets_rise_along_the_lineage(
    changes: list[MetadataChange], slot: int
) -> None:
    for n in range(1, len(changes) + 1):
        assert covers_ring((s.slots for s in after_all(changes[:n]).values() if s.is_open), WHOLE_RING)
    segments = after_all(changes)
    assert sorted(segments) == list(range(changes[-1].topic.next_segment)), "no id was used twice"
    for segment in segments.values():
        assert bool(segment.successors) != segment.is_open
        for other in segments.values():
            linked = other.id in segment.successors
            assert linked == (segment.id in other.predecessors), "predecessors and successors are two sides"
            assert not linked or segment.slots.overlaps(other.slots)
    path = [s for _, s in sorted(segments.items()) if slot in s.slots]
    for before, after in pairwise(path):
        assert before.end_offset is not None
        assert before.end_offset <= after.start_offset
        assert after.id in before.successors
    for segment in path:
        ends = [segments[p].end_offset for p in segment.predecessors]
        assert segment.start_offset == max((e for e in ends if e is not None), default=0), "and leave no needless gap"
    assert path[-1].is_open


def test_a_parent_keeps_all_but_its_fate() -> None:
    change = created(2)
    predecessor = change.segments[1]
    sequences = (ProducerSequence(producer_id=1, producer_epoch=2, next_sequence=3),)
    end = sealing(predecessor, 7, epoch=4, sequences=sequences)
    after = succeed(change.topic, [end], ranges=[predecessor.slots], placement=[("b-2", "b-3")], now_us=9)
    lifecycle: dict[str, Any] = {
        "state": SegmentState.SEALED,
        "end_offset": 7,
        "sealed_us": 9,
        "sequences_complete": True,
    }
    assert after.segments == (
        replace(predecessor, epoch=4, sequences=sequences, successors=(2,), **lifecycle),
        replace(predecessor, id=2, replicas=("b-2", "b-3"), predecessors=(1,), start_offset=7, opened_us=9),
    )


def test_a_segment_can_not_end_before_it_begins_or_be_sealed_twice_and_ids_run_out() -> None:
    change = created()
    predecessor = replace(change.segments[0], start_offset=10)
    rest: dict[str, Any] = {"ranges": [predecessor.slots], "placement": [("b",)], "now_us": 0}
    with pytest.raises(AssertionError, match="starts at 10"):
        succeed(change.topic, [sealing(predecessor, 9)], **rest)
    sealed = succeed(change.topic, [sealing(predecessor, 10)], **rest).segments[0]
    with pytest.raises(AssertionError, match="already sealed"):
        succeed(change.topic, [sealing(sealed, 10)], **rest)
    change = created()
    (predecessor,) = change.segments
    last = replace(change.topic, next_segment=SEGMENT_IDS - 1)
    with pytest.raises(ResourceExhausted, match="create a new topic"):
        succeed(last, [sealing(predecessor)], ranges=[predecessor.slots], placement=[("b",)], now_us=0)


@pytest.mark.parametrize(
    ("predecessors", "ranges"),
    [
        ([0, 2], [KeyRange(0, 16_384), KeyRange(32_768, 49_152)]),
        ([1, 0], [KeyRange(0, 32_768)]),
        ([0, 1], [KeyRange(0, 16_384)]),
        ([0], [KeyRange(0, 10), KeyRange(11, 16_384)]),
        ([0], [KeyRange(0, 16_385)]),
    ],
)
def test_successors_that_leave_or_share_slots_are_none(predecessors: list[int], ranges: list[KeyRange]) -> None:
    change = created(4)
    with pytest.raises(AssertionError):
        succeed(
            change.topic,
            [sealing(change.segments[n]) for n in predecessors],
            ranges=ranges,
            placement=[("b",)] * len(ranges),
            now_us=0,
        )


def test_the_record_of_a_sealed_segment_is_bounded_and_keeps_the_most_recent_producers() -> None:
    change = created()
    (predecessor,) = change.segments
    for count, told in ((SEALED_SEQUENCES_MAX, True), (SEALED_SEQUENCES_MAX + 1, True), (0, False)):
        sequences = [ProducerSequence(producer_id=n, producer_epoch=0, next_sequence=1) for n in range(count)]
        end = sealing(predecessor, 5_000, sequences=sequences, sequences_complete=told)
        sealed, _ = succeed(change.topic, [end], ranges=[predecessor.slots], placement=[("b",)], now_us=0).segments
        assert sealed.sequences == tuple(sequences[:SEALED_SEQUENCES_MAX])
        is_complete = told and count <= SEALED_SEQUENCES_MAX
        assert sealed.sequences_complete == is_complete, "or an absent producer counts as new"
    longest = ProducerSequence(producer_id=2**64 - 1, producer_epoch=2**32 - 1, next_sequence=2**64 - 1)
    change = created(2)
    ends = [sealing(predecessor, 7, sequences=[longest] * 2 * SEALED_SEQUENCES_MAX) for predecessor in change.segments]
    after = succeed(change.topic, ends, ranges=[KeyRange(0, 65_536)], placement=[("b",)], now_us=0)
    assert sum(len(segment_to_json(segment)) for segment in after.segments) < 1_500_000 / 2
