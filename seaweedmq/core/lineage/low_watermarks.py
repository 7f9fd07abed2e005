"""Deleting records below an offset: what a topic's low watermarks become. Pure.

Offsets rise along a partition's lineage, so one mark a partition tells of every segment what of it is deleted. Marks
only rise, and never above what is committed: records that come later are never among what was deleted.
"""

from collections.abc import Mapping

from seaweedmq.errors import InvalidArgument, OutOfRange, Unavailable
from seaweedmq.model.topic import Topic


def check_deletion(topic: Topic, before: Mapping[int, int]) -> None:
    """Raise InvalidArgument unless these are offsets of partitions of the topic."""
    if topic.partitions is None:
        raise InvalidArgument(
            f"{topic.name} has no partitions but key ranges, whose segments split and merge: records below an offset "
            "can be deleted of topics with partitions only, set a retention instead"
        )
    for partition, offset in before.items():
        if not 0 <= partition < topic.partitions:
            raise InvalidArgument(
                f"{topic.name} has no partition {partition}: it has {topic.partitions}, the first is 0"
            )
        if offset < 0:
            raise InvalidArgument(f"offset {offset} of partition {partition} of {topic.name}: give one from 0 on")


def raised(topic: Topic, before: Mapping[int, int], high_watermarks: Mapping[int, int]) -> tuple[int, ...]:
    """The low watermarks of the topic, by partition, once what lies before these offsets is deleted.

    Args:
        high_watermarks: by partition, of those whose primary is known.

    Raises:
        InvalidArgument: see :func:`check_deletion`.
        Unavailable: it is not known how far a partition is.
        OutOfRange: an offset is above the high watermark.
    """
    check_deletion(topic, before)
    marks = dict(enumerate(topic.low_watermarks))
    for partition, offset in before.items():
        if offset <= marks.get(partition, 0):
            continue
        end = high_watermarks.get(partition)
        if end is None:
            raise Unavailable(f"partition {partition} of {topic.name} is being moved: try again")
        if offset > end:
            raise OutOfRange(
                f"partition {partition} of {topic.name} holds records up to offset {end}, not to {offset}: nothing "
                "above what is committed can be deleted"
            )
        marks[partition] = offset
    return tuple(marks.get(partition, 0) for partition in range(max(marks, default=-1) + 1))
