"""Topic descriptions and statistics: segments from the metadata, and offsets and rates from their primaries."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace

from seaweedmq.broker.segment.owned import OwnedSegments
from seaweedmq.broker.serve.start_offsets import StartOffsets
from seaweedmq.codec.state import keys
from seaweedmq.coordination.description import describe
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import InvalidArgument, NotFound, Unavailable
from seaweedmq.model.description import (
    IDS_MAX,
    OPEN,
    AwaitedTopic,
    SegmentSelection,
    SegmentStats,
    TopicDescription,
    UpdatedTopics,
)
from seaweedmq.model.messages.calls import AWAIT_S_MAX, AWAITED_AT_ONCE_MAX, LocalStats
from seaweedmq.model.topic import Topic, TopicName, topic_recreated
from seaweedmq.ports import BrokerApi, MetaStore


class Descriptions:
    """Descriptions and statistics of all topics, for clients and for other brokers."""

    def __init__(
        self,
        *,
        view: ClusterView,
        meta: MetaStore,
        owned: OwnedSegments,
        starts: StartOffsets,
        dial: Callable[[str], BrokerApi],
        address: str,
        timeout_s: float,
        frame_bytes_max: int,
    ) -> None:
        """Create the service; the view may take ``timeout_s`` to follow etcd."""
        self._view = view
        self._meta = meta
        self._owned = owned
        self._starts = starts
        self._dial = dial
        self._address = address
        self._timeout_s = timeout_s
        self._frame_bytes_max = frame_bytes_max

    async def topics(self) -> tuple[Topic, ...]:
        """Return all topics, ordered by name: see ``calls.ListTopics``."""
        return tuple(sorted(self._view.topics.values(), key=lambda t: t.name))

    async def describe(self, name: TopicName, which: SegmentSelection, topic_uid: int) -> TopicDescription:
        """Return a topic with the selected segments: see ``calls.DescribeTopic``."""
        if len(which.ids) > IDS_MAX:
            raise InvalidArgument(f"request for {len(which.ids)} segments of {name} by id: query at most {IDS_MAX}")
        await self.catch_up(name, topic_uid)
        return replace(describe(self._view, name, which), frame_bytes_max=self._frame_bytes_max)

    async def changed(self, topics: Sequence[AwaitedTopic], patience_s: float) -> UpdatedTopics:
        """Wait up to ``patience_s`` seconds for a change of one of the topics: see ``calls.AwaitTopics``."""
        if len(topics) > AWAITED_AT_ONCE_MAX or sum(len(awaited.ids) for awaited in topics) > IDS_MAX:
            raise InvalidArgument(
                f"request to await {len(topics)} topics: await at most {AWAITED_AT_ONCE_MAX}, with {IDS_MAX} ids in all"
            )
        wanted: dict[TopicName, list[AwaitedTopic]] = {}
        for awaited in topics:
            wanted.setdefault(awaited.name, []).append(awaited)
        with suppress(TimeoutError), closing(self._view.changed_topics()) as changed_topics:
            async with asyncio.timeout(min(patience_s, AWAIT_S_MAX)):
                while True:
                    touched = [awaited for name in await changed_topics.take() for awaited in wanted.get(name, ())]
                    if any(map(self._is_newer, touched)):
                        break
        changed = (describe(self._view, a.name, replace(OPEN, ids=a.ids)) for a in topics if self._is_newer(a))
        return UpdatedTopics(tuple(changed), tuple(a.topic_uid for a in topics if not self._is_known(a)))

    def _is_known(self, awaited: AwaitedTopic) -> bool:
        topic = self._view.topics.get(awaited.name)
        return topic is not None and topic.uid == awaited.topic_uid

    def _is_newer(self, awaited: AwaitedTopic) -> bool:
        """Whether the view has a newer version of the topic than the waiting client."""
        return self._is_known(awaited) and self._view.topic_version(awaited.name) > awaited.above

    async def stats(self, name: TopicName) -> tuple[SegmentStats, ...]:
        """Return the statistics of a topic's open segments, from all primaries: see ``calls.TopicStats``."""
        await self.catch_up(name)
        description = describe(self._view, name, OPEN)
        primaries = sorted({s.primary for s in description.segments if not s.problem})
        gone = [p for p in primaries if p not in description.addresses]
        if gone:
            raise Unavailable(f"broker {gone[0]} is not registered, its segments of {name} are being moved: retry")
        question = LocalStats(name, description.topic.uid)
        parts = await asyncio.gather(*(self._dial(primary).call(question) for primary in primaries))
        return tuple(sorted((s for part in parts for s in part), key=lambda s: s.segment))

    async def local_stats(self, name: TopicName, topic_uid: int) -> tuple[SegmentStats, ...]:
        """Return the statistics of a topic's segments on this broker: see ``calls.LocalStats``."""
        topic = self._view.topics.get(name)
        if topic is None:
            return ()
        starts = await self._starts.of(topic)
        return tuple(
            SegmentStats(
                segment=owned.segment.id,
                start_offset=max(
                    owned.segment.start_offset,
                    starts.get(owned.segment.id, 0),
                    min(topic.low_watermark(owned.segment.slots), owned.log.committed),
                ),
                high_watermark=owned.log.committed,
                flushed_offset=owned.log.flushed,
                bytes_per_s=owned.meter.bytes_per_s,
                records_per_s=owned.meter.records_per_s,
            )
            for owned in self._owned.of(name)
            if owned.is_sure and topic_uid in (0, owned.topic.uid)
        )

    async def log_ends(self, name: TopicName, topic_uid: int, revision: int) -> Mapping[int, int]:
        """Return the log end offsets of a topic's segments on this broker, by id: see ``calls.LogEnds``."""
        await self._view.wait_revision(revision)
        return {owned.segment.id: owned.log.end for owned in self._owned.of(name) if owned.topic.uid == topic_uid}

    async def check_topic(self, name: TopicName, uid: int) -> None:
        """Return if the topic exists and has this uid; raise NotFound if not, and Unavailable as :meth:`catch_up`."""
        await self.catch_up(name, uid)
        if name not in self._view.topics:
            raise NotFound(f"there is no topic {name}: create it with `seaweedmq topic create {name}`")

    async def catch_up(self, name: TopicName, uid: int = 0) -> None:
        """Bring the view up to date with a topic that it does not know yet, of this uid or, if that is 0, any.

        A client may have just created the topic through another broker, so etcd may have what the view lacks. Raises
        NotFound if the topic has another uid, and Unavailable if etcd is unreachable, or the view does not follow in
        time.
        """
        if not self._knows(name, uid):
            await self._follow_up(name)
            if name in self._view.topics and not self._knows(name, uid):
                raise topic_recreated(name)

    def _knows(self, name: TopicName, uid: int) -> bool:
        topic = self._view.topics.get(name)
        return topic is not None and uid in (0, topic.uid)

    async def _follow_up(self, name: TopicName) -> None:
        """Wait until the view shows the topic as it is in etcd now."""
        entry = await self._meta.get(keys.topic_key(name))
        if entry is None:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._view.wait_revision(entry.mod_revision)
        except TimeoutError:
            raise Unavailable(f"broker {self._address} lags behind and does not know {name} yet: retry") from None
