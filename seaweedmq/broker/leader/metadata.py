"""Topics and segments as the leader reads and writes them: read from the view, written in guarded transactions.

Every write compares the lock's creation revision, so that a deposed leader changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from seaweedmq.codec import keys
from seaweedmq.codec.metadata import segment_to_json, topic_to_json
from seaweedmq.coordination.election import Election
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.topology import Change
from seaweedmq.errors import NotFound, Unavailable
from seaweedmq.model.description import ALL, TopicDescription, Which
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Compare, Delete, Put

CONFLICT_TIMEOUT_S = 10.0
SEALED_PER_PAGE = 250
"""Sealed segments in one description: a few milliseconds of the event loop."""


class Conflict(Unavailable):
    """The metadata moved on between reading and writing."""


class Metadata:
    """What topics and segments there are, and the only way in which the leader changes them."""

    def __init__(self, view: ClusterView, election: Election) -> None:
        self.view = view
        self._election = election

    @property
    def leading(self) -> bool:
        """Whether this broker surely leads now, and has heard of all that was there when it was elected."""
        elected = self._election.revision
        return elected is not None and self.view.revision >= elected

    def topic(self, name: TopicName) -> Topic:
        """NotFound."""
        topic = self.view.topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name}: see `seaweedmq topic list`")
        return topic

    def description(self, name: TopicName, which: Which = ALL) -> TopicDescription:
        """The topic with its segments, of many sealed ones a page; NotFound."""
        topic, view = self.topic(name), self.view
        known, opened = view.segments.get(name, {}), view.open_segments.get(name, {})
        chosen = {number: known[number] for number in which.ids if number in known}
        if which.open:
            chosen |= opened
        more_above = None
        if which.sealed_above is not None:
            above = which.sealed_above
            sealed = sorted(n for n in known if n > above and n not in opened)
            if len(sealed) > SEALED_PER_PAGE:
                sealed = sealed[:SEALED_PER_PAGE]
                more_above = sealed[-1]
            chosen |= {number: known[number] for number in sealed}
        return TopicDescription(
            topic=topic,
            segments=tuple(_described(chosen[number]) for number in sorted(chosen)),
            addresses={broker.id: broker.address for broker in view.brokers.values()},
            revision=view.topic_revision(name),
            more_above=more_above,
        )

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
        known = self.view.segments.get(segment.topic, {}).get(segment.id)
        return segment.topic in self.view.topics and known == segment and segment.is_open

    def unchanged(self, segment: Segment) -> Compare:
        """Holds while the segment is as the view has it."""
        revision = self.view.segment_revision(segment.topic, segment.id)
        return Compare(keys.segment_key(segment.topic, segment.id), mod_revision=revision)

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """See ``Election.transact``."""
        return await self._election.transact(compares, then)

    async def write(self, change: Change, compares: Sequence[Compare] = (), also: Sequence[Put | Delete] = ()) -> int:
        """Write the topic and its changed segments, if the topic is as the view has it; the revision.

        Raises:
            Conflict: it is not, or another compare failed.
            Fenced: this broker does not lead.
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
        return AsyncRetrying(
            retry=retry_if_exception_type(Conflict),
            wait=wait_random_exponential(multiplier=0.02, max=0.5),
            stop=stop_after_delay(CONFLICT_TIMEOUT_S),
            reraise=True,
        )


def _described(segment: Segment) -> Segment:
    """Without what brokers alone need."""
    if segment.sequences or segment.sequences_complete:
        return replace(segment, sequences=(), sequences_complete=False)
    return segment


def segment_put(segment: Segment) -> Put:
    """Write one segment."""
    return Put(keys.segment_key(segment.topic, segment.id), segment_to_json(segment))
