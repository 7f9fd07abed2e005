"""Topics and segments as the leader reads and writes them: from the view, and in guarded transactions.

Every write compares the lock's creation revision, so that a deposed leader changes nothing.
"""

import random
from collections.abc import Sequence

from tenacity import AsyncRetrying

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import segment_to_json, topic_to_json
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.topology import MetadataChange
from seaweedmq.errors import Conflict, NotFound
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName, topic_recreated
from seaweedmq.ports import Compare, Delete, Put
from seaweedmq.runtime.retrying import after_s, backoff, retrying

CONFLICT_TIMEOUT_S = 10.0


class Metadata:
    """Topics and segments, and the only path by which the leader changes them."""

    def __init__(self, view: ClusterView, election: Election, rng: random.Random) -> None:
        self.view = view
        self.election = election
        self._rng = rng

    @property
    def leading(self) -> bool:
        """Whether this broker surely leads now, and its view has all metadata from before its election."""
        elected = self.election.revision
        return elected is not None and self.view.revision >= elected

    def topic(self, name: TopicName, uid: int = 0) -> Topic:
        """Return a topic; raise NotFound if it does not exist, or has another uid than the given one."""
        topic = self.view.topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name}: see `seaweedmq topic list`")
        if uid not in (0, topic.uid):
            raise topic_recreated(name)
        return topic

    def open_segments(self) -> list[Segment]:
        """Return the open segments of all topics."""
        return [
            segment
            for name, segments in self.view.open_segments.items()
            if name in self.view.topics
            for segment in segments.values()
        ]

    def is_open(self, segment: Segment) -> bool:
        """Whether the segment is open and unchanged. A recreated topic may have another segment of the same id."""
        known = self.view.segment(segment.key)
        return segment.topic in self.view.topics and known == segment and segment.is_open

    def unchanged(self, segment: Segment) -> Compare:
        """Return a compare that holds while the segment is as the view has it."""
        revision = self.view.segment_revision(segment.key)
        return Compare(keys.segment_key(segment.topic, segment.id), mod_revision=revision)

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """Run ``Election.transact``."""
        return await self.election.transact(compares, then)

    async def write(
        self, change: MetadataChange, compares: Sequence[Compare] = (), also: Sequence[Put | Delete] = ()
    ) -> int:
        """Write the topic and its changed segments, if the topic is as the view has it; return the write's revision.

        Raises Conflict if the topic changed or another compare failed, Deposed if this broker does not lead, and
        Unavailable if the outcome is unknown.
        """
        name = change.topic.name
        revision = await self.transact(
            [Compare(keys.topic_key(name), mod_revision=self.view.topic_revision(name)), *compares],
            [Put(keys.topic_key(name), topic_to_json(change.topic)), *map(segment_put, change.segments), *also],
        )
        if revision is None:
            raise Conflict(f"{name} changed concurrently: retry")
        return revision

    def on_conflict(self) -> AsyncRetrying:
        """Return a retrier for conflicts with concurrent changes, limited to ``CONFLICT_TIMEOUT_S``."""
        return retrying(backoff(self._rng, 0.02, 0.5), on=Conflict, stop=after_s(CONFLICT_TIMEOUT_S))

    def persistently(self) -> AsyncRetrying:
        """Return a retrier without end for transient failures: a primary being replaced, an unreachable etcd."""
        return retrying(backoff(self._rng, 0.02, 0.5))


def segment_put(segment: Segment) -> Put:
    """Return the write of one segment."""
    return Put(keys.segment_key(segment.topic, segment.id), segment_to_json(segment))
