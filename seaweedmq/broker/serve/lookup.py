"""Lookup of segments: whether this broker serves one, as its primary or because it is sealed, or which broker does."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import Corrupt, NotFound, StaleMetadata
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName, topic_recreated

METADATA_LAG_S = 2.0
"""Longest wait in seconds for a segment that the view lacks: clients may learn of a new segment before this broker."""
SCHEMAS_MAX = 256
"""Number of decoded schemas in the cache."""


@dataclass(frozen=True, slots=True)
class ServedSegment:
    """A segment that this broker serves: an open one as its primary, with ``open`` set, or a sealed one."""

    topic: Topic
    segment: Segment
    open: OpenSegment | None

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed; the end offset of a sealed segment."""
        if self.open is not None:
            return self.open.log.committed
        assert self.segment.end_offset is not None
        return self.segment.end_offset

    @property
    def low_watermark(self) -> int:
        """The offset below which records were deleted manually. It may be above the segment's end."""
        return self.topic.low_watermark(self.segment.slots)


class Lookup:
    """A lookup of segments in the view and among those that this broker owns."""

    def __init__(
        self,
        view: ClusterView,
        owned: Mapping[SegmentId, OpenSegment],
        sealed: SealedProducers,
        check_space: Callable[[TopicName], None] = lambda _: None,
    ) -> None:
        """Create a lookup. ``check_space`` raises StorageFull while storage has no room for records of a topic."""
        self.check_space = check_space
        self.view = view
        self.sealed_producers = sealed
        self._owned = owned

    async def segment(self, name: TopicName, number: int, uid: int = 0) -> ServedSegment:
        """Return a segment that this broker serves, waiting up to ``METADATA_LAG_S`` for the view to show it.

        The uid is that of the topic; 0 for any.

        Raises:
            NotFound: If the topic or segment does not exist, or retention removed the segment.
            StaleMetadata: If another broker is the primary, or this one has lost the segment.
            Corrupt: If the segment cannot be recovered; names the file.
        """
        try:
            async with asyncio.timeout(METADATA_LAG_S):
                while True:
                    seen = self.view.changes
                    found = self.try_segment(name, number, uid)
                    if found:
                        return found
                    if self._is_pruned(name, number) or self._has_problem(name, number):
                        break
                    await self.view.wait_change(seen)
        except TimeoutError:
            pass
        raise self._missing(name, number, uid)

    def _is_pruned(self, name: TopicName, number: int) -> bool:
        topic = self.view.topics.get(name)
        return topic is not None and number in topic.pruned

    def _has_problem(self, name: TopicName, number: int) -> bool:
        segment = self.view.segment(SegmentId(name, number))
        return segment is not None and bool(segment.problem)

    def try_segment(self, name: TopicName, number: int, uid: int = 0) -> ServedSegment | None:
        """Return what :meth:`segment` returns, without waiting; None if this broker does not serve the segment."""
        topic = self.view.topics.get(name)
        segment = self.view.segment(SegmentId(name, number))
        if topic is None or segment is None or uid not in (0, topic.uid):
            return None
        if not segment.is_open:
            return ServedSegment(topic, segment, None)
        owned = self._owned.get(SegmentId(name, number))
        # A segment that is being closed may belong to an earlier topic of this name.
        serves = owned is not None and not owned.rejection and owned.topic.uid == topic.uid
        return ServedSegment(topic, segment, owned) if serves else None

    def schema(self, topic: Topic) -> pa.Schema | None:
        """Return the topic's Arrow schema; None for a topic of plain records."""
        return None if topic.schema is None else _decoded(topic.schema)

    def _missing(self, name: TopicName, number: int, uid: int) -> NotFound | StaleMetadata | Corrupt:
        topic = self.view.topics.get(name)
        if topic is None:
            return NotFound(f"there is no topic {name}: create it with `seaweedmq topic create {name}`")
        if uid not in (0, topic.uid):
            return topic_recreated(name)
        segment = self.view.segment(SegmentId(name, number))
        if self._is_pruned(name, number):
            return NotFound(
                f"segment {number} of {name} was sealed long ago and its records were removed by retention: "
                "continue with the remaining segments, from the earliest"
            )
        if segment is None:
            return NotFound(f"topic {name} has no segment {number}: refresh the metadata")
        if segment.problem:
            return Corrupt(segment.problem)
        primary = self.view.brokers.get(segment.primary)
        where = f"broker {primary.id} at {primary.address}" if primary else f"unregistered broker {segment.primary}"
        return StaleMetadata(f"segment {segment} is served by {where}, not by this one: refresh the metadata")


_decoded = lru_cache(maxsize=SCHEMAS_MAX)(schema_from_bytes)
