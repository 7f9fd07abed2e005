"""Tracking of open segments with fewer replicas than their topics request, and choice of the next to repair.

They are replaced one at a time, and a dead broker may leave thousands of them. A segment that has as many replicas as
brokers are available is skipped until more are: otherwise the search would cost the square of the number of segments.
"""

from collections.abc import Callable, Container, Mapping

from seaweedmq.core.lineage.repair import Repair, reinforcements
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName


class ShortSegments:
    """The short segments of a cluster, in the order in which they were added."""

    def __init__(self) -> None:
        self._unseen: dict[SegmentId, None] = {}
        """Segments that may get more replicas."""
        self._settled: dict[SegmentId, None] = {}
        """Segments that had as many replicas as ``_available`` allows."""
        self._available = 0
        """Number of brokers that accepted new segments at the last call of ``next``."""

    def add(self, key: SegmentId) -> None:
        """Add a segment that is short, or that has changed and may still be short."""
        self._settled.pop(key, None)
        self._unseen[key] = None

    def forget(self, key: SegmentId) -> None:
        """Remove a closed segment, whether it is known or not."""
        self._settled.pop(key, None)
        self._unseen.pop(key, None)

    def next(
        self,
        available: int,
        topics: Mapping[TopicName, Topic],
        find: Callable[[SegmentId], Segment | None],
        busy: Container[SegmentId],
    ) -> Repair | None:
        """Return the repair of the first segment, not ``busy``, that could have more replicas; None if there is none.

        ``available`` brokers accept new segments. ``find`` returns an open segment, None if it is closed.
        """
        if available > self._available:
            self._unseen.update(self._settled)
            self._settled.clear()
        self._available = available
        seen: list[SegmentId] = []
        chosen: Repair | None = None
        for key in self._unseen:
            if key in busy:
                continue
            segment = find(key)
            chosen = next(iter(reinforcements([segment] if segment is not None else [], topics, available)), None)
            if chosen is not None:
                break
            seen.append(key)
            if segment is not None and len(segment.replicas) < topics[segment.topic].replicas:
                self._settled[key] = None
        for key in seen:
            del self._unseen[key]
        return chosen
