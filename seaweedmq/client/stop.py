"""When a group has read everything that was there: asked of the coordinator, which knows what all members did."""

from collections.abc import Collection, Mapping

from seaweedmq.model.groups import GroupDescription
from seaweedmq.model.topic import TopicName


def is_finished(
    description: GroupDescription, topic: TopicName, stops: Mapping[int, int], known: Collection[int]
) -> bool:
    """Whether the group is through all these segments (id -> stop offset). ``known``: those that retention left."""
    for entry in description.topics:
        if entry.topic == topic:
            committed = {lag.segment: lag.committed or 0 for lag in entry.segments}
            return all(
                segment in entry.finished or segment not in known or committed.get(segment, 0) >= stop
                for segment, stop in stops.items()
            )
    return False
