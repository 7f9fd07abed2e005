"""The rules for splitting, merging and moving segments manually, and the resulting ranges."""

from collections.abc import Sequence

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


def check_unpartitioned(topic: Topic, what: str) -> None:
    """Raise InvalidArgument if the topic has partitions, which publishers choose and which never change.

    ``what`` is the action as a past participle, for the message.
    """
    if topic.partitions is not None:
        raise InvalidArgument(
            f"{topic.name} has {topic.partitions} partitions, which publishers choose and which cannot be {what}: "
            "add partitions, or move a segment"
        )


def check_width(segment: Segment) -> None:
    """Raise InvalidArgument if the segment has a single slot and cannot be split."""
    if segment.slots.width == 1:
        raise InvalidArgument(
            f"{segment} has only slot {segment.slots.lo} and cannot be split: all its keys share that slot"
        )


def halves(segment: Segment, at: int) -> tuple[KeyRange, KeyRange]:
    """Return the ranges ``[lo, at)`` and ``[at, hi)``, or raise InvalidArgument if one would be empty."""
    check_width(segment)
    slots = segment.slots
    if not slots.lo < at < slots.hi:
        raise InvalidArgument(
            f"cannot split {segment}, slots {slots}, at slot {at}: choose from {slots.lo + 1} to {slots.hi - 1}"
        )
    return slots.split(at)


def neighbors(first: Segment, second: Segment) -> tuple[Segment, Segment]:
    """Return the two segments in the order of the ring, or raise InvalidArgument if they are not adjacent."""
    if first.id == second.id:
        raise InvalidArgument(f"{first} cannot be merged with itself: name two adjacent segments")
    lower, upper = sorted((first, second), key=lambda s: s.slots)
    if lower.slots.hi != upper.slots.lo:
        raise InvalidArgument(
            f"{first}, slots {first.slots}, and {second}, slots {second.slots}, are not adjacent: "
            "name two segments where one begins where the other ends"
        )
    return lower, upper


def check_replicas(topic: Topic, brokers: Sequence[str]) -> None:
    """Raise InvalidArgument unless ``brokers`` can be the first replicas of a segment, or all of them."""
    if not 1 <= len(brokers) <= topic.replicas:
        raise InvalidArgument(
            f"{len(brokers)} brokers named, but segments of {topic.name} have {topic.replicas} replicas: "
            f"name 1 to {topic.replicas}, the primary first; others are chosen by load"
        )
    twice = next((broker for i, broker in enumerate(brokers) if broker in brokers[:i]), None)
    if twice is not None:
        raise InvalidArgument(f"broker {twice} is named twice: replicas of a segment need different brokers")
