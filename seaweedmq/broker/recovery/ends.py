"""End offsets of a planned topic's segments, shown with the plan."""

import asyncio
from collections.abc import Mapping

from seaweedmq.broker.recovery.plan import PlannedTopic
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.segment import Segment
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.read.recovery import recover_segment

READ_AT_ONCE = 8
"""Number of segments whose files are read in parallel."""


async def end_offsets(store: SegmentStore, topic: PlannedTopic) -> Mapping[int, int | str]:
    """Return the end offset of each segment by id. For an open one it is the end of its files, or an error text.

    Raises StorageFailed if the storage cannot be read.
    """
    limit = asyncio.Semaphore(READ_AT_ONCE)

    async def end(segment: Segment) -> int | str:
        if segment.end_offset is not None:
            return segment.end_offset
        if segment.id in topic.opened:
            return segment.start_offset
        async with limit:
            try:
                return (await recover_segment(store, topic.topic, segment)).end_offset
            except (Corrupt, Unsupported) as error:
                return str(error)

    found = await asyncio.gather(*map(end, topic.segments))
    return {segment.id: each for segment, each in zip(topic.segments, found, strict=True)}
