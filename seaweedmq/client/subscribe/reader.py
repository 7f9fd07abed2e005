"""A subscriber's stream from one segment: opens, receives, grants credit, reconnects at the next offset, ends.

The offset tracker has the wanted offsets, the receive credit the amount that may arrive. Both outlive a stream.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pyarrow as pa

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.assembler import FrameAssembler
from seaweedmq.client.subscribe.messages import FetchedRows, Origin
from seaweedmq.client.subscribe.offset_tracker import OffsetTracker
from seaweedmq.client.subscribe.payloads import Payloads
from seaweedmq.client.subscribe.receive_credit import ReceiveCredit
from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.errors import NotFound, OutOfRange, SeaweedMQError, StaleMetadata, Unavailable, unraised
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages import subscribe
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import is_retryable


class ReaderOwner(Protocol):
    """The subscriber, as its readers see it."""

    @property
    def schema(self) -> pa.Schema | None:
        """The topic's latest known schema; None for a plain topic."""

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription:
        """Return the topic with the given segments, refreshed or cached."""

    def share_bytes(self) -> int:
        """Return a reader's share of the buffer in bytes."""

    @property
    def has_partitions(self) -> bool:
        """Whether the topic has partitions."""

    @property
    def payloads(self) -> Payloads:
        """The payloads by reference of the topic's records."""

    def on_arrived(self, reader: "SegmentReader") -> None:
        """Handle a reader that has rows, has ended, or has failed."""

    @property
    def skips_missing(self) -> bool:
        """Whether readers continue after lost records."""

    def on_skipped(self, segment: Segment, offsets: range) -> None:
        """Handle lost records, which the reader skips."""


