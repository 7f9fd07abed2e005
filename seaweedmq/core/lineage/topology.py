"""Metadata changes as values: a new topic's first segments, and sealed segments with their successors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from seaweedmq.errors import InvalidArgument, ResourceExhausted
from seaweedmq.model.kafka.group_admin import INTERNAL_TOPICS
from seaweedmq.model.ring import KeyRange, even_ranges
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import PARTITIONS_MAX, Durability, Scaling, Topic, TopicChange, TopicSpec
from seaweedmq.model.topic_settings import check_configs

_Number = TypeVar("_Number", int, float)

SEGMENTS_PER_TOPIC_MAX = 4_096
REPLICAS_MAX = 16
SEGMENT_IDS = 10**8
"""Number of segment ids of a topic: file names hold 8 digits."""
TARGET_MIN = 1.0
"""Lowest target rate of a segment, per second: below it the averages are noise."""
SEALED_SEQUENCES_MAX = 4_000
"""Limit of the sequences in a sealed segment's record, at most 55 bytes each: a merge, which writes two records, stays
far below etcd's 1.5 MiB per request. The log files have the remaining sequences."""


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """Metadata to be written in one transaction."""

    topic: Topic
    segments: tuple[Segment, ...]


def check_spec(spec: TopicSpec) -> None:
    """Raise InvalidArgument unless the numbers of the spec are within the limits."""
    if not 1 <= spec.segments <= SEGMENTS_PER_TOPIC_MAX:
        raise InvalidArgument(f"{spec.segments} segments requested: a topic has from 1 to {SEGMENTS_PER_TOPIC_MAX}")
    if spec.partitions is not None:
        check_partitions(spec.partitions)
        if spec.segments != 1:
            raise InvalidArgument(
                f"{spec.partitions} partitions and {spec.segments} segments requested: each partition is a segment, "
                "name one of the two"
            )
        if spec.scaling is Scaling.AUTO:
            raise InvalidArgument(
                f"{spec.partitions} partitions with scaling auto requested: a partition is never split or merged, "
                "omit scaling or set it to fixed"
            )
    if not 1 <= spec.replicas <= REPLICAS_MAX:
        raise InvalidArgument(f"{spec.replicas} replicas requested: a topic has from 1 to {REPLICAS_MAX}")
    check_configs(spec.configs, spec.replicas)
    check_retention(spec.retention_s, spec.retention_bytes)
    check_target_rates(spec.target_bytes_per_s, spec.target_records_per_s)


def check_partitions(partitions: int) -> None:
    """Raise InvalidArgument unless a topic can have this number of partitions."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(f"{partitions} partitions requested: a topic has from 1 to {PARTITIONS_MAX}")


def check_retention(retention_s: float | None, retention_bytes: int | None) -> None:
    """Raise InvalidArgument for a negative or infinite limit."""
    if retention_s is not None and not 0 <= retention_s < float("inf"):
        raise InvalidArgument(f"retention of {retention_s} s: set a time above 0, or 0 for no limit")
    if retention_bytes is not None and retention_bytes < 0:
        raise InvalidArgument(f"retention of {retention_bytes} bytes: set a size above 0, or 0 for no limit")


def check_target_rates(bytes_per_s: float | None, records_per_s: float | None) -> None:
    """Raise InvalidArgument for a target rate below ``TARGET_MIN`` other than 0, or an infinite one."""
    for what, rate in (("bytes", bytes_per_s), ("records", records_per_s)):
        if rate is not None and rate != 0 and not TARGET_MIN <= rate < float("inf"):
            raise InvalidArgument(
                f"target of {rate:g} {what}/s: set {TARGET_MIN:g} or more, or 0 for the cluster's own target"
            )


def new_topic(
    spec: TopicSpec, *, uid: int, now_us: int, placement: Sequence[tuple[str, ...]], first_id: int = 0
) -> MetadataChange:
    """Return the topic and its first segments, one for each entry of ``placement``, which divide the ring evenly.

    Ids below ``first_id`` are taken.
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
    """Return the topic with more partitions, each an open segment from offset 0, one for each entry of ``placement``.

    Raises InvalidArgument if the topic has no partitions, or already has more, or would have too many.
    """
    check_more_partitions(topic, partitions)
    before = topic.partitions or 0
    first = topic.next_segment
    grown = replace(topic, partitions=partitions, segments_min=partitions, next_segment=first + partitions - before)
    slots = [KeyRange(partition, partition + 1) for partition in range(before, partitions)]
    return MetadataChange(grown, _first_segments(grown, first, slots, placement, now_us))


