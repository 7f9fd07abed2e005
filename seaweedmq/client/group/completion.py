"""Detection that a group has read all records up to given offsets, by querying the coordinator."""

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
"""Interval between two queries of the group."""
CHECK_INTERVAL_S = 5.0
"""Interval between two queries of the topic: retention may remove a segment that is still to be read."""


async def wait_finished(
    cluster: Cluster,
    group: str,
    topic: TopicName,
    description: Callable[[bool, Iterable[int]], Awaitable[TopicDescription]],
    stops: Mapping[int, int],
    is_done_here: Callable[[], bool],
) -> None:
    """Return when all members together have reached the stops, the offsets by segment.

    No query is needed while ``is_done_here`` is false: this member has something left to do. ``description`` returns
    the topic, refreshed or cached, with the given segments.
    """
    clock = asyncio.get_running_loop().time
    check_at = clock()
    while True:
        if is_done_here():
            try:
                reading = await cluster.call(f"describe group {group}", DescribeGroup(group))
                left = left_to_read(reading, topic, stops)
                if left:
                    is_due = clock() >= check_at
                    known = await description(is_due, left)
                    check_at = clock() + CHECK_INTERVAL_S if is_due else check_at
                    left &= {segment.id for segment in known.segments}  # Retention removed the others.
                if not left:
                    return
            except SeaweedMQError as error:
                # No deadline here: the membership ends when the coordinator is unreachable for too long.
                if not is_retryable(error):
                    raise
        await asyncio.sleep(STOP_POLL_S)


def left_to_read(description: GroupDescription, topic: TopicName, stops: Mapping[int, int]) -> set[int]:
    """Return the segments whose stop the group has not reached, as far as the coordinator knows."""
    for entry in description.topics:
        if entry.topic == topic:
            committed = {lag.segment: lag.committed or 0 for lag in entry.segments}
            finished = set(entry.finished)
            return {s for s, stop in stops.items() if s not in finished and committed.get(s, 0) < stop}
    return set(stops)
