"""Changes of segments as values: a new topic's first segments, and sealed segments with their successors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from seaweedmq.errors import InvalidArgument, ResourceExhausted
from seaweedmq.model.kafka_group_admin import INTERNAL_TOPICS
from seaweedmq.model.ring import KeyRange, even_ranges
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import PARTITIONS_MAX, Durability, Scaling, Topic, TopicChange, TopicSpec
from seaweedmq.model.topic_settings import check_configs

_Number = TypeVar("_Number", int, float)

SEGMENTS_PER_TOPIC_MAX = 4_096
REPLICAS_MAX = 16
SEGMENT_IDS = 10**8
"""File names hold 8 digits."""
TARGET_MIN = 1.0
"""Least target rate of a segment, a second: below it the averages are noise."""
SEALED_SEQUENCES_MAX = 4_000
"""Of a sealed segment's record, at most 55 bytes each: a merge, which writes two, stays far below etcd's 1.5 MiB a
request. With more, the log files tell of the rest."""


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """Metadata to be written in one transaction."""

    topic: Topic
    segments: tuple[Segment, ...]


def check_spec(spec: TopicSpec) -> None:
    """Raise InvalidArgument unless the numbers of the spec are within the limits."""
    if not 1 <= spec.segments <= SEGMENTS_PER_TOPIC_MAX:
        raise InvalidArgument(f"{spec.segments} segments asked for: a topic has from 1 to {SEGMENTS_PER_TOPIC_MAX}")
    if spec.partitions is not None:
        check_partitions(spec.partitions)
        if spec.segments != 1:
            raise InvalidArgument(
                f"{spec.partitions} partitions and {spec.segments} segments asked for: each partition is a segment, "
                "name one of the two"
            )
        if spec.scaling is Scaling.AUTO:
            raise InvalidArgument(
                f"{spec.partitions} partitions with scaling auto asked for: a partition is never split nor merged, "
                "leave scaling out or say fixed"
            )
    if not 1 <= spec.replicas <= REPLICAS_MAX:
        raise InvalidArgument(f"{spec.replicas} replicas asked for: a topic has from 1 to {REPLICAS_MAX}")
    check_configs(spec.configs, spec.replicas)
    check_retention(spec.retention_s, spec.retention_bytes)
    check_target_rates(spec.target_bytes_per_s, spec.target_records_per_s)


def check_partitions(partitions: int) -> None:
    """Raise InvalidArgument unless a topic can have as many."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(f"{partitions} partitions asked for: a topic has from 1 to {PARTITIONS_MAX}")


def check_retention(retention_s: float | None, retention_bytes: int | None) -> None:
    """Raise InvalidArgument for a negative limit."""
    if retention_s is not None and not 0 <= retention_s < float("inf"):
        raise InvalidArgument(f"retention of {retention_s} s: give a time above 0, or 0 for no limit")
    if retention_bytes is not None and retention_bytes < 0:
        raise InvalidArgument(f"retention of {retention_bytes} bytes: give a size above 0, or 0 for no limit")


def check_target_rates(bytes_per_s: float | None, records_per_s: float | None) -> None:
    """Raise InvalidArgument for a rate that no segment can have."""
    for what, rate in (("bytes", bytes_per_s), ("records", records_per_s)):
        if rate is not None and rate != 0 and not TARGET_MIN <= rate < float("inf"):
            raise InvalidArgument(
                f"target of {rate:g} {what}/s: give {TARGET_MIN:g} or more, or 0 for the cluster's own target"
            )


def new_topic(
    spec: TopicSpec, *, uid: int, now_us: int, placement: Sequence[tuple[str, ...]], first_id: int = 0
) -> MetadataChange:
    """Return the topic and its first segments, one for each entry of ``placement``, cutting the ring evenly.

    Args:
        spec: the settings.
        uid: of the topic.
        now_us: wall clock.
        placement: replicas of each segment.
        first_id: id of the first segment; an id below it is taken.
    """
    check_spec(spec)
    durability = spec.durability or (Durability.STORED if spec.replicas == 1 else Durability.REPLICATED)
    count = spec.first_segments
    topic = Topic(
        name=spec.name,
        uid=uid,
        replicas=spec.replicas,
        durability=durability,
        scaling=spec.scaling or (Scaling.FIXED if spec.partitions else Scaling.AUTO),
        schema=spec.schema,
        retention_s=spec.retention_s or None,
        retention_bytes=spec.retention_bytes or None,
        next_segment=first_id + count,
        created_us=now_us,
        target_bytes_per_s=spec.target_bytes_per_s or None,
        target_records_per_s=spec.target_records_per_s or None,
        segments_min=count,
        partitions=spec.partitions,
        configs=spec.configs,
    )
    return MetadataChange(topic, _first_segments(topic, first_id, even_ranges(topic.ring, count), placement, now_us))


def with_partitions(
    topic: Topic, partitions: int, *, now_us: int, placement: Sequence[tuple[str, ...]]
) -> MetadataChange:
    """The topic with more partitions, each an open segment that begins at offset 0, one for each of ``placement``.

    Raises:
        InvalidArgument: it has none, or more already, or they would be too many.
    """
    check_more_partitions(topic, partitions)
    before = topic.partitions or 0
    first = topic.next_segment
    grown = replace(topic, partitions=partitions, segments_min=partitions, next_segment=first + partitions - before)
    slots = [KeyRange(partition, partition + 1) for partition in range(before, partitions)]
    return MetadataChange(grown, _first_segments(grown, first, slots, placement, now_us))


