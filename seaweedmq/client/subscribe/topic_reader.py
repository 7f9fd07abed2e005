"""The base of all subscribers: reads segments concurrently, takes their rows in turn, and ends on request."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from seaweedmq.client.closing import ClosingContext
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.retry import retrying
from seaweedmq.client.start import start_of
from seaweedmq.client.subscribe.iteration import Iteration
from seaweedmq.client.subscribe.messages import FetchedRows, Message
from seaweedmq.client.subscribe.options import ReadOptions
from seaweedmq.client.subscribe.payloads import Payloads
from seaweedmq.client.subscribe.reader import SegmentReader
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.errors import Closed, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import TopicStats
from seaweedmq.model.messages.subscribe import Start
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.process.heap import keep_freed_blocks
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)

MESSAGES_AT_ONCE = 4_096
"""Number of rows converted to Python objects together: enough to amortize the call, few enough for the cache."""


SKIPPED_REMEMBERED_MAX = 1_000
"""Limit of the gaps that a subscriber stores; all are logged."""


class SkippedRecords(NamedTuple):
    """The offsets ``[start_offset, end_offset)`` of a segment whose records are lost."""

    segment: int
    start_offset: int
    end_offset: int


class TopicReader(ClosingContext):
    """A reader of segments of one topic. One task takes from it at a time.

    Subclasses choose the segments: they start readers, and continue after those that ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        config: ClientConfig,
        on_close: Callable[[Any], None],
        options: ReadOptions,
    ) -> None:
        keep_freed_blocks()
        self._cluster = cluster
        self._topic = topic
        self._config = config
        self._on_close = on_close
        self._start = start_of(options.start)
        self._stop_at_latest = options.stop_at is not None
        self._timeout = options.timeout
        self._columns = options.columns
        self.skips_missing = options.on_missing == "skip"
        """Whether readers continue after lost records."""
        self.skipped: deque[SkippedRecords] = deque(maxlen=SKIPPED_REMEMBERED_MAX)
        """The lost records skipped by ``on_missing="skip"``: the last 1,000 gaps, in the order of reading."""
        self._view = TopicView(cluster, topic, self._on_description, lambda: self._readers)
        self.payloads = Payloads(cluster, topic)
        """The payloads by reference of the topic's records."""
        self.schema: pa.Schema | None = None
        """The topic's latest known schema; None for a plain topic."""
        self.has_partitions = False
        """Whether the topic has partitions."""
        self._stops: dict[int, int] | None = None
        self._readers: dict[int, SegmentReader] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._round: deque[SegmentReader] = deque()
        self._wakeup = asyncio.Event()
        self._ended = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        """The topic, ``namespace/name``."""
        return str(self._topic)

    @property
    def is_closed(self) -> bool:
        """Whether the subscriber is closed, or closing has begun."""
        return self._closed

    def described(self) -> str:
        """Return the kind and topic, for messages."""
        return f"subscriber of {self._topic}"

    def __aiter__(self) -> Iteration[Message]:
        """Iterate over messages, until ``limit``, ``stop_at``, ``timeout`` or :meth:`close` ends it.

        Raises:
            OutOfRange: If retention removed the next record.
            DataLoss: If the next record is lost: no file has it, and neither retention nor a low watermark removed it.
                Not with ``on_missing="skip"``.
            Unavailable: If a segment is unreachable for ``read_retry_timeout_s``.
            NotFound: If the topic was deleted.
            Fenced: If another member with the same name took over. Only with a group.
        """
        return Iteration(self._fetch_in_loop, self.pop_messages)

    def batches(self) -> Iteration[pa.RecordBatch]:
        """Iterate over the records as Arrow batches. Raises as iteration over messages, and may be mixed with it.

        The columns are ``_segment``, ``_partition`` for a topic with partitions, ``_offset``, ``_timestamp``, ``_key``,
        ``_headers``, and ``_value`` or the topic's columns. Batches with payloads by reference also have
        ``_reference``, and a record has one of the two.
        """
        return Iteration(self._fetch_in_loop, self._pop_batches)

    async def _fetch_in_loop(self) -> bool:
        self._cluster.check_loop()
        return await self.fetch()

    def _pop_batches(self) -> Iterator[pa.RecordBatch]:
        batch = self.pop_batch()
        return iter(() if batch is None else (batch,))

    async def close(self) -> None:
        """End iteration, also in a task that waits. Idempotent.

        If the call is cancelled, closing continues, and the next call awaits it.
        """
        if self._closing is None:
            self._cluster.check_loop()
            self._begin_to_close()
            self._closing = asyncio.create_task(self._close(), name=f"close {self._topic}")
        await asyncio.shield(self._closing)

    def _begin_to_close(self) -> None:
        """End delivery at once."""
        self._closed = True
        self._end()

    async def _close(self) -> None:
        await self._stop_readers()
        self._on_close(self)

    @property
    def has_rows(self) -> bool:
        """Whether ``pop_messages`` or ``pop_batch`` may be called."""
        raise NotImplementedError

    async def fetch(self) -> bool:
        """Wait for rows. Return False at the end. A repeated or cancelled call loses nothing."""
        raise NotImplementedError

    def pop_messages(self) -> Iterator[Message]:
        """Return some thousand messages at most. Requires ``has_rows``.

        The rest of the previous messages comes first, so that iteration may stop anywhere and continue later.
        """
        raise NotImplementedError

    def pop_batch(self) -> pa.RecordBatch | None:
        """Return the rest of the messages, or the next batch; None if all rows have to wait. Requires ``has_rows``."""
        raise NotImplementedError

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription:
        """Return the topic with the given segments, refreshed or cached."""
        return await self._view.description(refresh, ids)

    def share_bytes(self) -> int:
        """Return a reader's share of the buffer in bytes."""
        return max(self._config.credit_bytes_min, self._config.subscribe_buffer_bytes_max // max(1, len(self._readers)))

    def on_arrived(self, reader: SegmentReader) -> None:
        """Queue a reader that has rows, has ended, or has failed."""
        if not reader.queued:
            reader.queued = True
            self._round.append(reader)
        self._wakeup.set()

    def on_skipped(self, segment: Segment, offsets: range) -> None:
        """Log and store a gap of lost records."""
        log.warning("records skipped: %s: offsets [%d, %d) are missing", segment, offsets.start, offsets.stop)
        self.skipped.append(SkippedRecords(segment.id, offsets.start, offsets.stop))

    def _on_description(self, description: TopicDescription) -> None:
        self.payloads.topic_uid = description.topic.uid
        schema = description.topic.schema
        self.schema = None if schema is None else schema_from_bytes(schema)
        self.has_partitions = description.topic.partitions is not None

    def _pull(self) -> tuple[SegmentReader, FetchedRows | None] | None:
        """Take from the next reader in the queue: its rows, None if it failed or ended; None if no reader has any."""
        while self._round:
            reader = self._round.popleft()
            reader.queued = False
            arrived = reader.take()
            if arrived is not None:
                self.on_arrived(reader)
                return reader, arrived
            if (reader.error is not None or reader.ended) and self._readers.get(reader.segment.id) is reader:
                return reader, None
        return None

    def _start_reader(self, segment: Segment, start: Start, stop_offset: int | None) -> SegmentReader:
        reader = SegmentReader(self, self._cluster, self._topic, segment, start, stop_offset)
        self._readers[segment.id] = reader
        task = asyncio.create_task(reader.run(), name=f"reader of {segment}")
        task.add_done_callback(partial(self._on_task_done, reader))
        self._tasks[segment.id] = task
        return reader

    def _drop_reader(self, segment: int) -> None:
        """Stop the reader of a segment, and drop its rows that were not taken."""
        reader = self._readers.pop(segment, None)
        task = self._tasks.pop(segment, None)
        if task is not None:
            task.cancel()
        if reader is not None and reader.queued:
            self._round.remove(reader)
            reader.queued = False

    def _on_task_done(self, reader: SegmentReader, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: nothing more would arrive, so every waiter gets the error.
            reader.error = Closed(f"the reader of {reader.segment} failed: {error!r}: open another one and report this")
            reader.error.__cause__ = error
            self.on_arrived(reader)

    async def _stop_offsets(self, segments: dict[int, Segment], skipped: Collection[int]) -> dict[int, int]:
        """Return the current end offset of each segment but ``skipped``; one sealed meanwhile ends at its seal.

        Newly learned segments and successors are added to ``segments``, the known ones by id.
        """
        wanted = segments.keys() - skipped
        pruned: set[int] = set()
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.admin_timeout_s)):
            with attempt:
                stats = await self._cluster.call(f"read the statistics of {self._topic}", TopicStats(self._topic))
                for number in sorted(segments):  # A lagging broker may have shown only the ancestors.
                    if number in wanted:
                        wanted.update(set(segments[number].successors) - pruned)
                ends = {s.segment: s.high_watermark for s in stats if s.segment in wanted}
                ends |= {n: s.end_offset for n, s in segments.items() if n in wanted and s.end_offset is not None}
                unclear = (wanted - ends.keys()) | (wanted - segments.keys())
                if unclear:
                    description = await self.description(True, unclear)
                    known = {s.id: s for s in description.segments if s.id in unclear}
                    for segment in known.values():
                        check_recoverable(segment)
                    segments |= known
                    pruned |= {n for n in unclear - known.keys() if n < description.topic.next_segment}
                    wanted -= pruned
                    raise Unavailable(f"end offsets of segments {sorted(unclear)} are unknown: retry")
                return ends
        raise AssertionError("retrying ended without a result")

    def _end(self) -> None:
        self._ended = True
        self._wakeup.set()
        for task in self._tasks.values():
            task.cancel()

    async def _stop_readers(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._view.close()
