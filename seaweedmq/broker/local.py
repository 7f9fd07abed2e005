"""Local access to a broker from a gateway in its process: the partitions that it leads, without a network hop."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.memory.broker_memory import KafkaMemory
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.appender import Appender
from seaweedmq.broker.serve.kafka_group_router import KafkaGroupRouter
from seaweedmq.broker.serve.lookup import METADATA_LAG_S, Lookup, ServedSegment
from seaweedmq.broker.serve.start_offsets import StartOffsets
from seaweedmq.broker.serve.tail import Tail, Tails, TailState
from seaweedmq.codec.frame import Frame
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import NotFound, OutOfRange, StaleMetadata, Unavailable, fresh
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import BrokerApi, Environment, MetaStore, SegmentStore
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.read.recovery import earliest_offset
from seaweedmq.storage.read.time_search import RecordAt, find_latest_time, find_offset_by_time

__all__ = ["LocalBroker", "LocalPartition", "Tail", "TailState"]

TOPICS_KNOWN_MAX = 1_000
"""Topics whose partitions are cached."""


class LocalPartition:
    """A partition of a topic, while this broker is the primary of its open segment."""

    def __init__(
        self, broker: "LocalBroker", topic: Topic, lineage: Sequence[Segment], open_segment: OpenSegment
    ) -> None:
        self.topic = topic
        self.segment = open_segment.segment
        self._lineage = lineage
        self._broker = broker
        self._open = open_segment
        self._appender = Appender(open_segment, broker.lookup, frame_bytes_max=broker.config.frame_bytes_max)

    @property
    def partition(self) -> int:
        """Number of the partition; without partitions the lowest slot of the range."""
        return self.segment.slots.lo

    @property
    def is_over(self) -> bool:
        """Whether the segment takes no more frames, so that the partition has to be looked up again."""
        return self._open.refusal is not None

    @property
    def is_sure(self) -> bool:
        """Whether the segment surely is still open, so that ``high_watermark`` is that of the partition."""
        return self._open.is_sure

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed."""
        return self._open.log.committed

    @property
    def end(self) -> int:
        """First offset without a record."""
        return self._open.log.end

    @property
    def changed(self) -> Signal:
        """Signal of a change of the high watermark or the segment's lifecycle."""
        return self._open.committed_changed

    @property
    def open_segment(self) -> OpenSegment:
        """Open segment of the partition."""
        return self._open

    def in_memory(self, offset: int, bytes_max: int) -> Sequence[LogEntry] | None:
        """Return committed frames from the one with ``offset``, about ``bytes_max`` bytes but at least one frame.

        Returns:
            The frames, none at the high watermark; None if they are only in files.
        """
        log = self._open.log
        return log.read(offset, bytes_max) if offset >= log.cache_start else None

    async def append(self, frame: Frame, *, may_begin: bool = True) -> FrameAck:
        """Give offsets to a frame whose payload was checked, or find those of an earlier copy.

        The frame is not durable yet: see ``committed``. Arguments and errors are those of ``Appender.append``.
        """
        return await self._appender.append(frame, is_checked=True, may_begin=may_begin)

    async def committed(self, end_offset: int) -> None:
        """Wait until all records below the offset are committed. No deadline.

        Raises:
            StaleMetadata: If the segment ended, and the metadata do not confirm that it holds these records.
            SeaweedMQError: If nothing is committed at the moment; the message has the reason.
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
        """Wait for the metadata of the sealed segment, which retains all records below its end, acknowledged or not."""
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
            raise StaleMetadata(f"segment {self.segment} has ended: use its successor")

    def tail(self, offset: int) -> Tail:
        """Return a position in the partition, in the segment that holds the offset.

        Raises:
            OutOfRange: If no segment holds the offset, or no longer.
        """
        if offset >= self.segment.start_offset:
            return self._broker.tails.at(ServedSegment(self.topic, self.segment, self._open), offset)
        for segment in self._lineage:
            if segment.end_offset is not None and segment.start_offset <= offset < segment.end_offset:
                return self._broker.tails.at(ServedSegment(self.topic, segment, None), offset)
        raise OutOfRange(f"{self.topic.name}: partition {self.partition} no longer has a segment with offset {offset}")

    def lineage(self) -> Sequence[Segment]:
        """Return the known segments of the partition, oldest first, the open one last."""
        return self._lineage

    async def log_start(self) -> int:
        """Return the lowest retained offset, some seconds old if retention removes records."""
        return self._start(await self._broker.starts.of(self.topic) if self.topic.expires else None)

    def known_log_start(self) -> int:
        """Return the lowest retained offset without a wait.

        It may be older than that of :meth:`log_start` if retention removes records.
        """
        return self._start(self._broker.starts.known(self.topic) if self.topic.expires else None)

    def _start(self, starts: Mapping[int, int] | None) -> int:
        start = self._lineage[0].start_offset
        if starts is not None:
            kept = (max(starts[s.id], s.start_offset) for s in self._lineage if s.id in starts)
            start = min(kept, default=self.segment.start_offset)
        return min(max(start, self._low_watermark), self.high_watermark)

    @property
    def _low_watermark(self) -> int:
        return self.topic.low_watermark(self.segment.slots)

    async def earliest(self) -> int:
        """Return the lowest retained offset by the files now. Errors are those of ``recovery.earliest_offset``."""
        for segment in self._lineage:
            offset = await earliest_offset(self._broker.store, self.topic, segment)
            if segment.end_offset is None or offset < segment.end_offset:
                return min(offset, self.high_watermark)
        return self.high_watermark

    async def earliest_in_log(self) -> int:
        """Return the lowest retained offset in a log file, as it was sent; the high watermark without log files."""
        kept = await self.earliest()
        for segment in self._lineage:
            logs = [f.base_offset for f in await self._files(segment) if f.kind is FileKind.LOG]
            if logs:
                return min(max(kept, segment.start_offset, min(logs)), self.high_watermark)
        return self.high_watermark

    async def tables_end(self) -> int:
        """Return the offset after the last record in a table; 0 without tables."""
        for segment in reversed(self._lineage):
            ends = [f.end_offset for f in await self._files(segment) if f.end_offset is not None]
            if ends:
                return min(max(ends), self.high_watermark)
        return 0

    async def find_time(self, timestamp_us: int) -> RecordAt | None:
        """Return the first retained record at or after a time, in microseconds since 1970 UTC.

        Errors are those of ``reader.read_segment``.
        """
        return await self._search(self._lineage, partial(find_offset_by_time, timestamp_us=timestamp_us))

    async def latest_time(self) -> RecordAt | None:
        """Return the retained record with the highest timestamp. Errors are those of ``reader.read_segment``."""
        latest: RecordAt | None = None
        for segment in self._lineage:
            found = await self._search([segment], find_latest_time)
            if found is not None and (latest is None or found.timestamp_us > latest.timestamp_us):
                latest = found
        return latest

    async def _search(
        self, segments: Sequence[Segment], find: Callable[..., Awaitable[RecordAt | None]]
    ) -> RecordAt | None:
        """Search the segments one after the other, up to the high watermark."""
        for segment in segments:
            end = self.high_watermark if segment.end_offset is None else segment.end_offset
            found = await find(
                self._broker.store,
                self.topic,
                segment.id,
                end_offset=end,
                start_offset=max(segment.start_offset, self._low_watermark),
            )
            if found is not None:
                return found
        return None

    async def _files(self, segment: Segment) -> Sequence[SegmentFile]:
        return await self._broker.store.list_files(self.topic.name, segment.id)


class LocalBroker:
    """The broker's process as a gateway beside the gRPC server uses it."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Environment,
        clock: ConfirmedClock,
        view: ClusterView,
        meta: MetaStore,
        store: SegmentStore,
        lookup: Lookup,
        tails: Tails,
        starts: StartOffsets,
        memory: KafkaMemory,
        kafka_groups: KafkaGroupRouter,
        api: BrokerApi,
        dial: Callable[[str], BrokerApi],
        broker_id: Callable[[], str],
        kafka_address: str,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self.config = config
        self.env = env
        self.clock = clock
        self.view = view
        self.meta = meta
        self.store = store
        self.lookup = lookup
        self.tails = tails
        self.starts = starts
        self.memory = memory
        """Memory reserved for a gateway."""
        self.kafka_groups = kafka_groups
        """Router of calls about Kafka groups; a gateway registers their handler there."""
        self.api = api
        self.dial = dial
        """Returns a connection to a broker by id; raises Unavailable if it is not registered."""
        self.spawn = spawn
        """Starts a task that ends; an error that it does not handle ends the broker."""
        self.kafka_address = kafka_address
        """Address at which Kafka clients dial this process; "" for none."""
        self._broker_id = broker_id
        self._known: OrderedDict[TopicName, _Partitions] = OrderedDict()

    @property
    def id(self) -> str:
        """Broker id of the current lease; "" without one."""
        return self._broker_id()

    def lineages(self, name: TopicName) -> Mapping[int, Sequence[Segment]]:
        """Return the present segments of every partition, oldest first; empty if there is no such topic.

        The key is the partition's number; without partitions it is the lowest slot of each range.
        """
        return self._partitions_of(name).lineages

    def leads(self, name: TopicName, number: int) -> LocalPartition:
        """Return a partition that this broker leads, by its number in ``lineages``.

        Raises:
            NotFound: If there is no such topic or partition.
            StaleMetadata: If another broker is its primary.
            Unavailable: If it has no primary at the moment.
            Corrupt: If its open segment cannot be recovered; names the file.
        """
        known = self._partitions_of(name)
        partition = known.led.get(number)
        if partition is not None and not partition.is_over:
            return partition
        topic, lineage = self.view.topics.get(name), known.lineages.get(number)
        if topic is None or lineage is None:
            raise NotFound(f"there is no partition {number} of topic {name}: refresh the metadata")
        segment = lineage[-1]
        if not segment.is_open:
            raise Unavailable(f"partition {number} of {name} has no open segment at the moment: retry")
        check_recoverable(segment)
        found = self.lookup.try_segment(name, segment.id, topic.uid)
        if found is None or found.open is None:
            raise StaleMetadata(f"segment {segment} is served by broker {segment.primary}: refresh the metadata")
        known.led[number] = LocalPartition(self, topic, lineage, found.open)
        return known.led[number]

    def producers(self, name: TopicName, number: int) -> Sequence[ProducerState]:
        """Return the producer states of a partition. Errors are those of :meth:`leads`."""
        return self.leads(name, number).open_segment.log.producers.snapshot()

    def _partitions_of(self, name: TopicName) -> "_Partitions":
        known = self._known.get(name)
        if known is None or known.seen != self.view.changes:
            known = self._known[name] = _Partitions(self.view, name)
            self._known.move_to_end(name)
            if len(self._known) > TOPICS_KNOWN_MAX:
                self._known.popitem(last=False)
        return known


class _Partitions:
    """The partitions of one topic, as of one moment of the view."""

    def __init__(self, view: ClusterView, name: TopicName) -> None:
        self.seen = view.changes
        self.lineages: dict[int, list[Segment]] = {}
        self.led: dict[int, LocalPartition] = {}
        for segment in sorted(view.segments_of(name).values(), key=lambda s: s.id):
            self.lineages.setdefault(segment.slots.lo, []).append(segment)
