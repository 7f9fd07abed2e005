"""Sending of a staged batch's rows to one segment, until they are acknowledged or the segment is sealed.

A stream sends from the segment's next sequence on. Memory holds only frames in flight: after a lost stream the rows are
read again.

Brokers keep producer state for as long as a client may retry. A process that resumes another one's batch later than
that queries each segment for the producer, with a first sequence that no batch has. If the segment knows neither this
batch nor an earlier one, the files are searched.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from seaweedmq import errors
from seaweedmq.client.cluster.broker_stream import broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.publish.publish_stream import PublishStream, publish_open, retry_pause_s
from seaweedmq.client.publish.staged_rows import StagedMessage, StagedRows
from seaweedmq.client.retry import pauses
from seaweedmq.core.publish.in_flight import InFlight
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import PublishAck, PublishReady, PublishRequest, PublishSealed
from seaweedmq.model.segment import Segment
from seaweedmq.model.staged import FinishedSegment, SegmentProgress
from seaweedmq.runtime.retrying import is_retryable

log = logging.getLogger(__name__)

QUERY_SEQUENCE = 1 << 62
"""A sequence above those of any batch: a broker without state of the producer replies with it."""
Search = Callable[[Segment, SegmentProgress], int]
"""A search for a producer in a segment without its state. It returns the sequence of the first row that is not stored,
at least the known one. Blocking. Raises OutOfRange if the files do not show it."""
Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""A runner of blocking calls, one after another, which finishes a call even if its caller was cancelled."""