def check_more_partitions(topic: Topic, partitions: int) -> None:
    """Raise InvalidArgument unless the topic can grow to this number of partitions."""
    if topic.partitions is None:
        raise InvalidArgument(
            f"{topic.name} has key ranges instead of partitions, which split by load: create a topic with partitions"
        )
    check_partitions(partitions)
    if topic.name.name in INTERNAL_TOPICS:
        raise InvalidArgument(
            f"{topic.name} keeps its {topic.partitions} partitions: Kafka's coordinators find their state by them"
        )
    if partitions < topic.partitions:
        raise InvalidArgument(
            f"{topic.name} has {topic.partitions} partitions, {partitions} requested: their number only grows, since "
            "records stay in their partition"
        )


def _first_segments(
    topic: Topic, first: int, ranges: Sequence[KeyRange], placement: Sequence[tuple[str, ...]], now_us: int
) -> tuple[Segment, ...]:
    """Return segments without predecessors, with ids from ``first`` on."""
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
    """Return the topic with the change applied, except its partitions: see :func:`with_partitions`."""
    if change.configs is not None:
        check_configs(change.configs, topic.replicas)
    check_retention(change.retention_s, change.retention_bytes)
    check_target_rates(change.target_bytes_per_s, change.target_records_per_s)
    if topic.partitions is not None and change.scaling is Scaling.AUTO:
        raise InvalidArgument(f"{topic.name} has partitions, which are never split or merged: its scaling stays fixed")
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
    """Apply a change of a limit: None leaves it as it is, 0 removes it."""
    return before if change is None else (change or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEnd:
    """The end of an open segment."""

    segment: Segment
    """The segment as it was while open."""
    end_offset: int
    epoch: int
    """Epoch that its replicas were fenced with, or its own if no fencing was necessary."""
    sequences: Sequence[ProducerSequence]
    """Sequences of the producers that may still wait for acknowledgements, the most recently active first."""
    sequences_complete: bool = True
    """Whether ``sequences`` has all of them."""


def succeed(
    topic: Topic,
    predecessors: Sequence[SegmentEnd],
    *,
    ranges: Sequence[KeyRange],
    placement: Sequence[tuple[str, ...]],
    now_us: int,
) -> MetadataChange:
    """Seal adjacent segments, in the order of the ring, and open a successor for each of ``ranges``.

    The ranges cover the slots of the predecessors. A successor begins at the largest end of the predecessors whose
    slots it shares, so that offsets rise along every key's path. It also begins at or above the low watermark: if
    deleted records were lost before they were flushed, later records are not among the deleted ones.
    """
    for predecessor in predecessors:
        assert predecessor.segment.is_open, f"{predecessor.segment} is already sealed"
        assert predecessor.end_offset >= predecessor.segment.start_offset, (
            f"{predecessor.segment} cannot end at {predecessor.end_offset}: "
            f"it starts at {predecessor.segment.start_offset}"
        )
    before = [predecessor.segment.slots for predecessor in predecessors]
    assert _joined_range(before) == _joined_range(ranges), f"{ranges} do not cover {before}"
    if topic.next_segment + len(ranges) >= SEGMENT_IDS:
        raise ResourceExhausted(f"{topic.name} has used up its {SEGMENT_IDS:,} segment ids: create a new topic")
    successors_opened = []
    for number, (slots, replicas) in enumerate(zip(ranges, placement, strict=True)):
        above = [predecessor for predecessor in predecessors if predecessor.segment.slots.overlaps(slots)]
        successors_opened.append(
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
            successors=tuple(
                child.id for child in successors_opened if child.slots.overlaps(predecessor.segment.slots)
            ),
            sealed_us=now_us,
            problem="",
        )
        for predecessor in predecessors
    ]
    return MetadataChange(replace(topic, next_segment=topic.next_segment + len(ranges)), (*sealed, *successors_opened))


def _joined_range(ranges: Sequence[KeyRange]) -> KeyRange:
    """Return the one range that adjacent ranges in order make up."""
    assert all(a.hi == b.lo for a, b in pairwise(ranges)), f"{ranges} are not adjacent in order"
    return KeyRange(ranges[0].lo, ranges[-1].hi)
