"""The subscriber: reads all segments of a topic, each key's records in order, within a bounded buffer."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.messages import FetchedRows, Message, MessageRun, check_columns, record_batch_of
from seaweedmq.client.subscribe.options import ReadOptions
from seaweedmq.client.subscribe.reader import SegmentReader
from seaweedmq.client.subscribe.topic_reader import MESSAGES_AT_ONCE, TopicReader
from seaweedmq.core.lineage.lineage import LineageWalk, before_open, below_offset
from seaweedmq.errors import Unavailable, fresh
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.subscribe import EARLIEST, StartKind
from seaweedmq.model.ring import RING_SLOTS_MAX, KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import deadline

FETCHED_BYTES = 4 * 1024 * 1024
"""Approximate limit of one fetch of arrived rows: the synchronous API waits for each fetch in another thread."""


class Subscriber(TopicReader):
    """A subscriber to one topic. One task takes from it at a time. :meth:`Client.subscriber` has the options."""

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        on_close: Callable[["Subscriber"], None],
        options: ReadOptions,
    ) -> None:
        super().__init__(cluster, topic, config, on_close, options)
        self._left = options.limit
        self._walk = LineageWalk(())
        self._from_start: set[int] = set()
        self._rows: deque[FetchedRows] = deque()
        """The rows fetched and not yet taken."""
        self._messages: MessageRun | None = None
        self._ring_at_first = RING_SLOTS_MAX
        """The size of the ring at the opening: partitions added since are read from their beginning."""
        self._ring_known: KeyRange | None = None
        """The part of the topic's ring whose segments are known or in ``_added``."""
        self._added: set[int] = set()
        """The segments of partitions added since, which the walk does not know yet."""

    async def open(self) -> None:
        """Find the segments and begin to read; raises as ``Client.subscriber``."""
        latest = self._start.kind is StartKind.LATEST
        description = await (self.description(True) if latest else self._view.whole())
        check_columns(self._columns, self.schema, self.has_partitions)
        segments = description.by_id()
        skipped: set[int] = set()
        if latest:
            skipped = before_open(description.segments)
        elif self._start.kind is StartKind.OFFSET:
            skipped = below_offset(description.segments, self._start.value)
        if self._stop_at_latest:
            self._stops = await self._stop_offsets(segments, skipped)
        self._from_start = {s.id for s in description.segments}
        self._walk = LineageWalk(segments.values(), skipped, description.topic.next_segment)
        await self._learn(())
        self._open_due()
        if self._stops is None and self.has_partitions:
            self._ring_known = description.topic.ring
            self._ring_at_first = self._ring_known.hi
            self._view.refresh_periodically(self._config.metadata_max_age_s)

    def ack(self, delivered: Message | pa.RecordBatch | pa.Table) -> None:
        """Do nothing: without a group there is no position."""

    def nack(self, delivered: Message | pa.RecordBatch | pa.Table, delay: float | timedelta = 0.0) -> None:
        """Do nothing: without a group there is no redelivery."""

    @property
    def has_rows(self) -> bool:
        """Whether ``pop_messages`` or ``pop_batch`` may be called."""
        return not self._closed and (bool(self._rows) or bool(self._messages))

    async def fetch(self) -> bool:
        """Wait for rows. Return False at the end."""
        if not self.has_rows and not self._closed:
            rows = await self._take()
            size_bytes = 0
            while rows is not None:
                self._rows.append(rows)
                size_bytes += rows.batch.nbytes
                rows = self._take_at_once() if size_bytes < FETCHED_BYTES else None
        return self.has_rows

    def pop_messages(self) -> Iterator[Message]:
        """Return some messages. Requires ``has_rows``."""
        if not self._messages:
            part, rest = self._pop_rows().cut(MESSAGES_AT_ONCE)
            if rest is not None:
                self._rows.appendleft(rest)
            self._messages = MessageRun(part)
        return iter(self._messages)

    def pop_batch(self) -> pa.RecordBatch:
        """Return the rest of the messages, or the next batch. Requires ``has_rows``."""
        rows = self._messages.rest() if self._messages else self._pop_rows()
        return record_batch_of(rows, self._columns)

    def _pop_rows(self) -> FetchedRows:
        assert self._rows, "fetch() must be called first"
        return self._rows.popleft()

    async def _take(self) -> FetchedRows | None:
        try:
            async with asyncio.timeout(self._timeout):
                arrived = await self._next()
        except TimeoutError:
            self._end()
            return None
        return None if arrived is None else self._limited(arrived)

    def _take_at_once(self) -> FetchedRows | None:
        """Return rows that have arrived already, unless the limit is reached."""
        pulled = None if self._left == 0 or self._ended else self._pull()
        if pulled is None:
            return None
        reader, arrived = pulled
        if arrived is None:
            self.on_arrived(reader)  # It ended or failed: ``_next`` handles that.
            return None
        return self._limited(arrived)

    def _limited(self, arrived: FetchedRows) -> FetchedRows:
        if self._left is not None:
            arrived = arrived if len(arrived) <= self._left else arrived.slice(0, self._left)
            self._left -= len(arrived)
        return arrived

    async def _next(self) -> FetchedRows | None:
        while not self._ended:
            if self._left == 0 or (self._stops is not None and not self._readers and not self._open_due()):
                self._end()
                break
            if self._added:
                added = set(self._added)
                await self._learn(added)
                self._added -= added
                self._open_due()
            pulled = self._pull()
            if pulled is None:
                self._wakeup.clear()
                await self._wakeup.wait()
                continue
            reader, arrived = pulled
            if arrived is not None:
                return arrived
            try:
                if reader.error is not None:
                    raise fresh(reader.error)
                await self._finish(reader)
            except BaseException:
                self.on_arrived(reader)
                raise
        return None

    def _on_description(self, description: TopicDescription) -> None:
        super()._on_description(description)
        known, ring = self._ring_known, description.topic.ring
        if known is not None and ring.hi > known.hi:
            self._added |= {s.id for s in description.segments if s.is_open and s.slots.lo >= known.hi}
            self._ring_known = ring
            self._wakeup.set()

    async def _finish(self, reader: SegmentReader) -> None:
        """Handle a segment that was delivered to its end: continue with its successors."""
        if self._stops is None:
            await self._learn(reader.successors)
        self._walk.finish(reader.segment.id)
        del self._readers[reader.segment.id]
        self._tasks.pop(reader.segment.id, None)
        self._open_due()

    async def _learn(self, successors: Iterable[int]) -> None:
        """Add successors and all their predecessors to the walk.

        A segment that was delivered to its end and is open again was sealed shortly before etcd was lost, and the
        recovered etcd has no seal. Its brokers are lost, so the leader seals it again: then its successors are read.
        """
        wanted = set(successors)
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)):
            with attempt:
                while True:
                    if reopened := self._walk.finished(wanted):
                        wanted |= await self._successors(reopened)
                        wanted -= reopened
                        continue
                    unknown = self._walk.unknown(wanted) | self._walk.missing()
                    if not unknown:
                        break
                    description = await self.description(False, unknown)
                    found = description.by_id()
                    if unknown - found.keys() and max(unknown) >= description.topic.next_segment:
                        await self.description(True)
                        raise Unavailable(f"segments {sorted(unknown)} of {self._topic} are not known yet: retry")
                    self._walk.learn(found[number] for number in unknown & found.keys())
                    if unknown - found.keys():
                        self._walk.pruned(unknown - found.keys())
                        opened = {s.id: s for s in description.segments if s.is_open}
                        self._walk.learn(opened.values())
                        wanted |= self._walk.finished(opened)

    async def _successors(self, segments: Iterable[int]) -> set[int]:
        """Return the successors of segments; Unavailable if one of the segments is not sealed yet."""
        numbers = frozenset(segments)
        description = await self.description(True, numbers)
        found = [segment for segment in description.segments if segment.id in numbers]
        for segment in found:
            if segment.is_open:
                raise Unavailable(f"{segment} was read to its end and is open in a recovered etcd: retry")
        return {successor for segment in found for successor in segment.successors}

    def _open_due(self) -> bool:
        due: list[Segment] = self._walk.due()
        for segment in due:
            if self._stops is not None and segment.id not in self._stops:
                continue
            start = self._start
            if start.kind is StartKind.LATEST and segment.id not in self._from_start:
                start = EARLIEST
            if start.kind is StartKind.OFFSET and (
                start.value <= segment.start_offset or segment.slots.lo >= self._ring_at_first
            ):
                start = EARLIEST
            stop = None if self._stops is None else self._stops[segment.id]
            self._start_reader(segment, start, stop)
        return bool(due)
