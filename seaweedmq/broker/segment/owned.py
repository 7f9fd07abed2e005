"""Which segments this broker owns: what the metadata assigns to it, and nothing else."""

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from seaweedmq.broker.segment.context import SegmentContext
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import NotFound, SeaweedMQError, StaleMetadata
from seaweedmq.model.messages.replication import SealedLog, SegmentRef
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Topic, TopicName

log = logging.getLogger(__name__)


class OwningIncarnation(Protocol):
    """What is looked at of a stay of this broker in the cluster: see ``broker.incarnation``."""

    id: str
    followers: FollowerService

    @property
    def is_over(self) -> bool:
        """Nothing may be said or done under the id any more."""

    def lease_alive(self) -> bool:
        """Whether this broker surely still owns its segments."""


class OwnedSegments:
    """The open segments of the present term, by topic and id: ``segments``."""

    def __init__(
        self,
        view: ClusterView,
        *,
        incarnation: Callable[[], OwningIncarnation | None],
        context: Callable[[OwningIncarnation], SegmentContext],
    ) -> None:
        self.segments: dict[SegmentId, OpenSegment] = {}
        self._numbers: dict[TopicName, set[int]] = {}
        """The same by topic."""
        self._view = view
        self._news = view.news()
        self._incarnation = incarnation
        self._context = context
        self._stopping = False

    def of(self, name: TopicName) -> list[OpenSegment]:
        """Those of one topic, by id."""
        return [self.segments[SegmentId(name, number)] for number in sorted(self._numbers.get(name, ()))]

    async def run(self) -> None:
        """Follow the metadata, until cancelled."""
        while True:
            await self._reconcile(await self._news.take())

    async def drop(self, reason: SeaweedMQError) -> None:
        """The lease is lost: serve nothing any more, and finish nothing."""
        await asyncio.gather(*(segment.close(reason) for segment in self.segments.values()))
        self._clear()

    async def drain(self, timeout_s: float) -> None:
        """Take nothing more, now and later; store and commit what is there."""
        self._stopping = True
        await asyncio.gather(*(segment.drain(timeout_s) for segment in self.segments.values()))
        self._clear()

    async def seal(self, ref: SegmentRef) -> SealedLog:
        """See ``model.calls.Seal``. NotFound, StaleMetadata."""
        owned = self.segments.get(ref.key)
        if owned is None or owned.topic.uid != ref.topic_uid:
            raise NotFound(f"{ref}: this broker is not its primary, or not yet")
        if owned.segment.epoch != ref.epoch:
            raise StaleMetadata(f"{owned.segment}: it has epoch {owned.segment.epoch}, not {ref.epoch}")
        return await owned.seal()

    async def _reconcile(self, names: Sequence[TopicName]) -> None:
        """Own of these topics what the metadata say now."""
        incarnation = self._incarnation()
        if incarnation is None or not self._may_own(incarnation):
            return  # a term that begins is told of everything
        incarnation.followers.forget_sealed(names)
        ended = self._take_ended(names, incarnation)
        self._open_new(names, incarnation, but=ended)
        if not ended:
            return
        # Only now: publishers of what has ended wait for its successors. A topic of the same name waits for its end.
        await asyncio.gather(*(owned.close(reason) for owned, reason in ended.values()))
        now = self._incarnation()
        if now is not None and self._may_own(now):
            self._open_new(names, now, but=())

    def _open_new(self, names: Sequence[TopicName], incarnation: OwningIncarnation, but: Container[SegmentId]) -> None:
        before = len(self.segments)
        for name in names:
            topic = self._view.topics.get(name)
            if topic is None:
                continue
            for segment in self._view.open_of(name).values():
                key = segment.key
                if segment.primary == incarnation.id and key not in self.segments and key not in but:
                    self._own(topic, segment, incarnation)
        if len(self.segments) > before:
            self._view.nudge()  # clients may have come before, and wait for what is served here to change

    def _take_ended(
        self, names: Sequence[TopicName], incarnation: OwningIncarnation
    ) -> dict[SegmentId, tuple[OpenSegment, SeaweedMQError]]:
        """Take out what this broker owns no longer, with the reason for its clients; the others get their topic's
        settings as they are now."""
        ended: dict[SegmentId, tuple[OpenSegment, SeaweedMQError]] = {}
        for key in [SegmentId(name, number) for name in names for number in self._numbers.get(name, ())]:
            owned = self.segments[key]
            segment = self._view.segment(key)
            topic = self._view.topics.get(key.topic)
            if topic is None or segment is None or topic.uid != owned.topic.uid:
                ended[key] = self._take_out(key), NotFound(f"topic {key.topic} was deleted")
            elif not segment.is_open or segment.primary != incarnation.id:
                reason = StaleMetadata(f"segment {segment} was sealed: go on in its successors")
                ended[key] = self._take_out(key), reason
            elif owned.topic is not topic:
                owned.update(topic)
        return ended

    def _may_own(self, incarnation: OwningIncarnation) -> bool:
        """Not while stopping, nor once the lease is lost: what was dropped then would be opened again, empty, until the
        view shows it sealed."""
        return not self._stopping and not incarnation.is_over

    def _own(self, topic: Topic, segment: Segment, incarnation: OwningIncarnation) -> None:
        owned = self.segments[segment.key] = OpenSegment(topic, segment, self._context(incarnation))
        self._numbers.setdefault(topic.name, set()).add(segment.id)
        owned.start()

    def _take_out(self, key: SegmentId) -> OpenSegment:
        numbers = self._numbers[key.topic]
        numbers.remove(key.number)
        if not numbers:
            del self._numbers[key.topic]
        return self.segments.pop(key)

    def _clear(self) -> None:
        self.segments.clear()
        self._numbers.clear()