class SegmentReader:
    """A reader of one segment from a start to its end, or to ``stop_offset``."""

    def __init__(
        self,
        owner: ReaderOwner,
        cluster: Cluster,
        topic: TopicName,
        segment: Segment,
        start: subscribe.Start,
        stop_offset: int | None,
    ) -> None:
        self._owner = owner
        self._cluster = cluster
        self._topic = topic
        partition = segment.slots.lo if owner.has_partitions else None
        self._origin = Origin(str(topic), segment.id, partition, owner.payloads)
        self._cursor = OffsetTracker(segment, start, stop_offset)
        self._credit = ReceiveCredit(cluster.config.credit_bytes_min)
        self._arrived: deque[tuple[Frame, range]] = deque()
        """The received frames, with the wanted offsets of each. They stay compressed until they are taken: those of
        Kafka clients may be a hundred times larger decompressed."""
        self._give_credit = asyncio.Event()
        self._refresh = False
        self._reached_at = 0.0
        self._got_frames = False
        self.queued = False
        """Whether the reader is in the subscriber's queue of readers with rows."""
        self.error: SeaweedMQError | None = None
        """The error that ended the reader; None if there is none."""

    @property
    def segment(self) -> Segment:
        """The segment, as described last."""
        return self._cursor.segment

    @property
    def ended(self) -> bool:
        """Whether no more rows will arrive."""
        return self._cursor.ended

    @property
    def successors(self) -> tuple[int, ...]:
        """The successors of a segment that was delivered to its end."""
        return self._cursor.successors

    @property
    def begin_offset(self) -> int | None:
        """The first offset of delivery; None until the broker reports it, or if offsets below the start are skipped."""
        return self._cursor.begin_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last delivered one. Requires ``ended``."""
        return self._cursor.end_offset

    def take(self) -> FetchedRows | None:
        """Take the oldest rows, if any. An undecodable frame sets ``error``."""
        if not self._arrived:
            return None
        frame, wanted = self._arrived.popleft()
        self._credit.taken(frame.header.frame_bytes)
        self._give_credit.set()
        try:
            return self._decoded(frame, wanted)
        except SeaweedMQError as error:
            self.error = unraised(error)
            self._arrived.clear()
            return None

    def _decoded(self, frame: Frame, wanted: range) -> FetchedRows:
        """Decode the wanted rows of a frame."""
        header = frame.header
        batch = decode_frame(frame, self._owner.schema if header.schema_version else None)
        arrived = FetchedRows(self._origin, batch, header.flags, header.base_offset, header.timestamp_min)
        if len(wanted) < len(arrived):
            arrived = arrived.slice(wanted.start - header.base_offset, len(wanted))
        return arrived

    async def run(self) -> None:
        """Read until the end or an error, which both show in the attributes. Cancel to stop."""
        loop = asyncio.get_running_loop()
        config = self._cluster.config
        self._reached_at = loop.time()
        try:
            while not self._cursor.ended:
                async for attempt in retrying(
                    config, self._cluster.env.rng, lambda: loop.time() > self._reached_at + config.read_retry_timeout_s
                ):
                    with attempt:
                        await self._session()
        except SeaweedMQError as error:
            self.error = unraised(error)
        self._owner.on_arrived(self)

    async def _session(self) -> None:
        cursor = self._cursor
        description = await self._owner.description(self._refresh, (cursor.segment.id,))
        self._refresh = True
        found = description.segment(cursor.segment.id)
        if found is None:
            cursor.pruned(description)
            return
        cursor.segment = found
        self._got_frames = False
        topic_uid = description.topic.uid
        try:
            await self._stream(self._cluster.address_of(description, found), topic_uid)
        except NotFound as error:
            # The description had the segment just now: the next one shows whether the topic was deleted.
            raise StaleMetadata(str(error)) from error
        except OutOfRange as error:
            if not cursor.may_be_beyond:
                raise
            await self._begin_beyond(self._cluster.address_of(description, found), topic_uid, error)
        except SeaweedMQError as error:
            if not (is_retryable(error) and self._got_frames):
                raise

    async def _begin_beyond(self, address: str, topic_uid: int, refusal: OutOfRange) -> None:
        """Handle a rejected start offset: if it is beyond the end, begin at the end and skip offsets below it.

        The broker's rejection is raised if it is not, and Unavailable if the broker does not report the end.
        """
        async with self._open_stream(address, self._requests(subscribe.LATEST, topic_uid, asyncio.Event())) as stream:
            first = await anext(stream.replies, None)
        if not isinstance(first, subscribe.SubscribeReady):
            raise Unavailable(f"broker {address} did not report the end of {self.segment}: retry")
        if not self._cursor.begin_beyond(first.start_offset):
            raise refusal

    def _open_stream(
        self, address: str, requests: AsyncIterator[subscribe.SubscribeRequest]
    ) -> AbstractAsyncContextManager[BrokerStream[subscribe.SubscribeReply]]:
        return broker_stream(self._cluster, address, lambda api: api.subscribe(requests), str(self.segment))

    async def _stream(self, address: str, topic_uid: int) -> None:
        """Receive until the end of the segment, or until ``stop_offset``."""
        loop = asyncio.get_running_loop()
        cursor = self._cursor
        self._give_credit = asyncio.Event()
        requests = self._requests(cursor.start, topic_uid, self._give_credit)
        ready = False
        assembler = FrameAssembler()
        try:
            async with self._open_stream(address, requests) as stream:
                async for received in stream.replies:
                    reply = assembler.add(received)
                    if reply is None:
                        continue
                    if isinstance(reply, subscribe.SubscribeFrames):
                        self._receive(reply)
                        self._got_frames = True
                    elif isinstance(reply, subscribe.SubscribeReady):
                        ready = True
                        stream.expect(None)
                        cursor.ready(reply.start_offset)
                    elif isinstance(reply, subscribe.SubscribeSkipped):
                        missing = cursor.skipped(reply.start_offset, reply.end_offset)
                        if missing:
                            self._owner.on_skipped(self.segment, missing)
                    else:
                        cursor.end(reply)
                    if cursor.ended:
                        return
        finally:
            if ready:
                self._reached_at = loop.time()
        raise Unavailable(f"broker {address} ended the stream from {self.segment}: retry")

    def _receive(self, reply: subscribe.SubscribeFrames) -> None:
        """Take in frames; StaleMetadata if the topic adopted a schema meanwhile.

        The next session queries it outside of this stream, so that its broker is not blamed for a missing answer.
        """
        self._credit.received(len(reply.data))
        try:
            for frame in split_frames(reply.data):
                self._take_in(frame)
        finally:
            if self._arrived:
                self._owner.on_arrived(self)
            else:
                self._give_credit.set()

    def _take_in(self, frame: Frame) -> None:
        header = frame.header
        wanted = self._cursor.wanted(header.base_offset, header.end_offset)
        if wanted:
            if header.schema_version and self._owner.schema is None:
                raise StaleMetadata(f"{self.segment} has records of a schema that is not known here yet: retry")
            if self.error is None:
                self._credit.hold(header.frame_bytes)
                self._arrived.append((frame, wanted))
        self._cursor.passed(header.end_offset)

    async def _requests(
        self, start: subscribe.Start, topic_uid: int, give_credit: asyncio.Event
    ) -> AsyncIterator[subscribe.SubscribeRequest]:
        yield subscribe.SubscribeOpen(
            topic=self._topic,
            segment=self.segment.id,
            start=start,
            credit_bytes=self._credit.open(self._owner.share_bytes()),
            topic_uid=topic_uid,
            skip_missing=self._owner.skips_missing,
            takes_pieces=True,
        )
        while True:
            await give_credit.wait()
            give_credit.clear()
            more = self._credit.more(self._owner.share_bytes())
            if more:
                yield subscribe.SubscribeCredit(more)
