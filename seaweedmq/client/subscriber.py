"""The subscriber: all segments of a topic, each key's records in order, within a bounded buffer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from operator import length_hint
from types import TracebackType
from typing import Literal, Self, TypeAlias

import pyarrow as pa

from seaweedmq.client.buffer import to_us
from seaweedmq.client.cluster import Cluster, TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.messages import Arrived, Message, check_columns, messages_of, record_batch_of
from seaweedmq.client.reader import SegmentReader
from seaweedmq.client.retry import deadline, retrying
from seaweedmq.codec.batch import schema_from_bytes
from seaweedmq.core.lineage import LineageWalk, before_open, below_offset
from seaweedmq.errors import Closed, InvalidArgument, Unavailable
from seaweedmq.model.protocol import EARLIEST, LATEST, Start, StartKind, TopicDescription
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName

StartAt: TypeAlias = Literal["earliest", "latest"] | int | datetime
MESSAGES_AT_ONCE = 4_096
"""Rows turned into Python objects together: enough to pay for the call, few enough to stay in the cache."""


def start_of(start: StartAt) -> Start:
    """Raises InvalidArgument: not "earliest", "latest", an offset or a datetime with a time zone."""
    if start == "earliest":
        return EARLIEST
    if start == "latest":
        return LATEST
    if isinstance(start, datetime):
        return Start(StartKind.TIME, to_us(start))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return Start(StartKind.OFFSET, start)
    raise InvalidArgument(f'start={start!r:.100} is not "earliest", "latest", an offset from 0 up, or a datetime')


class Subscriber:
    """Reads one topic. One task takes from it at a time.

    Args:
        start: "earliest": what retention kept. "latest": what is committed from now on. An int: every record whose
            offset is at least that, in every segment, as far as retention kept them. A datetime: in every segment, the
            first record with at least that timestamp and all that follow it.
        limit: end after this many records.
        stop_at: "latest": end when everything committed at the time of opening was delivered.
        timeout: end when nothing arrived for this many seconds.
        columns: of the batches; all by default.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        on_close: Callable[["Subscriber"], None],
        *,
        start: StartAt = "latest",
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        if stop_at not in (None, "latest"):
            raise InvalidArgument(f'stop_at={stop_at!r} is unknown: use "latest" or leave it out')
        if limit is not None and limit < 0:
            raise InvalidArgument(f"limit={limit} is negative: give the number of records to read")
        self._cluster = cluster
        self._topic = topic
        self._config = config
        self._on_close = on_close
        self._start = start_of(start)
        self._left = limit
        self._stop_at_latest = stop_at is not None
        self._timeout = timeout
        self._columns = columns
        self._view = TopicView(cluster, topic, self._on_description)
        self.schema: pa.Schema | None = None
        """The topic's, as known now; None for a plain topic."""
        self._walk = LineageWalk(())
        self._from_start: set[int] = set()
        self._stops: dict[int, int] | None = None
        self._readers: dict[int, SegmentReader] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._round: deque[SegmentReader] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._closed = False
        self._rest: Arrived | None = None
        self._part: Arrived | None = None
        self._messages: Iterator[Message] = iter(())

    @property
    def topic(self) -> str:
        return str(self._topic)

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def open(self) -> None:
        """Find the segments and begin to read. Raises NotFound, InvalidArgument."""
        description = await self.description(True)
        check_columns(self._columns, self.schema)
        segments = description.segments
        skipped: set[int] = set()
        if self._start.kind is StartKind.LATEST:
            skipped = before_open(segments)
        elif self._start.kind is StartKind.OFFSET:
            skipped = below_offset(segments, self._start.value)
        if self._stop_at_latest:
            self._stops = await self._stop_offsets(description, skipped)
        self._from_start = {s.id for s in segments}
        self._walk = LineageWalk((await self.description(False)).segments, skipped)
        self._open_due()

    async def _stop_offsets(self, description: TopicDescription, skipped: set[int]) -> dict[int, int]:
        """Where each segment that is wanted now ends now; one that is sealed meanwhile ends where it was sealed."""
        wanted = {s.id for s in description.segments if s.id not in skipped}
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.admin_timeout_s)):
            with attempt:
                stats = await self._cluster.call(
                    f"read the figures of {self._topic}", lambda api: api.topic_stats(self._topic)
                )
                known = (await self.description(False)).segments
                for segment in sorted(known, key=lambda s: s.id):  # a lagging broker may have shown only the ancestors
                    if segment.id in wanted:
                        wanted.update(segment.successors)
                ends = {s.segment: s.high_watermark for s in stats if s.segment in wanted}
                ends |= {s.id: s.end_offset for s in known if s.id in wanted and s.end_offset is not None}
                if not wanted <= ends.keys():
                    await self.description(True)
                    raise Unavailable(f"nobody knows how far segments {sorted(wanted - ends.keys())} are")
                return ends
        raise AssertionError("retrying ended without a result")

    # --- what users call -------------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages, until ``limit``, ``stop_at``, ``timeout`` or :meth:`close` ends it.

        Raises:
            OutOfRange: the next record was removed by retention.
            Unavailable: a segment could not be reached for ``read_retry_timeout_s``.
            NotFound: the topic was deleted.
        """
        while await self.fetch():
            for message in self.pop_messages():
                yield message

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The same records as Arrow batches: ``_segment, _offset, _timestamp, _key, _headers`` and ``_value`` or the
        topic's columns. May be mixed with iterating over messages.
        """
        while await self.fetch():
            yield self.pop_batch()

    async def close(self) -> None:
        """End iteration, here and in whoever waits. Idempotent."""
        self._closed = True
        self._end()
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._view.close()
        self._on_close(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- for the synchronous face ----------------------------------------------------------------------------------

    @property
    def has_rows(self) -> bool:
        """Whether ``pop_messages`` or ``pop_batch`` may be called."""
        return not self._closed and (self._rest is not None or length_hint(self._messages) > 0)

    async def fetch(self) -> bool:
        """Wait for rows; False at the end. Repeating it, or cancelling it, loses nothing."""
        if not self.has_rows and not self._closed:
            self._rest = await self._take()
        return self.has_rows

    def pop_messages(self) -> Iterator[Message]:
        """Some thousand messages at most. What is left of the last ones comes first, so that iteration may stop
        anywhere and go on later. Requires ``has_rows``.
        """
        if not length_hint(self._messages) and self._rest is not None:
            self._part, self._rest = self._rest.cut(MESSAGES_AT_ONCE)
            self._messages = iter(messages_of(self._part))
        return self._messages

    def pop_batch(self) -> pa.RecordBatch:
        """What is left of the messages, else what arrived next. Requires ``has_rows``."""
        left = length_hint(self._messages)
        if left and self._part is not None:
            self._messages = iter(())
            return record_batch_of(self._part.slice(len(self._part) - left, left), self._columns)
        if self._rest is None:
            raise AssertionError("fetch() comes first")
        rest, self._rest = self._rest, None
        return record_batch_of(rest, self._columns)

    async def _take(self) -> Arrived | None:
        try:
            async with asyncio.timeout(self._timeout):
                arrived = await self._next()
        except TimeoutError:
            self._end()
            return None
        if arrived is not None and self._left is not None:
            arrived = arrived if len(arrived) <= self._left else arrived.slice(0, self._left)
            self._left -= len(arrived)
        return arrived

    # --- for readers -----------------------------------------------------------------------------------------------

    async def description(self, refresh: bool) -> TopicDescription:
        return await self._view.description(refresh)

    def share_bytes(self) -> int:
        return max(self._config.credit_bytes_min, self._config.subscribe_buffer_bytes_max // max(1, len(self._readers)))

    def on_arrived(self, reader: SegmentReader) -> None:
        if not reader.queued:
            reader.queued = True
            self._round.append(reader)
        self._news.set()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _on_description(self, description: TopicDescription) -> None:
        schema = description.topic.schema
        self.schema = None if schema is None else schema_from_bytes(schema)

    async def _next(self) -> Arrived | None:
        while not self._ended:
            if self._left == 0 or (self._stops is not None and not self._readers and not self._open_due()):
                self._end()
                break
            if not self._round:
                self._news.clear()
                await self._news.wait()
                continue
            reader = self._round.popleft()
            reader.queued = False
            arrived = reader.take()
            if arrived is not None:
                self.on_arrived(reader)
                return arrived
            if reader.error is not None:
                self.on_arrived(reader)
                raise reader.error
            if reader.ended and reader.segment.id in self._readers:
                try:
                    await self._finish(reader)
                except BaseException:
                    self.on_arrived(reader)
                    raise
        return None

    async def _finish(self, reader: SegmentReader) -> None:
        """A segment was delivered to the end: go on to successors that waited for it."""
        if self._stops is None:
            async for attempt in retrying(
                self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)
            ):
                with attempt:
                    description = await self.description(not self._walk.knows(reader.successors))
                    self._walk.learn(description.segments)
                    if not self._walk.knows(reader.successors):
                        await self.description(True)
                        raise Unavailable(f"successors {reader.successors} of {reader.segment} are not known yet")
        self._walk.finish(reader.segment.id)
        del self._readers[reader.segment.id]
        self._tasks.pop(reader.segment.id, None)
        self._open_due()

    def _open_due(self) -> bool:
        due: list[Segment] = self._walk.due()
        for segment in due:
            if self._stops is not None and segment.id not in self._stops:
                continue
            start = self._start
            if start.kind is StartKind.LATEST and segment.id not in self._from_start:
                start = EARLIEST
            if start.kind is StartKind.OFFSET and start.value <= segment.start_offset:
                start = EARLIEST
            stop = None if self._stops is None else self._stops[segment.id]
            reader = SegmentReader(self, self._cluster, self._topic, segment, start, stop)
            self._readers[segment.id] = reader
            task = asyncio.create_task(reader.run(), name=f"reader of {segment}")
            task.add_done_callback(partial(self._on_task_done, reader))
            self._tasks[segment.id] = task
        return bool(due)

    def _on_task_done(self, reader: SegmentReader, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: nothing more would arrive, so whoever waits is told.
            reader.error = Closed(f"the reader of {reader.segment} broke down: {error!r}; open another and report this")
            reader.error.__cause__ = error
            self.on_arrived(reader)

    def _end(self) -> None:
        self._ended = True
        self._news.set()
        for task in self._tasks.values():
            task.cancel()
