"""When a group has read everything that was there: asked of the coordinator, which knows what all members did."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import DescribeGroup
from seaweedmq.model.messages.groups import GroupDescription
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import is_retryable

STOP_POLL_S = 0.2
LOOK_S = 5.0
"""How often to ask whether retention removed a segment that is still to be read."""


async def wait_finished(
    cluster: Cluster,
    group: str,
    topic: TopicName,
    description: Callable[[bool, Iterable[int]], Awaitable[TopicDescription]],
    stops: Mapping[int, int],
    is_done_here: Callable[[], bool],
) -> None:
    """Return when all members together have reached the stops (segment -> offset).

    Args:
        description: of the topic, refreshed or not, with these segments.
        is_done_here: whether this member has nothing left to do; else the coordinator need not be asked.
    """
    clock = asyncio.get_running_loop().time
    look_at = clock()
    while True:
        if is_done_here():
            try:
                reading = await cluster.call(f"describe group {group}", DescribeGroup(group))
                left = left_to_read(reading, topic, stops)
                if left:
                    is_due = clock() >= look_at
                    known = await description(is_due, left)
                    look_at = clock() + LOOK_S if is_due else look_at
                    left &= {segment.id for segment in known.segments}  # of others, retention left nothing
                if not left:
                    return
            except SeaweedMQError as error:
                # The membership ends when the coordinator is out of reach for too long: that is the deadline here, too.
                if not is_retryable(error):
                    raise
        await asyncio.sleep(STOP_POLL_S)


def left_to_read(description: GroupDescription, topic: TopicName, stops: Mapping[int, int]) -> set[int]:
    """Segments that the group is not through with, of these (id -> stop offset), as far as the coordinator knows."""
    for entry in description.topics:
        if entry.topic == topic:
            committed = {lag.segment: lag.committed or 0 for lag in entry.segments}
            finished = set(entry.finished)
            return {s for s, stop in stops.items() if s not in finished and committed.get(s, 0) < stop}
    return set(stops)
