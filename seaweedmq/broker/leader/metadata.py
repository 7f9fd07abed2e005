"""Topics and segments as the leader reads and writes them: read from the view, written in guarded transactions.

Every write compares the lock's creation revision, so that a deposed leader changes nothing.
"""

import random
from collections.abc import Sequence

from tenacity import AsyncRetrying

from seaweedmq.codec import keys
from seaweedmq.codec.metadata import segment_to_json, topic_to_json
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.topology import MetadataChange
from seaweedmq.errors import Conflict, NotFound
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Compare, Delete, Put
from seaweedmq.runtime.retrying import after_s, backoff, retrying

CONFLICT_TIMEOUT_S = 10.0


class Metadata:
    """What topics and segments there are, and the only way in which the leader changes them."""

    def __init__(self, view: ClusterView, election: Election, rng: random.Random) -> None:
        self.view = view
        self.election = election
        self._rng = rng

    @property
    def leading(self) -> bool:
        """Whether this broker surely leads now, and has heard of all that was there when it was elected."""
        elected = self.election.revision
        return elected is not None and self.view.revision >= elected

    def topic(self, name: TopicName) -> Topic:
        """NotFound."""
        topic = self.view.topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name}: see `seaweedmq topic list`")
        return topic

    def open_segments(self) -> list[Segment]:
        """Of all topics."""
        return [
            segment
            for name, segments in self.view.open_segments.items()
            if name in self.view.topics
            for segment in segments.values()
        ]

    def is_open(self, segment: Segment) -> bool:
        """Whether it still is. One of the same id that is another may be of a later topic of the same name."""
        known = self.view.segment(segment.key)
        return segment.topic in self.view.topics and known == segment and segment.is_open

    def unchanged(self, segment: Segment) -> Compare:
        """Holds while the segment is as the view has it."""
        revision = self.view.segment_revision(segment.key)
        return Compare(keys.segment_key(segment.topic, segment.id), mod_revision=revision)

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """See ``Election.transact``."""
        return await self.election.transact(compares, then)

    async def write(
        self, change: MetadataChange, compares: Sequence[Compare] = (), also: Sequence[Put | Delete] = ()
    ) -> int:
        """Write the topic and its changed segments, if the topic is as the view has it; the revision.

        Raises:
            Conflict: it is not, or another compare failed.
            Deposed: this broker does not lead.
            Unavailable: it may or may not have happened.
        """
        name = change.topic.name
        revision = await self.transact(
            [Compare(keys.topic_key(name), mod_revision=self.view.topic_revision(name)), *compares],
            [Put(keys.topic_key(name), topic_to_json(change.topic)), *map(segment_put, change.segments), *also],
        )
        if revision is None:
            raise Conflict(f"{name} was changed by somebody else at the same time: try again")
        return revision

    def on_conflict(self) -> AsyncRetrying:
        """Again when the metadata moved on meanwhile."""
        return retrying(backoff(self._rng, 0.02, 0.5), on=Conflict, stop=after_s(CONFLICT_TIMEOUT_S))

    def persistently(self) -> AsyncRetrying:
        """Again, without end, whatever may go away: a primary that is replaced, etcd that is out of reach."""
        return retrying(backoff(self._rng, 0.02, 0.5))


def segment_put(segment: Segment) -> Put:
    """Write one segment."""
    return Put(keys.segment_key(segment.topic, segment.id), segment_to_json(segment))
