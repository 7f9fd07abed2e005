"""What every subscriber does: read some segments at the same time, take their rows in turn, end when told."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.retry import retrying
from seaweedmq.client.start import start_of
from seaweedmq.client.subscribe.iteration import Iteration
from seaweedmq.client.subscribe.messages import FetchedRows, Message
from seaweedmq.client.subscribe.options import ReadOptions
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
"""Rows turned into Python objects together: enough to pay for the call, few enough to stay in the cache."""


SKIPPED_REMEMBERED_MAX = 1_000
"""Gaps that a subscriber remembers; each is logged in any case."""


class SkippedRecords(NamedTuple):
    """Offsets ``[start_offset, end_offset)`` of a segment whose records are lost."""

    segment: int
    start_offset: int
    end_offset: int


class TopicReader:
    """Reads segments of one topic. One task takes from it at a time.

    Which segments, subclasses say: they start readers, and go on from those that ended.
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
        """Whether readers continue behind records that are lost."""
        self.skipped: deque[SkippedRecords] = deque(maxlen=SKIPPED_REMEMBERED_MAX)
        """Lost records that were skipped, by ``on_missing="skip"``: the last gaps, in the order of reading."""
        self._view = TopicView(cluster, topic, self._on_description, lambda: self._readers)
        self.schema: pa.Schema | None = None
        """The topic's, as known now; None for a plain topic."""
        self.has_partitions = False
        """Whether the topic does."""
        self._stops: dict[int, int] | None = None
        self._readers: dict[int, SegmentReader] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._round: deque[SegmentReader] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        return str(self._topic)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def described(self) -> str:
        """Kind and topic, for messages."""
        return f"subscriber of {self._topic}"

    # --- what users call -------------------------------------------------------------------------------------------

    def __aiter__(self) -> Iteration[Message]:
        """Messages, until ``limit``, ``stop_at``, ``timeout`` or :meth:`close` ends it.

        Raises:
            OutOfRange: the next record was removed by retention.
            DataLoss: the next record is lost: no file has it, and neither retention nor a low watermark removed it.
                Not with ``on_missing="skip"``.
            Unavailable: a segment could not be reached for ``read_retry_timeout_s``.
            NotFound: the topic was deleted.
            Fenced: another member with the same id took over; only with a group.
        """
        return Iteration(self._fetch_in_loop, self.pop_messages)

    def batches(self) -> Iteration[pa.RecordBatch]:
        """The same records as Arrow batches: ``_segment, _offset, _timestamp, _key, _headers`` and ``_value`` or the
        topic's columns; of a topic with partitions ``_partition`` follows the segment. May be mixed with iterating over
        messages.
        """
        return Iteration(self._fetch_in_loop, self._pop_batches)

    async def _fetch_in_loop(self) -> bool:
        self._cluster.check_loop()
        return await self.fetch()

    def _pop_batches(self) -> Iterator[pa.RecordBatch]:
        batch = self.pop_batch()
        return iter(() if batch is None else (batch,))

    async def close(self) -> None:
        """End iteration, here and in a task that waits. Idempotent; a call that is cancelled leaves closing under way,
        and the next awaits the same.
        """
        if self._closing is None:
            self._cluster.check_loop()
            self._begin_to_close()
            self._closing = asyncio.create_task(self._close(), name=f"close {self._topic}")
        await asyncio.shield(self._closing)

    def _begin_to_close(self) -> None:
        """Note at once that nothing more is delivered."""
        self._closed = True
        self._end()

    async def _close(self) -> None:
        await self._stop_readers()
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
        raise NotImplementedError

    async def fetch(self) -> bool:
        """Wait for rows; False at the end. Repeating it, or cancelling it, loses nothing."""
        raise NotImplementedError

    def pop_messages(self) -> Iterator[Message]:
        """Some thousand messages at most. What is left of the last ones comes first, so that iteration may stop
        anywhere and go on later. Requires ``has_rows``.
        """
        raise NotImplementedError

    def pop_batch(self) -> pa.RecordBatch | None:
        """What is left of the messages, else what arrived next; None if there is nothing to deliver after all.
        Requires ``has_rows``.
        """
        raise NotImplementedError

    # --- for readers -----------------------------------------------------------------------------------------------

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription:
        return await self._view.description(refresh, ids)

    def share_bytes(self) -> int:
        return max(self._config.credit_bytes_min, self._config.subscribe_buffer_bytes_max // max(1, len(self._readers)))

    def on_arrived(self, reader: SegmentReader) -> None:
        if not reader.queued:
            reader.queued = True
            self._round.append(reader)
        self._news.set()

    def on_skipped(self, segment: Segment, offsets: range) -> None:
        log.warning(
            "%s: records of offsets [%d, %d) are missing and were skipped", segment, offsets.start, offsets.stop
        )
        self.skipped.append(SkippedRecords(segment.id, offsets.start, offsets.stop))

    # --- for subclasses --------------------------------------------------------------------------------------------

    def _on_description(self, description: TopicDescription) -> None:
        schema = description.topic.schema
        self.schema = None if schema is None else schema_from_bytes(schema)
        self.has_partitions = description.topic.partitions is not None

    def _pull(self) -> tuple[SegmentReader, FetchedRows | None] | None:
        """Rows of the reader whose turn it is; or no rows, and a reader that failed or ended; or None: nothing came."""
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
        """Read no more of a segment; rows that were not taken are forgotten."""
        reader = self._readers.pop(segment, None)
        task = self._tasks.pop(segment, None)
        if task is not None:
            task.cancel()
        if reader is not None and reader.queued:
            self._round.remove(reader)
            reader.queued = False

    def _on_task_done(self, reader: SegmentReader, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: nothing more would arrive, so whoever waits is told.
            reader.error = Closed(f"the reader of {reader.segment} broke down: {error!r}; open another and report this")
            reader.error.__cause__ = error
            self.on_arrived(reader)

    async def _stop_offsets(self, segments: dict[int, Segment], skipped: Collection[int]) -> dict[int, int]:
        """Where each segment that is wanted now ends now; one that is sealed meanwhile ends where it was sealed.

        ``segments`` gets what is learned of them, and of what came after them.
        """
        wanted = segments.keys() - skipped
        pruned: set[int] = set()
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.admin_timeout_s)):
            with attempt:
                stats = await self._cluster.call(f"read the figures of {self._topic}", TopicStats(self._topic))
                for number in sorted(segments):  # a lagging broker may have shown only the ancestors
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
                    raise Unavailable(f"nobody knows how far segments {sorted(unclear)} are")
                return ends
        raise AssertionError("retrying ended without a result")

    def _end(self) -> None:
        self._ended = True
        self._news.set()
        for task in self._tasks.values():
            task.cancel()

    async def _stop_readers(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._view.close()
