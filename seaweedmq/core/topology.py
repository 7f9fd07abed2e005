"""Changes of segments as values: a new topic's first segments, and sealed segments with their successors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from seaweedmq.errors import InvalidArgument, ResourceExhausted
from seaweedmq.model.ring import KeyRange, even_ranges
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import Durability, Topic, TopicChange, TopicSpec

SEGMENTS_PER_TOPIC_MAX = 4_096
REPLICAS_MAX = 16
SEALED_SEQUENCES_MAX = 1_000
"""Keeps a sealed segment's record far below etcd's 1.5 MiB a request."""


@dataclass(frozen=True, slots=True)
class Change:
    """Metadata to be written in one transaction."""

    topic: Topic
    segments: tuple[Segment, ...]


def check_spec(spec: TopicSpec) -> None:
    """Raise InvalidArgument unless the numbers of the spec are within the limits."""
    if not 1 <= spec.segments <= SEGMENTS_PER_TOPIC_MAX:
        raise InvalidArgument(f"{spec.segments} segments asked for: a topic has from 1 to {SEGMENTS_PER_TOPIC_MAX}")
    if not 1 <= spec.replicas <= REPLICAS_MAX:
        raise InvalidArgument(f"{spec.replicas} replicas asked for: a topic has from 1 to {REPLICAS_MAX}")
    check_retention(spec.retention_s, spec.retention_bytes)


def check_retention(retention_s: float | None, retention_bytes: int | None) -> None:
    """Raise InvalidArgument for a negative limit."""
    if retention_s is not None and not 0 <= retention_s < float("inf"):
        raise InvalidArgument(f"retention of {retention_s} s: give a time above 0, or 0 for no limit")
    if retention_bytes is not None and retention_bytes < 0:
        raise InvalidArgument(f"retention of {retention_bytes} bytes: give a size above 0, or 0 for no limit")


def new_topic(spec: TopicSpec, *, uid: int, now_us: int, placement: Sequence[tuple[str, ...]]) -> Change:
    """The topic and its first segments, one for each entry of ``placement``, cutting the ring evenly."""
    check_spec(spec)
    durability = spec.durability or (Durability.STORED if spec.replicas == 1 else Durability.REPLICATED)
    topic = Topic(
        name=spec.name,
        uid=uid,
        replicas=spec.replicas,
        durability=durability,
        scaling=spec.scaling,
        schema=spec.schema,
        retention_s=spec.retention_s or None,
        retention_bytes=spec.retention_bytes or None,
        next_segment=spec.segments,
        created_us=now_us,
    )
    segments = tuple(
        Segment(
            topic=spec.name, id=number, slots=slots, epoch=1, state=SegmentState.OPEN, replicas=tuple(placement[number])
        )
        for number, slots in enumerate(even_ranges(spec.segments))
    )
    return Change(topic, segments)


def altered(topic: Topic, change: TopicChange) -> Topic:
    """The topic with the change applied."""
    check_retention(change.retention_s, change.retention_bytes)
    return replace(
        topic,
        durability=change.durability or topic.durability,
        scaling=change.scaling or topic.scaling,
        retention_s=topic.retention_s if change.retention_s is None else (change.retention_s or None),
        retention_bytes=topic.retention_bytes if change.retention_bytes is None else (change.retention_bytes or None),
    )


def succeed(
    topic: Topic,
    parent: Segment,
    *,
    end_offset: int,
    epoch: int,
    sequences: Sequence[ProducerSequence],
    ranges: Sequence[KeyRange],
    placement: Sequence[tuple[str, ...]],
) -> Change:
    """Seal ``parent`` at ``end_offset`` and open a successor for each of ``ranges``, which must partition its own.

    ``epoch`` is the one its replicas were fenced with, or its own if nobody had to be fenced.
    ``sequences`` come the most recently active first.
    """
    assert parent.is_open, f"{parent} is sealed already"
    assert end_offset >= parent.start_offset, (
        f"{parent} can not end at {end_offset}, it starts at {parent.start_offset}"
    )
    assert ranges[0].lo == parent.slots.lo
    assert ranges[-1].hi == parent.slots.hi
    assert all(a.hi == b.lo for a, b in pairwise(ranges))
    if topic.next_segment + len(ranges) >= 10**8:
        raise ResourceExhausted(f"{topic.name} has used up its 100,000,000 segment ids: create a new topic")
    children = tuple(
        Segment(
            topic=topic.name,
            id=topic.next_segment + number,
            slots=slots,
            epoch=1,
            state=SegmentState.OPEN,
            replicas=tuple(placement[number]),
            predecessors=(parent.id,),
            start_offset=end_offset,
        )
        for number, slots in enumerate(ranges)
    )
    sealed = replace(
        parent,
        state=SegmentState.SEALED,
        epoch=epoch,
        end_offset=end_offset,
        sequences=tuple(sequences)[:SEALED_SEQUENCES_MAX],
        successors=tuple(child.id for child in children),
    )
    return Change(replace(topic, next_segment=topic.next_segment + len(ranges)), (sealed, *children))
