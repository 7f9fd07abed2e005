"""When a group has read everything that was there: asked of the coordinator, which knows what all members did."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from seaweedmq.client.cluster import Cluster
from seaweedmq.model.groups import GroupDescription
from seaweedmq.model.protocol import TopicDescription
from seaweedmq.model.topic import TopicName

STOP_POLL_S = 0.2


async def until_finished(
    cluster: Cluster,
    group: str,
    description: Callable[[bool], Awaitable[TopicDescription]],
    stops: Mapping[int, int],
    is_done_here: Callable[[], bool],
) -> None:
    """Return when all members together have reached the stops (segment -> offset).

    Args:
        description: of the topic, refreshed or not.
        is_done_here: whether this member has nothing left to do; else the coordinator need not be asked.
    """
    while True:
        if is_done_here():
            reading = await cluster.call(f"describe group {group}", lambda api: api.describe_group(group))
            topic = await description(False)
            if is_finished(reading, topic.topic.name, stops, {segment.id for segment in topic.segments}):
                return
        await asyncio.sleep(STOP_POLL_S)


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