def check_more_partitions(topic: Topic, partitions: int) -> None:
    """Raise InvalidArgument unless the topic can grow to as many."""
    if topic.partitions is None:
        raise InvalidArgument(
            f"{topic.name} has no partitions but key ranges, which split by load: create a topic with partitions"
        )
    check_partitions(partitions)
    if topic.name.name in INTERNAL_TOPICS:
        raise InvalidArgument(
            f"{topic.name} keeps its {topic.partitions} partitions: Kafka's coordinators find by them what they keep"
        )
    if partitions < topic.partitions:
        raise InvalidArgument(
            f"{topic.name} has {topic.partitions} partitions, and {partitions} are asked for: they only grow, since "
            "records stay in theirs"
        )


def _first_segments(
    topic: Topic, first: int, ranges: Sequence[KeyRange], placement: Sequence[tuple[str, ...]], now_us: int
) -> tuple[Segment, ...]:
    """Segments without predecessors, with ids from ``first`` on."""
    return tuple(
        Segment(
            topic=topic.name,
            id=number,
            slots=slots,
            epoch=1,
            state=SegmentState.OPEN,
            replicas=tuple(replicas),
            opened_us=now_us,
        )
        for number, (slots, replicas) in enumerate(zip(ranges, placement, strict=True), start=first)
    )


def altered(topic: Topic, change: TopicChange) -> Topic:
    """The topic with the change applied, but for its partitions: see :func:`with_partitions`."""
    if change.configs is not None:
        check_configs(change.configs, topic.replicas)
    check_retention(change.retention_s, change.retention_bytes)
    check_target_rates(change.target_bytes_per_s, change.target_records_per_s)
    if topic.partitions is not None and change.scaling is Scaling.AUTO:
        raise InvalidArgument(f"{topic.name} has partitions, which are never split nor merged: its scaling stays fixed")
    return replace(
        topic,
        durability=change.durability or topic.durability,
        scaling=change.scaling or topic.scaling,
        retention_s=_limit(topic.retention_s, change.retention_s),
        retention_bytes=_limit(topic.retention_bytes, change.retention_bytes),
        target_bytes_per_s=_limit(topic.target_bytes_per_s, change.target_bytes_per_s),
        target_records_per_s=_limit(topic.target_records_per_s, change.target_records_per_s),
        configs=topic.configs if change.configs is None else change.configs,
    )


def _limit(before: _Number | None, change: _Number | None) -> _Number | None:
    """None leaves it as it is, 0 removes it."""
    return before if change is None else (change or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEnd:
    """How an open segment ends."""

    segment: Segment
    """As it was while open."""
    end_offset: int
    epoch: int
    """The one its replicas were fenced with, or its own if nobody had to be fenced."""
    sequences: Sequence[ProducerSequence]
    """Of every producer that may not have heard yet of all it stored, the most recently active first."""
    sequences_complete: bool = True
    """Whether these are all."""


def succeed(
    topic: Topic,
    predecessors: Sequence[SegmentEnd],
    *,
    ranges: Sequence[KeyRange],
    placement: Sequence[tuple[str, ...]],
    now_us: int,
) -> MetadataChange:
    """Seal neighbours, in the order of the ring, and open a successor for each of ``ranges``, which cover their slots.

    A successor begins at the largest end of the parents whose range it shares, so that offsets rise along every key's
    path; and not below what was deleted by hand, should records that were deleted be lost before they were fsynced:
    what comes later is not among them.
    """
    for predecessor in predecessors:
        assert predecessor.segment.is_open, f"{predecessor.segment} is sealed already"
        assert predecessor.end_offset >= predecessor.segment.start_offset, (
            f"{predecessor.segment} cannot end at {predecessor.end_offset}: "
            f"it starts at {predecessor.segment.start_offset}"
        )
    before = [predecessor.segment.slots for predecessor in predecessors]
    assert _run_of(before) == _run_of(ranges), f"{ranges} do not cover {before}"
    if topic.next_segment + len(ranges) >= SEGMENT_IDS:
        raise ResourceExhausted(f"{topic.name} has used up its {SEGMENT_IDS:,} segment ids: create a new topic")
    children = []
    for number, (slots, replicas) in enumerate(zip(ranges, placement, strict=True)):
        above = [predecessor for predecessor in predecessors if predecessor.segment.slots.overlaps(slots)]
        children.append(
            Segment(
                topic=topic.name,
                id=topic.next_segment + number,
                slots=slots,
                epoch=1,
                state=SegmentState.OPEN,
                replicas=replicas,
                predecessors=tuple(predecessor.segment.id for predecessor in above),
                start_offset=max(topic.low_watermark(slots), *(predecessor.end_offset for predecessor in above)),
                opened_us=now_us,
            )
        )
    sealed = [
        replace(
            predecessor.segment,
            state=SegmentState.SEALED,
            epoch=predecessor.epoch,
            end_offset=predecessor.end_offset,
            sequences=tuple(predecessor.sequences)[:SEALED_SEQUENCES_MAX],
            sequences_complete=predecessor.sequences_complete and len(predecessor.sequences) <= SEALED_SEQUENCES_MAX,
            successors=tuple(child.id for child in children if child.slots.overlaps(predecessor.segment.slots)),
            sealed_us=now_us,
            problem="",
        )
        for predecessor in predecessors
    ]
    return MetadataChange(replace(topic, next_segment=topic.next_segment + len(ranges)), (*sealed, *children))


def _run_of(ranges: Sequence[KeyRange]) -> KeyRange:
    """The one range that neighbours in order make up."""
    assert all(a.hi == b.lo for a, b in pairwise(ranges)), f"{ranges} are no neighbours in order"
    return KeyRange(ranges[0].lo, ranges[-1].hi)
