"""The sealed segments that this broker maintains. A repeated query is free while the metadata is unchanged."""

from xxhash import xxh3_64_intdigest

from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.allocation import maintainer
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


def is_maintainer(segment: Segment, broker_id: str, view: ClusterView) -> bool:
    """Whether this broker maintains the segment's files: its primary does, or else one of the live brokers."""
    live = list(view.brokers)
    return bool(live) and broker_id == maintainer(
        segment.primary, live, lambda broker: int(xxh3_64_intdigest(f"{broker}/{segment}".encode()))
    )


class MaintainedSegments:
    """The sealed segments of one topic that this broker maintains."""

    def __init__(self, topic: Topic, broker_id: str, view: ClusterView) -> None:
        self.uid = topic.uid
        self._name = topic.name
        self._broker_id = broker_id
        self._view = view
        self._settled: set[int] = set()
        """The ids of segments whose records are all in tables."""
        self._others: set[int] = set()
        """The ids of segments that other brokers maintain."""
        self._due: dict[int, Segment] = {}
        self._seen: tuple[int, tuple[str, ...]] = 0, ()
        """The version of the topic and the live brokers at the last call of ``take``."""

    def take(self) -> list[Segment]:
        """Return the maintained segments that are not settled yet."""
        seen, live = self._seen, tuple(self._view.brokers)
        self._seen = self._view.topic_version(self._name), live
        if seen[1] != live:
            self._others.clear()
        if seen != self._seen:
            known = self._view.segments_of(self._name)
            self._settled &= known.keys()
            self._others &= known.keys()
            self._due = {}
            for number, segment in known.items():
                if segment.is_open or number in self._settled or number in self._others:
                    continue
                if is_maintainer(segment, self._broker_id, self._view):
                    self._due[number] = segment
                else:
                    self._others.add(number)
        return list(self._due.values())

    def settle(self, segment: Segment) -> None:
        """Note that all records of the segment are in tables."""
        self._settled.add(segment.id)
        self._due.pop(segment.id, None)
