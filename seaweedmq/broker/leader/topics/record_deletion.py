"""Deletion of the records below an offset: the leader raises the low watermarks of a topic's partitions.

The low watermarks have a key of their own beside the topic's. Every replaced segment rewrites the topic's key, and the
marks of 4,096 partitions are larger than the rest of it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

from seaweedmq.broker.leader.documents import Documents
from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import low_watermarks_to_json
from seaweedmq.core.lineage.low_watermarks import check_deletion, raised
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.errors import Conflict
from seaweedmq.model.description import SegmentStats
from seaweedmq.model.topic import LowWatermarks, Topic, TopicName
from seaweedmq.ports import Compare, Put

log = logging.getLogger(__name__)


class RecordDeletion:
    """The leader's part of ``calls.RaiseLowWatermark``."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        documents: Documents,
        stats: Callable[[TopicName], Awaitable[tuple[SegmentStats, ...]]],
    ) -> None:
        self._metadata = metadata
        self._documents = documents
        self._stats = stats

    async def raise_low_watermark(self, name: TopicName, before: Mapping[int, int], topic_uid: int) -> dict[int, int]:
        """Answer ``calls.RaiseLowWatermark``."""
        check_deletion(self._metadata.topic(name, topic_uid), before)
        for segment in self._metadata.view.open_of(name).values():
            if not before.keys().isdisjoint(range(segment.slots.lo, segment.slots.hi)):
                check_recoverable(segment)
        ends = await self._high_watermarks(name)
        async for attempt in self._metadata.on_conflict():
            with attempt:
                topic = self._metadata.topic(name, topic_uid)
                marks = raised(topic, before, ends)
                if marks != topic.low_watermarks:
                    await self._write(topic, marks)
        low = dict(enumerate(marks))
        return {partition: low.get(partition, 0) for partition in before}

    async def _high_watermarks(self, name: TopicName) -> dict[int, int]:
        """Return the high watermarks by partition. They never fall, so later changes of the segments do not matter."""
        high = {s.segment: s.high_watermark for s in await self._stats(name)}
        segments = self._metadata.view.segments_of(name)
        return {
            partition: end
            for number, end in high.items()
            if number in segments
            for partition in range(segments[number].slots.lo, segments[number].slots.hi)
        }

    async def _write(self, topic: Topic, marks: tuple[int, ...]) -> None:
        name, view = topic.name, self._metadata.view
        key = keys.low_watermarks_key(name)
        revision = await self._metadata.transact(
            [
                Compare(keys.topic_key(name), mod_revision=view.topic_revision(name)),
                Compare(key, mod_revision=view.low_watermarks_revision(name)),
            ],
            [Put(key, low_watermarks_to_json(LowWatermarks(name=name, uid=topic.uid, offsets=marks)))],
        )
        if revision is None:
            raise Conflict(f"records of {name} were deleted concurrently: retry")
        await view.wait_revision(revision)
        await self._documents.write_topic(name)  # a recovery of etcd must not bring the records back
        log.info("records deleted: %s: low watermarks in %d partitions", name, sum(mark > 0 for mark in marks))