class StagedSender:
    """A sender of a batch's rows to one segment. Used once.

    Reading ``rows`` blocks. ``on_progress`` is called with the progress after acknowledgements.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: TopicView,
        segment: int,
        rows: StagedRows,
        reached: SegmentProgress,
        search: Search | None,
        offload: Offload,
        on_progress: Callable[[int, SegmentProgress], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._manifest = rows.manifest
        self._segment = segment
        self._name = f"{view.name}#{segment}"
        self._rows = rows
        self._reached = reached
        self._search = search
        self._offload = offload
        self._on_progress = on_progress
        self._stream: PublishStream | None = None
        self._sending = _StreamRows(offload)
        self._pause_s = pauses(cluster.config, cluster.env.rng)
        self._total = 0
        """The number of rows for the segment, if it is not sealed before."""
        self._is_queried = search is None
        """Whether the segment was queried for the producer, where that is needed."""

    async def run(self) -> FinishedSegment:
        """Send until the segment has all its rows, or is sealed; raises as ``StagedPublisher.run``."""
        self._total = await self._offload(lambda: sum(piece.record_count for piece in self._rows.of(self._segment)))
        if not self._total:
            return FinishedSegment(0, ())
        loop, refresh = asyncio.get_running_loop(), False
        moved_s, failures = loop.time(), 0
        while True:
            before = self._reached
            try:
                return await self._session(refresh)
            except errors.SeaweedMQError as error:
                if not is_retryable(error):
                    raise
                if self._reached != before:
                    moved_s, failures = loop.time(), 0
                if loop.time() - moved_s > self._cluster.config.delivery_timeout_s:
                    raise errors.DeadlineExceeded(
                        f"batch {self._manifest.batch}: {self._name} acknowledged nothing for "
                        f"{self._cluster.config.delivery_timeout_s:g} s: start again once the cluster is healthy, and "
                        f"the batch continues; last: {error}"
                    ) from None
                failures += 1
                pause_s = retry_pause_s(error, failures, self._pause_s)
            refresh = not await self._view.ends(self._segment, pause_s)

    async def _session(self, refresh: bool) -> FinishedSegment:
        """Run one stream."""
        description = await self._view.description(refresh, (self._segment,))
        segment = description.segment(self._segment)
        if segment is None:
            raise errors.OutOfRange(
                f"{self._name} was sealed long ago and is pruned: which rows of batch {self._manifest.batch} "
                f"it has, from row {self._reached.sequence} of its {self._total} on, is unknown"
            )
        if not self._is_queried:
            await self._query(segment, description)
        if self._reached.sequence >= self._total:
            return FinishedSegment(self._total, ())
        self._sending = _StreamRows(self._offload)
        address = self._cluster.address_of(description, segment)
        self._stream = PublishStream(self._cluster, address, segment, self._manifest.topic_uid, self)
        try:
            sealed = await self._stream.run()
        except errors.NotFound as error:
            # The description had the segment just now: the next one shows whether the topic was deleted.
            raise errors.StaleMetadata(str(error)) from error
        return FinishedSegment(self._total, ()) if sealed is None else self._sealed(sealed)

    async def _query(self, segment: Segment, description: TopicDescription) -> None:
        """Query the segment's progress from its broker or, without producer state, from the files."""
        address = self._cluster.address_of(description, segment)
        known: int | None = None
        is_new_epoch = False
        answered = asyncio.Event()

        async def requests() -> AsyncIterator[PublishRequest]:
            yield publish_open(segment, self._manifest.topic_uid, self.producer, QUERY_SEQUENCE)
            await answered.wait()

        # The broker stores the queried sequence while the stream is open, and would expect the rows to begin there.
        async with broker_stream(self._cluster, address, lambda api: api.publish(requests()), str(segment)) as stream:
            async for reply in stream.replies:
                if not isinstance(reply, PublishAck):
                    known, is_new_epoch = reply.next_sequence, is_new_epoch or reply.is_new_epoch
                    answered.set()
        if known is None:
            raise errors.Unavailable(f"broker {address} ended the stream to {segment}: retry")
        if known >= QUERY_SEQUENCE and not is_new_epoch and self._search is not None:
            found = await self._offload(partial(self._search, segment, self._reached))
            self._reached = SegmentProgress(max(found, self._reached.sequence), self._reached.offset)
        self._is_queried = True

    def _sealed(self, sealed: PublishSealed) -> FinishedSegment:
        self._check(sealed.next_sequence)
        if sealed.next_sequence == self._total:
            return FinishedSegment(self._total, ())
        if not sealed.successors:
            raise errors.Unavailable(f"{self._name} is sealed, and its successors are not known yet: retry")
        return FinishedSegment(sealed.next_sequence, sealed.successors)

    def _check(self, next_sequence: int) -> None:
        """Compare the segment's next sequence with its progress; ProtocolViolation if it has more rows than were sent.

        If it lost acknowledged rows, as ``replicated`` topics may in a power failure, they are published again: the
        staged files still hold them.
        """
        if next_sequence < self._reached.sequence:
            log.warning(
                "acknowledged rows lost: %s has rows up to %d of batch %d, acknowledged were those up to %d; "
                "publishing them again",
                self._name,
                next_sequence,
                self._manifest.batch,
                self._reached.sequence,
            )
            self._reached = SegmentProgress(next_sequence, self._reached.offset)
        if next_sequence > self._total:
            raise errors.ProtocolViolation(
                f"{self._name} has rows up to {next_sequence} of batch {self._manifest.batch}, which has "
                f"{self._total} for it: another process publishes with the same producer id"
            )

    @property
    def producer(self) -> tuple[int, int]:
        """The producer's id and epoch."""
        return self._manifest.producer_id, self._manifest.batch

    @property
    def first_sequence(self) -> int:
        """The first sequence that is not acknowledged."""
        return self._reached.sequence

    @property
    def in_flight(self) -> int:
        """The number of frames in flight."""
        return len(self._sending.in_flight)

    def opened(self, ready: PublishReady, message_bytes: int) -> None:
        """Handle an open stream; Unavailable if the segment's next sequence is that of a query."""
        if ready.next_sequence >= QUERY_SEQUENCE:
            raise errors.Unavailable(f"{self._name} still answers an interrupted query: retry")
        self._check(ready.next_sequence)
        self._sending.in_flight.opened(ready)
        self._sending.messages = self._rows.messages(self._segment, ready, message_bytes)

    async def take(self) -> Sequence[Frames]:
        """Read the frames of the next message."""
        return await self._sending.take()

    async def acked(self, ack: PublishAck) -> bool:
        """Handle acknowledgements. Return whether the segment has all its rows."""
        for frame in ack.frames:
            self._sending.in_flight.acked(frame)
            self._reached = SegmentProgress(frame.end_sequence, frame.end_offset)
        if self._stream is not None:
            self._stream.wake()
        await self._on_progress(self._segment, self._reached)
        return self._reached.sequence >= self._total


class _StreamRows:
    """The rows that one stream sends. A stream that is lost while it reads leaves the next one's alone."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self.in_flight = InFlight()
        self.messages: Iterator[StagedMessage] | None = None
        """The messages that are not read yet; None before the stream is open, and after the last one."""
        self._next: StagedMessage | None = None
        """A message that was read and has to wait."""

    async def take(self) -> Sequence[Frames]:
        """Return the frames of the next message; none if none may be sent now."""
        if self._next is None and self.messages is not None:
            self._next = await self._offload(partial(next, self.messages, None))
            if self._next is None:
                self.messages = None
        message = self._next
        if message is None or not self.in_flight.has_room(len(message.sent), sum(map(len, message.parts))):
            return ()
        self._next = None
        for frame in message.sent:
            self.in_flight.add(frame)
        return message.parts
