"""A partition that a broker leads, as a gateway in its process uses it: without a network hop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.appender import Appender
from seaweedmq.broker.serve.lookup import METADATA_LAG_S, Lookup, ServedSegment
from seaweedmq.broker.serve.start_offsets import StartOffsets
from seaweedmq.broker.serve.tail import Tail, Tails, TailState
from seaweedmq.codec.frame import Frame
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import OutOfRange, StaleMetadata, fresh
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import SegmentStore
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.read.recovery import earliest_offset
from seaweedmq.storage.read.time_search import RecordAt, find_latest_time, find_offset_by_time

__all__ = ["LocalPartition", "ServingContext", "Tail", "TailState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingContext:
    """The shared objects that serve the partitions of a broker."""

    view: ClusterView
    store: SegmentStore
    lookup: Lookup
    tails: Tails
    starts: StartOffsets
    frame_bytes_max: int


class LocalPartition:
    """A partition of a topic, while this broker is the primary of its open segment."""

    def __init__(
        self, serving: ServingContext, topic: Topic, lineage: Sequence[Segment], open_segment: OpenSegment
    ) -> None:
        self.topic = topic
        self.segment = open_segment.segment
        self._lineage = lineage
        self._serving = serving
        self._open = open_segment
        self._appender = Appender(open_segment, serving.lookup, frame_bytes_max=serving.frame_bytes_max)

    @property
    def partition(self) -> int:
        """Number of the partition; without partitions the lowest slot of the range."""
        return self.segment.slots.lo

    @property
    def is_over(self) -> bool:
        """Whether the segment takes no more frames, so that the partition has to be looked up again."""
        return self._open.rejection is not None

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

        Returns no frame at the high watermark, and None if they are only in files.
        """
        log = self._open.log
        return log.read(offset, bytes_max) if offset >= log.cache_start else None

    async def append(self, frame: Frame, *, may_begin: bool = True) -> FrameAck:
        """Give offsets to a frame whose payload was checked, or find those of an earlier copy: see ``Appender.append``.

        The frame is not durable yet: see ``committed``.
        """
        return await self._appender.append(frame, is_checked=True, may_begin=may_begin)

    async def committed(self, end_offset: int) -> None:
        """Wait until all records below the offset are committed. No deadline.

        Raises StaleMetadata if the segment ended, and the metadata do not confirm that it holds these records; another
        error if nothing is committed at the moment.
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
        view, name = self._serving.view, self.topic.name
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
        """Return a position in the segment that holds the offset; raise OutOfRange if no segment does, or no longer."""
        if offset >= self.segment.start_offset:
            return self._serving.tails.at(ServedSegment(self.topic, self.segment, self._open), offset)
        for segment in self._lineage:
            if segment.end_offset is not None and segment.start_offset <= offset < segment.end_offset:
                return self._serving.tails.at(ServedSegment(self.topic, segment, None), offset)
        raise OutOfRange(f"{self.topic.name}: partition {self.partition} no longer has a segment with offset {offset}")

    def lineage(self) -> Sequence[Segment]:
        """Return the known segments of the partition, oldest first, the open one last."""
        return self._lineage

    async def log_start(self) -> int:
        """Return the lowest retained offset, some seconds old if retention removes records."""
        return self._start(await self._serving.starts.of(self.topic) if self.topic.expires else None)

    def known_log_start(self) -> int:
        """Return :meth:`log_start` without a wait; it may be older if retention removes records."""
        return self._start(self._serving.starts.known(self.topic) if self.topic.expires else None)

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
            offset = await earliest_offset(self._serving.store, self.topic, segment)
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
        """Return the first retained record at or after a time (UTC, microseconds). Raises as ``read_segment``."""
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
                self._serving.store,
                self.topic,
                segment.id,
                end_offset=end,
                start_offset=max(segment.start_offset, self._low_watermark),
            )
            if found is not None:
                return found
        return None

    async def _files(self, segment: Segment) -> Sequence[SegmentFile]:
        return await self._serving.store.list_files(self.topic.name, segment.id, uid=self.topic.uid)
