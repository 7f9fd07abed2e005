"""Visibility of a topic to Kafka clients: its partitions, and whether clients may write to them.

A partition is one slot of a topic with partitions, or one range of a ring that was never cut. Its lineage is a line, so
an offset means one record. Topics whose segments split and merge are hidden, since two branches of a lineage use the
same offsets.
"""

from collections.abc import Iterable

from seaweedmq.model.kafka.group_admin import INTERNAL_TOPICS
from seaweedmq.model.ring import KeyRange, even_ranges
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Scaling, Topic


def shown_slots(topic: Topic, segments: Iterable[Segment]) -> tuple[KeyRange, ...] | None:
    """Return the slots of each partition, by number, from all known segments, open or not; None if Kafka sees none."""
    if topic.partitions is not None:
        return even_ranges(topic.ring, topic.partitions)
    return _ranges(topic) if topic.scaling is Scaling.FIXED and _is_uncut(topic, segments) else None


def is_internal(topic: Topic) -> bool:
    """Whether it is a topic of Kafka itself."""
    return topic.name.name in INTERNAL_TOPICS


def is_writable(topic: Topic) -> bool:
    """Whether producers may choose its partitions; in a ring that would break the order of its keys."""
    return topic.partitions is not None


def why_hidden(topic: Topic, segments: Iterable[Segment]) -> str:
    """Return why a topic without ``shown_slots`` is hidden, and the remedy."""
    if _is_uncut(topic, segments):
        return (
            f"topic {topic.name} has no partitions: its segments split and merge by load, and then an offset means "
            "more than one record. Alter it to --scaling fixed to show it to consumers, or create one with partitions"
        )
    return (
        f"topic {topic.name} has no partitions: its segments split and merge, or did, so that an offset means more "
        "than one record. Read it with SeaweedMQ's own client, or create a topic with partitions"
    )


def seen(topic: Topic, segments: Iterable[Segment]) -> str:
    """Return in words whether Kafka clients read and write the topic, and why not."""
    known = list(segments)
    if shown_slots(topic, known) is None:
        return f"hidden: {why_hidden(topic, known)}"
    shown = f"as {topic.name.name}, where brokers show the namespace {topic.name.namespace}"
    if topic.schema is not None:
        return f"listed {shown}, but neither written nor read: it has columns, and Kafka's records have none"
    if is_internal(topic):
        return f"only read {shown}: its records are those of coordinators"
    if not is_writable(topic):
        return f"only read {shown}: it has no partitions of its own, its keys are spread over a ring"
    return f"written and read {shown}"


def _ranges(topic: Topic) -> tuple[KeyRange, ...]:
    return even_ranges(topic.ring, topic.segments_min)


def _is_uncut(topic: Topic, segments: Iterable[Segment]) -> bool:
    """Whether every segment has the slots of a segment at creation."""
    return {segment.slots for segment in segments} <= set(_ranges(topic))
