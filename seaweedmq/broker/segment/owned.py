"""The open segments that this broker owns: exactly those whose primary it is in the metadata."""

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from seaweedmq.broker.bundles.bundler import Bundler
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
    """The part of a broker incarnation that owned segments use: see ``broker.incarnation``."""

    id: str
    followers: FollowerService
    bundler: Bundler | None
    """Bundler of its records; None on a directory."""

    @property
    def is_over(self) -> bool:
        """Whether the incarnation has ended, so that the broker must not act under its id."""

    def lease_alive(self) -> bool:
        """Whether this broker can prove that it still owns its segments."""

    def lease_left_s(self) -> float:
        """Return the seconds for which the lease surely lives, 0 or less if that is uncertain."""


class OwnedSegments:
    """The open segments of the current incarnation, by topic and id in ``segments``."""

    def __init__(
        self,
        view: ClusterView,
        *,
        incarnation: Callable[[], OwningIncarnation | None],
        context: Callable[[OwningIncarnation], SegmentContext],
    ) -> None:
        self.segments: dict[SegmentId, OpenSegment] = {}
        self._numbers: dict[TopicName, set[int]] = {}
        """The ids of the same segments, by topic name."""
        self._view = view
        self._changed_topics = view.changed_topics()
        self._incarnation = incarnation
        self._context = context
        self._stopping = False

    def of(self, name: TopicName) -> list[OpenSegment]:
        """Return the open segments of one topic, ordered by id."""
        return [self.segments[SegmentId(name, number)] for number in sorted(self._numbers.get(name, ()))]

    async def run(self) -> None:
        """Open and close segments as the metadata changes, until cancelled."""
        while True:
            await self._reconcile(await self._changed_topics.take())

    async def drop(self, reason: SeaweedMQError) -> None:
        """Close all segments at once, because the lease is lost; ``reason`` is what their clients receive."""
        await asyncio.gather(*(segment.close(reason) for segment in self.segments.values()))
        self._clear()

    async def drain(self, timeout_s: float) -> None:
        """Own no more segments, and write and commit the records of the present ones, within ``timeout_s`` seconds."""
        self._stopping = True
        await asyncio.gather(*(segment.drain(timeout_s) for segment in self.segments.values()))
        self._clear()

    async def seal(self, ref: SegmentRef) -> SealedLog:
        """Seal an owned segment: see ``calls.Seal``.

        Raises NotFound if this broker does not own the segment, StaleMetadata if it has another epoch, or others sealed
        it from its files, and StorageFailed if some records could not be written and flushed.
        """
        owned = self.segments.get(ref.key)
        if owned is None or owned.topic.uid != ref.topic_uid:
            raise NotFound(f"{ref}: broker is not its primary, or does not know it yet")
        if owned.segment.epoch != ref.epoch:
            raise StaleMetadata(f"{owned.segment}: segment has epoch {owned.segment.epoch}, not {ref.epoch}")
        return await owned.seal()

    async def _reconcile(self, names: Sequence[TopicName]) -> None:
        """Open and close segments of these topics until they match the metadata."""
        incarnation = self._incarnation()
        if incarnation is None or not self._may_own(incarnation):
            return  # a new incarnation receives all topics
        incarnation.followers.forget_sealed(names)
        ended = self._take_ended(names, incarnation)
        self._open_new(names, incarnation, but=ended)
        if not ended:
            return
        # Close after opening: publishers of ended segments wait for the successors. Segments of a recreated topic open
        # below, once the old ones with the same ids are closed.
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
            self._view.wake()  # clients that asked too early wait for a change of the view

    def _take_ended(
        self, names: Sequence[TopicName], incarnation: OwningIncarnation
    ) -> dict[SegmentId, tuple[OpenSegment, SeaweedMQError]]:
        """Remove the segments that this broker no longer owns, and return each with the reason for its clients.

        The remaining segments get the current settings of their topic.
        """
        ended: dict[SegmentId, tuple[OpenSegment, SeaweedMQError]] = {}
        for key in [SegmentId(name, number) for name in names for number in self._numbers.get(name, ())]:
            owned = self.segments[key]
            segment = self._view.segment(key)
            topic = self._view.topics.get(key.topic)
            if topic is None or segment is None or topic.uid != owned.topic.uid:
                ended[key] = self._take_out(key), NotFound(f"topic {key.topic} was deleted")
            elif not segment.is_open or segment.primary != incarnation.id:
                reason = StaleMetadata(f"segment {segment} was sealed: continue in its successors")
                ended[key] = self._take_out(key), reason
            elif owned.topic is not topic:
                owned.update(topic)
        return ended

    def _may_own(self, incarnation: OwningIncarnation) -> bool:
        """Whether segments may be opened: not while stopping, nor once the lease is lost.

        A segment dropped with the lease would otherwise be opened again, empty, until the view shows it sealed.
        """
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
