"""What may be done to segments by hand: the rules, and the ranges that come of it."""

from collections.abc import Sequence

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


def check_unpartitioned(topic: Topic, what: str) -> None:
    """Raise InvalidArgument for a topic whose partitions publishers choose: they stay what they are."""
    if topic.partitions is not None:
        raise InvalidArgument(
            f"{topic.name} has {topic.partitions} partitions, and none of them can be {what}: publishers choose them; "
            "add partitions, or move a segment"
        )


def check_width(segment: Segment) -> None:
    """Raise InvalidArgument unless it can be split at all."""
    if segment.slots.width == 1:
        raise InvalidArgument(
            f"{segment} has slot {segment.slots.lo} only and can not be split: all its keys share that slot"
        )


def halves(segment: Segment, at: int) -> tuple[KeyRange, KeyRange]:
    """``[lo, at)`` and ``[at, hi)``. InvalidArgument: one of them would be empty."""
    check_width(segment)
    slots = segment.slots
    if not slots.lo < at < slots.hi:
        raise InvalidArgument(
            f"can not split {segment}, slots {slots}, at slot {at}: choose from {slots.lo + 1} to {slots.hi - 1}"
        )
    return slots.split(at)


def neighbours(first: Segment, second: Segment) -> tuple[Segment, Segment]:
    """The two in the order of the ring. InvalidArgument: they do not touch."""
    if first.id == second.id:
        raise InvalidArgument(f"{first} can not be merged with itself: name two neighbours")
    lower, upper = sorted((first, second), key=lambda s: s.slots)
    if lower.slots.hi != upper.slots.lo:
        raise InvalidArgument(
            f"{first}, slots {first.slots}, and {second}, slots {second.slots}, are no neighbours: "
            "name two segments where one begins where the other ends"
        )
    return lower, upper


def check_replicas(topic: Topic, brokers: Sequence[str]) -> None:
    """Raise InvalidArgument unless these can be the replicas of a segment, the first ones at least."""
    if not 1 <= len(brokers) <= topic.replicas:
        raise InvalidArgument(
            f"{len(brokers)} brokers named, but segments of {topic.name} have {topic.replicas} replicas: "
            f"name 1 to {topic.replicas}, the primary first; others are chosen by load"
        )
    twice = next((broker for i, broker in enumerate(brokers) if broker in brokers[:i]), None)
    if twice is not None:
        raise InvalidArgument(f"broker {twice} is named twice: replicas of a segment are on different brokers")
