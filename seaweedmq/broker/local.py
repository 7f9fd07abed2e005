"""What a gateway in the broker's own process sees of it: the partitions that are led here, without a hop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.appender import Appender
from seaweedmq.broker.serve.lookup import METADATA_LAG_S, Found, Lookup
from seaweedmq.broker.serve.start_offsets import StartOffsets
from seaweedmq.broker.serve.tail import Tail, Tails
from seaweedmq.codec.frame import Frame
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import NotFound, OutOfRange, StaleMetadata, Unavailable, fresh
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.publish import FrameAck
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import BrokerApi, Environment, MetaStore, SegmentStore
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.read.recovery import earliest_offset


class LocalPartition:
    """One partition of a topic, while this broker is the primary of its open segment."""

    def __init__(self, broker: "LocalBroker", topic: Topic, open_segment: OpenSegment) -> None:
        self.topic = topic
        self.segment: Segment = open_segment.segment
        self._broker = broker
        self._open = open_segment
        self._appender = Appender(open_segment, broker.lookup, frame_bytes_max=broker.config.frame_bytes_max)

    @property
    def partition(self) -> int:
        """Its number; of a topic without partitions the lowest slot of its range."""
        return self.segment.slots.lo

    @property
    def is_over(self) -> bool:
        """Whether the segment takes nothing more: look for the partition again."""
        return self._open.refusal is not None

    @property
    def is_sure(self) -> bool:
        """Whether nobody can have ended the segment yet, so that ``high_watermark`` is that of the partition."""
        return self._open.is_sure

    @property
    def start_offset(self) -> int:
        """Where the open segment begins: what lies below is in sealed ones."""
        return self.segment.start_offset

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed."""
        return self._open.log.committed

    @property
    def end(self) -> int:
        """First offset that is not given to a record yet."""
        return self._open.log.end

    @property
    def changed(self) -> Signal:
        """Fires when the high watermark or the segment's fate changes."""
        return self._open.committed_changed

    @property
    def open_segment(self) -> OpenSegment:
        """The segment, for who looks at more than that."""
        return self._open

    async def append(self, frame: Frame) -> FrameAck:
        """Give a frame its offsets, or find those of an earlier copy. Not durable yet: see ``committed``. Raises as
        ``Appender.append``."""
        return await self._appender.append(frame)

    async def committed(self, end_offset: int) -> None:
        """Wait until everything below is committed. No deadline.

        Raises:
            StaleMetadata: the segment ended, and the metadata do not say that it holds all of that.
            SeaweedMQError: nothing is committed at the moment; the message says why.
        """
        segment = self._open
        while segment.log.committed < end_offset:
            if segment.is_closed:
                await self._sealed_with(end_offset)
                return
            if segment.failure:
                raise fresh(segment.failure)
            await segment.committed_changed.wait()

    async def _sealed_with(self, end_offset: int) -> None:
        """What is sealed is kept, acknowledged or not: the record tells how far that goes."""
        view, name = self._broker.view, self.topic.name
        try:
            async with asyncio.timeout(METADATA_LAG_S):
                while True:
                    seen = view.changes
                    found = view.find(name, self.topic.uid, self.segment.id)
                    if found is None or not found[1].is_open:
                        break
                    await view.wait_change(seen)
        except TimeoutError:
            found = None
        if found is None or (found[1].end_offset or 0) < end_offset:
            raise StaleMetadata(f"segment {self.segment} has ended: go on where its successor is served")

    def tail(self, offset: int) -> Tail:
        """A position in the partition, in whichever of its segments holds the offset.

        Raises:
            OutOfRange: no segment does, or not any more.
        """
        if offset >= self.segment.start_offset:
            return self._broker.tails.at(Found(self.topic, self.segment, self._open), offset)
        for segment in self.lineage():
            if segment.end_offset is not None and segment.start_offset <= offset < segment.end_offset:
                return self._broker.tails.at(Found(self.topic, segment, None), offset)
        raise OutOfRange(f"{self.topic.name}: partition {self.partition} has no segment with offset {offset} any more")

    def lineage(self) -> list[Segment]:
        """The segments that the partition had, the oldest that is known first, the open one last."""
        lo = self.segment.slots.lo
        of_topic = self._broker.view.segments_of(self.topic.name).values()
        return sorted((s for s in of_topic if lo in s.slots and s.id <= self.segment.id), key=lambda s: s.id)

    async def log_start(self) -> int:
        """Lowest offset that is kept, as of some seconds ago where retention removes records."""
        lineage = self.lineage()
        if not self.topic.has_retention:
            return lineage[0].start_offset
        starts = await self._broker.starts.of(self.topic)
        kept = (max(starts[s.id], s.start_offset) for s in lineage if s.id in starts)
        return min(kept, default=self.segment.start_offset)

    async def earliest(self) -> int:
        """Lowest offset that is kept, as the files say it now. Raises as ``recovery.earliest_offset``."""
        for segment in self.lineage():
            offset = await earliest_offset(self._broker.store, self.topic, segment)
            if segment.end_offset is None or offset < segment.end_offset:
                return min(offset, self.high_watermark)
        return self.high_watermark


class LocalBroker:
    """Its process, as far as a gateway beside the gRPC server has business with it."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Environment,
        view: ClusterView,
        meta: MetaStore,
        store: SegmentStore,
        lookup: Lookup,
        tails: Tails,
        starts: StartOffsets,
        api: BrokerApi,
        broker_id: Callable[[], str],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self.config = config
        self.env = env
        self.view = view
        self.meta = meta
        self.store = store
        self.lookup = lookup
        self.tails = tails
        self.starts = starts
        self.api = api
        self.spawn = spawn
        """Run something with an end; an error that it does not handle ends the broker."""
        self._broker_id = broker_id

    @property
    def id(self) -> str:
        """Broker id of the current lease; "" while there is none."""
        return self._broker_id()

    def leads(self, name: TopicName, slot: int) -> LocalPartition:
        """The partition whose segment holds the slot, which is its number where the topic has partitions.

        Raises:
            NotFound: no such topic or partition.
            StaleMetadata: another broker is its primary.
            Unavailable: nobody is at the moment.
        """
        topic = self.view.topics.get(name)
        if topic is None or slot not in topic.ring:
            raise NotFound(f"there is no partition {slot} of topic {name}: refresh the metadata")
        segment = next((s for s in self.view.open_of(name).values() if slot in s.slots), None)
        if segment is None:
            raise Unavailable(f"partition {slot} of {name} has no open segment at the moment: retry")
        found = self.lookup.try_segment(name, segment.id, topic.uid)
        if found is None or found.open is None:
            raise StaleMetadata(f"segment {segment} is served by broker {segment.primary}: refresh the metadata")
        return LocalPartition(self, topic, found.open)
