"""One subscriber's stream from one segment: open, receive, give credit, reconnect at the next offset, end.

Exposure of the client's memory = bytes received and not consumed + credit given and not used. It stays within the
reader's share of the subscriber's buffer, or one message if that is larger.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.conversation import Conversation, conversation
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.messages import Arrived, Origin
from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.errors import (
    NotFound,
    OutOfRange,
    ProtocolViolation,
    SeaweedMQError,
    StaleMetadata,
    Unavailable,
)
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.segment import Segment
from seaweedmq.model.subscribe import (
    LATEST,
    Start,
    StartKind,
    SubscribeCredit,
    SubscribeEnd,
    SubscribeFrames,
    SubscribeOpen,
    SubscribeReady,
    SubscribeReply,
    SubscribeRequest,
)
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import is_retryable


class ReaderOwner(Protocol):
    """The subscriber, as its readers see it."""

    @property
    def schema(self) -> pa.Schema | None: ...

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription: ...

    def share_bytes(self) -> int:
        """A reader's part of the buffer."""

    def on_arrived(self, reader: "SegmentReader") -> None:
        """The reader has something to take, has ended, or has failed."""


class SegmentReader:
    """Delivers a segment from a start to its end, or to ``stop_offset``."""

    def __init__(
        self,
        owner: ReaderOwner,
        cluster: Cluster,
        topic: TopicName,
        segment: Segment,
        start: Start,
        stop_offset: int | None,
    ) -> None:
        self._owner = owner
        self._cluster = cluster
        self._topic = topic
        self.segment = segment
        self._start = start
        self._stop_offset = stop_offset
        self._origin = Origin(str(topic), segment.id)
        self._next_offset: int | None = None
        self._arrived: deque[tuple[Arrived, int]] = deque()
        self._buffered_bytes = 0
        self._credit_bytes = 0
        self._largest_bytes = 0
        self._give_credit = asyncio.Event()
        self._refresh = False
        self._reached_at = 0.0
        self._got_frames = False
        self._topic_uid = 0
        self._skip_below = 0
        self.queued = False
        """In the subscriber's round."""
        self.ended = False
        """Nothing more will arrive."""
        self.successors: tuple[int, ...] = ()
        self.begin_offset: int | None = None
        """Where delivery began; None until the broker said it, or if records in front of the start are skipped."""
        self.error: SeaweedMQError | None = None

    @property
    def end_offset(self) -> int:
        """Where delivery ended. Requires ``ended``."""
        if self._next_offset is None:
            raise AssertionError(f"{self.segment} has not begun")
        return self._next_offset if self._stop_offset is None else min(self._next_offset, self._stop_offset)

    def take(self) -> Arrived | None:
        """The oldest rows not taken, if there are any."""
        if not self._arrived:
            return None
        arrived, cost = self._arrived.popleft()
        self._buffered_bytes -= cost
        self._give_credit.set()
        return arrived

    async def run(self) -> None:
        """Until the end or an error, which both show in the attributes. Cancel to stop."""
        loop = asyncio.get_running_loop()
        config = self._cluster.config
        self._reached_at = loop.time()
        try:
            while not self.ended:
                async for attempt in retrying(
                    config, self._cluster.env.rng, lambda: loop.time() > self._reached_at + config.read_retry_timeout_s
                ):
                    with attempt:
                        await self._session()
        except SeaweedMQError as error:
            self.error = error
        self._owner.on_arrived(self)

    async def _session(self) -> None:
        description = await self._owner.description(self._refresh, (self.segment.id,))
        self._refresh = True
        found = next((s for s in description.segments if s.id == self.segment.id), None)
        if found is None:
            self._pruned(description)
            return
        self.segment = found
        self._topic_uid = description.topic.uid
        self._got_frames = False
        try:
            await self._stream(self._cluster.address_of(description, found))
        except NotFound as error:
            # the description had the segment a moment ago: it will say whether the topic is gone
            raise StaleMetadata(str(error)) from error
        except OutOfRange as error:
            if self._next_offset is not None or self._start.kind is not StartKind.OFFSET:
                raise
            await self._start_beyond_the_end(self._cluster.address_of(description, found), error)
        except SeaweedMQError as error:
            if not (is_retryable(error) and self._got_frames):
                raise

    def _pruned(self, description: TopicDescription) -> None:
        """The segment is known no more, since nothing is left of it: the end, if nothing of it was awaited. Without
        retention it never had a record, unless some were read: then retention was switched off since.

        Raises:
            OutOfRange: what came next may have been removed before it was delivered.
        """
        segment, topic = self.segment, description.topic
        had_records = self._next_offset not in (None, segment.start_offset)
        if had_records or topic.has_retention:
            end = segment.end_offset
            is_awaited = self._next_offset is not None or self._start.kind is StartKind.OFFSET
            if end is None or (is_awaited and self._next_offset != end):
                raise OutOfRange(
                    f"{segment} is gone, retention removed its records: go on with the segments there are, from "
                    "earliest"
                )
        self._next_offset = segment.start_offset if segment.end_offset is None else segment.end_offset
        heirs = tuple(s.id for s in description.segments if s.is_open and s.slots.overlaps(segment.slots))
        self.successors = heirs if segment.is_open else segment.successors
        self.ended = True

    async def _start_beyond_the_end(self, address: str, refusal: OutOfRange) -> None:
        """The start offset was refused. If it lies beyond the end, begin at the end and skip what is below it."""
        wanted, self._start = self._start, LATEST
        try:
            async with self._conversation(address, asyncio.Event()) as talk:
                first = await anext(talk.replies, None)
        finally:
            self._start = wanted
        if not isinstance(first, SubscribeReady):
            raise Unavailable(f"broker {address} did not say where {self.segment} ends")
        if wanted.value < first.start_offset:
            raise refusal
        self._next_offset = first.start_offset
        self._skip_below = wanted.value

    def _conversation(
        self, address: str, give_credit: asyncio.Event
    ) -> AbstractAsyncContextManager[Conversation[SubscribeReply]]:
        return conversation(
            self._cluster, address, lambda api: api.subscribe(self._requests(give_credit)), str(self.segment)
        )

    async def _stream(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        self._give_credit = asyncio.Event()
        ready = False
        try:
            async with self._conversation(address, self._give_credit) as talk:
                async for reply in talk.replies:
                    if isinstance(reply, SubscribeFrames):
                        self._got_frames = True
                        await self._receive(reply)
                        if self._reached_stop():
                            return
                    elif isinstance(reply, SubscribeReady):
                        ready = True
                        talk.expect(None)
                        self._begin_at(reply.start_offset)
                        if self._reached_stop():
                            return
                    else:
                        self._end(reply)
                        return
        finally:
            if ready:
                self._reached_at = loop.time()
        raise Unavailable(f"broker {address} ended the stream from {self.segment}")

    def _begin_at(self, offset: int) -> None:
        if self._next_offset is None:
            self._next_offset = self.begin_offset = offset
        elif offset > self._next_offset:
            raise OutOfRange(
                f"{self.segment}: retention removed offsets {self._next_offset} to {offset - 1} before they were read; "
                "read faster, or keep records longer"
            )

    def _reached_stop(self) -> bool:
        if self._stop_offset is not None and (self._next_offset or 0) >= self._stop_offset:
            self.ended = True
        return self.ended

    def _end(self, reply: SubscribeEnd) -> None:
        if self._next_offset is not None and self._next_offset < reply.end_offset:
            raise ProtocolViolation(
                f"{self.segment} ended at offset {reply.end_offset}, but delivery only reached {self._next_offset}"
            )
        self.successors = reply.successors
        self.ended = True

    async def _receive(self, reply: SubscribeFrames) -> None:
        self._credit_bytes -= len(reply.data)
        self._largest_bytes = max(self._largest_bytes, len(reply.data))
        for frame in split_frames(reply.data):
            if frame.header.schema_version and self._owner.schema is None:
                await self._owner.description(True)
            arrived = self._wanted(frame)
            if arrived is not None:
                cost = frame.header.frame_bytes
                self._buffered_bytes += cost
                self._arrived.append((arrived, cost))
        if self._arrived:
            self._owner.on_arrived(self)
        else:
            self._give_credit.set()

    def _wanted(self, frame: Frame) -> Arrived | None:
        """The rows not delivered yet, up to the stop."""
        header = frame.header
        expected = self._next_offset
        if expected is None:
            raise ProtocolViolation(f"{self.segment} sent frames before saying where they begin")
        if header.base_offset > expected:
            raise ProtocolViolation(
                f"{self.segment} left a gap: offset {expected} is next, a frame begins at {header.base_offset}"
            )
        lo = max(expected, self._skip_below)
        hi = header.end_offset if self._stop_offset is None else min(header.end_offset, self._stop_offset)
        self._next_offset = max(expected, header.end_offset)
        if lo >= hi:
            return None
        batch = decode_frame(frame, self._owner.schema if header.schema_version else None)
        whole = Arrived(self._origin, batch, header.flags, header.base_offset, header.timestamp_min)
        return whole if hi - lo == len(whole) else whole.slice(lo - header.base_offset, hi - lo)

    async def _requests(self, give_credit: asyncio.Event) -> AsyncIterator[SubscribeRequest]:
        start = self._start if self._next_offset is None else Start(StartKind.OFFSET, self._next_offset)
        self._credit_bytes = 0
        self._credit_bytes = max(self._cluster.config.credit_bytes_min, self._free_bytes())
        yield SubscribeOpen(
            topic=self._topic,
            segment=self.segment.id,
            start=start,
            credit_bytes=self._credit_bytes,
            topic_uid=self._topic_uid,
        )
        while True:
            await give_credit.wait()
            give_credit.clear()
            free = self._free_bytes()
            if free * 4 >= self._target_bytes():
                self._credit_bytes += free
                yield SubscribeCredit(free)

    def _target_bytes(self) -> int:
        return max(self._owner.share_bytes(), self._largest_bytes)

    def _free_bytes(self) -> int:
        return self._target_bytes() - self._buffered_bytes - self._credit_bytes
