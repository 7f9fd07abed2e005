"""Which segments this broker owns: what the metadata assigns to it, and nothing else."""

import asyncio
import logging
from collections.abc import Callable

from seaweedmq.broker.segment import OpenSegment, SegmentContext
from seaweedmq.broker.term import Term
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import NotFound, SeaweedMQError, StaleMetadata
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName

log = logging.getLogger(__name__)


class Ownership:
    """The open segments of the present term, by topic and id: ``segments``."""

    def __init__(
        self,
        *,
        view: ClusterView,
        open_segments_max: int,
        term: Callable[[], Term | None],
        context: Callable[[Term], SegmentContext],
    ) -> None:
        self.segments: dict[tuple[TopicName, int], OpenSegment] = {}
        self._view = view
        self._open_segments_max = open_segments_max
        self._term = term
        self._context = context
        self._stopping = False

    async def run(self) -> None:
        """Follow the metadata, until cancelled."""
        while True:
            seen = self._view.changes
            await self._reconcile()
            await self._view.wait_change(seen)

    async def drop(self, reason: SeaweedMQError) -> None:
        """The lease is lost: serve nothing any more, and finish nothing."""
        await asyncio.gather(*(segment.close(reason) for segment in self.segments.values()))
        self.segments.clear()

    async def drain(self, timeout_s: float) -> None:
        """Take nothing more, now and later; store and commit what is there."""
        self._stopping = True
        await asyncio.gather(*(segment.drain(timeout_s) for segment in self.segments.values()))
        self.segments.clear()

    async def _reconcile(self) -> None:
        term = self._term()
        if term is None or not self._may_own(term):
            return
        term.followers.forget_sealed()
        for key, owned in list(self.segments.items()):
            segment = self._view.segments.get(key[0], {}).get(key[1])
            topic = self._view.topics.get(key[0])
            if topic is None or segment is None or topic.uid != owned.topic.uid:
                self.segments.pop(key, None)  # the loss of the lease may drop everything while one is closed
                await owned.close(NotFound(f"topic {key[0]} was deleted"))
            elif not segment.is_open or segment.primary != term.id:
                self.segments.pop(key, None)
                await owned.close(StaleMetadata(f"segment {segment} was sealed: go on in its successors"))
            elif owned.topic is not topic:
                owned.update(topic)
        term = self._term()
        if term is None or not self._may_own(term):
            return
        for name, segments in self._view.segments.items():
            topic = self._view.topics.get(name)
            for segment in segments.values() if topic else ():
                if segment.is_open and segment.primary == term.id and (name, segment.id) not in self.segments:
                    assert topic is not None
                    self._own(topic, segment, term)

    def _may_own(self, term: Term) -> bool:
        """Not while stopping, nor once the lease is lost: what was dropped then would be opened again, empty, until the
        view shows it sealed."""
        return not self._stopping and not term.session.lost.is_set()

    def _own(self, topic: Topic, segment: Segment, term: Term) -> None:
        if len(self.segments) >= self._open_segments_max:
            log.error("%s not opened: open_segments_max is %d", segment, self._open_segments_max)
            return
        owned = self.segments[segment.topic, segment.id] = OpenSegment(topic, segment, self._context(term))
        owned.start()
