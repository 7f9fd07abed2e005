"""Open segments with fewer replicas than their topics ask for, and the next of them that could have more.

They are replaced one at a time, and a dead broker may leave thousands of them. So a segment that has as many replicas
as brokers are available is not looked at again before more are, or looks would cost the square of their number.
"""

from collections.abc import Callable, Container, Mapping

from seaweedmq.core.lineage.repair import Repair, reinforcements
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName


class ShortSegments:
    """The short segments of a cluster, in the order in which they were added."""

    def __init__(self) -> None:
        self._unseen: dict[SegmentId, None] = {}
        """Segments that may be improved."""
        self._settled: dict[SegmentId, None] = {}
        """Segments that had as many replicas as ``_available`` allows."""
        self._available = 0
        """Brokers that took new segments at the last look."""

    def add(self, key: SegmentId) -> None:
        """Note that a segment is short, or has changed and may still be."""
        self._settled.pop(key, None)
        self._unseen[key] = None

    def forget(self, key: SegmentId) -> None:
        """Forget a segment that is closed, whether it is known or not."""
        self._settled.pop(key, None)
        self._unseen.pop(key, None)

    def next(
        self,
        available: int,
        topics: Mapping[TopicName, Topic],
        find: Callable[[SegmentId], Segment | None],
        busy: Container[SegmentId],
    ) -> Repair | None:
        """Return how the first segment is replaced that could have more replicas; None: no segment could.

        Args:
            available: brokers that take new segments.
            topics: those of the segments.
            find: returns an open segment; None if it is closed.
            busy: segments that are passed over now.
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
