"""Deletion of records below an offset: the rules for a topic's low watermarks.

Offsets rise along a partition's lineage, so one low watermark per partition defines the deleted records of every
segment. Low watermarks only rise, and never above the high watermark: later records are never deleted.
"""

from collections.abc import Mapping

from seaweedmq.errors import InvalidArgument, OutOfRange, Unavailable
from seaweedmq.model.topic import Topic


def check_deletion(topic: Topic, before: Mapping[int, int]) -> None:
    """Check that a topic's records can be deleted below these offsets, by partition.

    Raises InvalidArgument if the topic has no partitions, or lacks one of these, or an offset is negative.
    """
    if topic.partitions is None:
        raise InvalidArgument(
            f"{topic.name} has key ranges instead of partitions, whose segments split and merge: only topics with "
            "partitions can delete records below an offset, set a retention instead"
        )
    for partition, offset in before.items():
        if not 0 <= partition < topic.partitions:
            raise InvalidArgument(
                f"{topic.name} has no partition {partition}: it has {topic.partitions} partitions, the first is 0"
            )
        if offset < 0:
            raise InvalidArgument(f"offset {offset} of partition {partition} of {topic.name}: use an offset from 0 on")


def raised(topic: Topic, before: Mapping[int, int], high_watermarks: Mapping[int, int]) -> tuple[int, ...]:
    """Return the low watermarks of the topic, by partition, after the deletion below the offsets ``before``.

    ``high_watermarks`` has the partitions whose primary is known. Raises InvalidArgument as :func:`check_deletion`,
    Unavailable if the high watermark of a partition is unknown, and OutOfRange if an offset is above it.
    """
    check_deletion(topic, before)
    marks = dict(enumerate(topic.low_watermarks))
    for partition, offset in before.items():
        if offset <= marks.get(partition, 0):
            continue
        end = high_watermarks.get(partition)
        if end is None:
            raise Unavailable(f"partition {partition} of {topic.name} is being moved: retry")
        if offset > end:
            raise OutOfRange(
                f"partition {partition} of {topic.name} has committed records up to offset {end}, not to {offset}: "
                "only committed records can be deleted"
            )
        marks[partition] = offset
    return tuple(marks.get(partition, 0) for partition in range(max(marks, default=-1) + 1))
