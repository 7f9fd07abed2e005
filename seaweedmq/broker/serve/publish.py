"""A publish stream: check frames at the door, append them, acknowledge them once they are committed."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, closing

import pyarrow as pa

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.intake import Intake
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.codec.frame import Frame, FrameHeader, split_frames
from seaweedmq.codec.payload.batch import validate_payload
from seaweedmq.errors import Fenced, InvalidArgument, ProtocolViolation, StaleMetadata, fresh
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.frames import FrameHead, Frames
from seaweedmq.model.publish import (
    FrameAck,
    PublishAck,
    PublishFrames,
    PublishOpen,
    PublishReady,
    PublishReply,
    PublishRequest,
    PublishSealed,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import SegmentStore
from seaweedmq.runtime.signal import Signal


class PublishService:
    """Serves publish streams."""

    def __init__(self, config: BrokerConfig, lookup: Lookup, store: SegmentStore, intake: MemoryBudget) -> None:
        self._config = config
        self._intake = intake
        self._lookup = lookup
        self._sealed_producers = SealedProducers(store)
        self._latest: dict[tuple[OpenSegment, int], _Stream] = {}
        """The stream that appends for a producer to a segment: the newest. Bounded by the streams there are."""

    async def publish(self, requests: AsyncIterator[PublishRequest]) -> AsyncIterator[PublishReply]:
        """See ``ports.BrokerApi.publish``."""
        with closing(Intake(self._intake)) as intake:
            async with aclosing(self._serve(requests, intake)) as replies:
                async for reply in replies:
                    yield reply

    async def _serve(
        self, requests: AsyncIterator[PublishRequest], intake: Intake
    ) -> AsyncGenerator[PublishReply, None]:
        opening = await anext(requests, None)
        if not isinstance(opening, PublishOpen):
            raise ProtocolViolation("a publish stream begins with PublishOpen: send that first")
        found = await self._lookup.segment(opening.topic, opening.segment, opening.topic_uid)
        if opening.epoch != found.segment.epoch:
            raise StaleMetadata(
                f"segment {found.segment} has epoch {found.segment.epoch}, not {opening.epoch}: refresh the metadata"
            )
        if found.open is None:
            yield await self._sealed(found.topic, found.segment, opening, opening.first_sequence)
            return
        segment = found.open
        segment.check_open()
        stream = self._open(opening, segment, intake)
        try:
            yield PublishReady(
                next_sequence=stream.next_sequence,
                frame_bytes_max=self._config.frame_bytes_max,
                in_flight_frames_max=self._config.stream_in_flight_frames_max,
                in_flight_bytes_max=self._config.stream_in_flight_bytes_max,
                message_bytes_max=intake.message_bytes_max,
            )
            async with aclosing(stream.serve(requests)) as acknowledgements:
                async for acks in acknowledgements:
                    yield acks
        finally:
            self._close(stream)
        if not segment.is_closed:
            stream.result()  # the client ended the stream, or sent what was refused
            return
        sealed = self._lookup.try_segment(opening.topic, opening.segment, segment.topic.uid)
        if sealed is None or sealed.segment.is_open:
            assert segment.closed is not None
            raise fresh(segment.closed)
        yield await self._sealed(sealed.topic, sealed.segment, opening, stream.settled)

    def _open(self, opening: PublishOpen, segment: OpenSegment, intake: Intake) -> "_Stream":
        """A stream that appends from now on. In one step with the end of the producer's earlier stream: a client that
        reconnected numbers its frames from where it is told to begin, and a frame still on its way must not take one of
        those numbers."""
        next_sequence = segment.log.producers.open(
            opening.producer_id, opening.producer_epoch, opening.first_sequence, asyncio.get_running_loop().time()
        )
        older = self._latest.get((segment, opening.producer_id))
        if older is not None:
            older.supersede()
        stream = _Stream(self._config, self._lookup, opening, segment, intake, next_sequence)
        self._latest[segment, opening.producer_id] = stream
        return stream

    def _close(self, stream: "_Stream") -> None:
        key = stream.segment, stream.opening.producer_id
        if self._latest.get(key) is stream:
            del self._latest[key]
        stream.segment.log.producers.close(stream.opening.producer_id, asyncio.get_running_loop().time())

    async def _sealed(self, topic: Topic, segment: Segment, opening: PublishOpen, first: int) -> PublishSealed:
        """What a sealed segment holds of this producer, which repeats nothing below ``first``."""
        assert segment.end_offset is not None
        next_sequence, recent = await self._sealed_producers.progress(
            topic, segment, opening.producer_id, opening.producer_epoch, first
        )
        return PublishSealed(
            end_offset=segment.end_offset,
            next_sequence=next_sequence,
            recent=recent,
            successors=segment.successors,
        )


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Its error matters only while somebody listens: with a lost connection or a sealed segment nobody does."""
    if not task.cancelled():
        task.exception()


def _frames_of(request: PublishRequest | None) -> Frames | None:
    return request.data if isinstance(request, PublishFrames) else None


class _Stream:
    """One stream's frames between arrival and acknowledgement, in order."""

    def __init__(
        self,
        config: BrokerConfig,
        lookup: Lookup,
        opening: PublishOpen,
        segment: OpenSegment,
        intake: Intake,
        next_sequence: int,
    ) -> None:
        self.opening = opening
        self.segment = segment
        self.next_sequence = next_sequence
        """Where it begins."""
        self.settled = min(opening.first_sequence, next_sequence)
        """The producer repeats nothing below: it has said so, was told to begin there, or got it acknowledged."""
        self._config = config
        self._intake = intake
        self._lookup = lookup
        self._pending: deque[FrameAck] = deque()
        """Appended, not yet told to the client. Bounded by ``stream_in_flight_frames_max``."""
        self._told = Signal()
        """The client got acknowledgements."""
        self._news = Signal()
        """What concerns this stream alone, and should wake no other: thousands may share a segment."""
        self._is_admitting = False
        """A frame waits for memory, or was refused."""
        self._is_superseded = False
        self._reading: asyncio.Task[None] | None = None

    def supersede(self) -> None:
        """The producer has opened a newer stream: append nothing from now on."""
        self._is_superseded = True
        if self._reading is not None:
            self._reading.cancel()

    async def serve(self, requests: AsyncIterator[PublishRequest]) -> AsyncGenerator[PublishAck, None]:
        """Append what comes, acknowledge what is committed, until the stream has ended and nothing more will come."""
        if self._is_superseded:
            return
        self._reading = asyncio.create_task(self._read(requests), name=f"publish to {self.segment.segment}")
        self._reading.add_done_callback(_retrieve)
        try:
            async with aclosing(self._acknowledgements(self._reading)) as acknowledgements:
                async for acks in acknowledgements:
                    yield acks
        finally:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    def result(self) -> None:
        """Raise what ended the stream, if the client did not."""
        if self._is_superseded:
            raise self._superseded()
        assert self._reading is not None
        self._reading.result()

    def _superseded(self) -> Fenced:
        return Fenced(
            f"producer {self.opening.producer_id} opened a newer stream to {self.segment.segment}: stop this one"
        )

    async def _read(self, requests: AsyncIterator[PublishRequest]) -> None:
        """Append what comes until the client ends the stream. Raises at the first frame that is refused."""
        try:
            async for request in requests:
                if isinstance(request, FrameHead):
                    await self._until_acknowledged()
                    await self._take_large(request, requests)
                    continue
                if not isinstance(request, PublishFrames):
                    raise ProtocolViolation("a publish stream is opened once: after PublishOpen only frames may follow")
                self._intake.check(request.data)
                for frame in split_frames(request.data):
                    await self._until_acknowledged()
                    await self._take(frame)
        finally:
            self._news.fire()

    async def _until_acknowledged(self) -> None:
        while len(self._pending) >= self._config.stream_in_flight_frames_max:
            await self._told.wait()

    async def _acknowledgements(self, reading: "asyncio.Task[None]") -> AsyncGenerator[PublishAck, None]:
        """Acknowledgements of what is committed, until the stream has ended and nothing more will come."""
        segment = self.segment
        while True:
            acks = self._committed()
            if acks:
                self._told.fire()
                yield PublishAck(acks)
                continue
            if segment.is_closed or (reading.done() and not self._pending):
                return
            if segment.failure and (self._pending or self._is_admitting):
                raise fresh(segment.failure)
            await segment.committed_changed.wait(self._news)

    def _committed(self) -> tuple[FrameAck, ...]:
        committed = self.segment.log.committed
        acks = []
        while self._pending and self._pending[0].base_offset + self._pending[0].record_count <= committed:
            acks.append(self._pending.popleft())
        if acks:
            self.settled = acks[-1].first_sequence + acks[-1].record_count
        return tuple(acks)

    async def _take(self, frame: Frame) -> None:
        self._check(frame)
        self._is_admitting = True
        await self.segment.admit(frame.header.frame_bytes)
        await self._append(frame)

    async def _take_large(self, head: FrameHead, requests: AsyncIterator[PublishRequest]) -> None:
        """As ``_take``, but there is memory for the frame before its payload is taken in."""
        header, segment = self._intake.header(head), self.segment
        self._check_header(header)
        self._is_admitting = True
        await segment.admit(header.frame_bytes)
        try:
            frame = await self._intake.frame(head, requests, _frames_of)
            self._check(frame)
        except BaseException:
            segment.release(header.frame_bytes)
            raise
        await self._append(frame)

    async def _append(self, frame: Frame) -> None:
        """Of an admitted frame."""
        header, segment = frame.header, self.segment
        size = header.frame_bytes
        try:
            await self._schema_decided(header.schema_version)
            self._is_admitting = False
            if self._is_superseded:
                raise self._superseded()
            ack = segment.log.find_repeat(
                header.producer_id, header.producer_epoch, header.first_sequence, header.record_count
            )
        except BaseException:
            segment.release(size)
            raise
        if ack is None:
            ack = segment.append(frame)
        else:
            segment.release(size)
            self._news.fire()
        self._pending.append(ack)

    def _check(self, frame: Frame) -> None:
        self._check_header(frame.header)
        validate_payload(frame.header, frame.payload, self._schema(frame.header.schema_version))

    def _check_header(self, header: FrameHeader) -> None:
        opening, slots = self.opening, self.segment.segment.slots
        if header.frame_bytes > self._config.frame_bytes_max:
            raise InvalidArgument(
                f"a frame of {header.frame_bytes} bytes is above the limit of {self._config.frame_bytes_max}: "
                "send smaller batches, or raise frame_bytes_max on every broker"
            )
        if (header.producer_id, header.producer_epoch) != (opening.producer_id, opening.producer_epoch):
            raise InvalidArgument(
                f"a frame of producer {header.producer_id} epoch {header.producer_epoch} came on the stream of "
                f"producer {opening.producer_id} epoch {opening.producer_epoch}: open a stream for each"
            )
        if not slots.covers(header.slot_min, header.slot_max):
            raise StaleMetadata(
                f"a frame with key slots {header.slot_min} to {header.slot_max} came to segment "
                f"{self.segment.segment}, which holds {slots}: refresh the metadata and route by key"
            )

    async def _schema_decided(self, version: int) -> None:
        """While the topic may get a schema if it is empty, plain frames wait. Raises if this one may not be appended
        now, after all waiting: nothing may come between that and the append."""
        view = self._lookup.view
        while version == 0 and self._topic().adopting is not None:
            await view.wait_change(view.changes)
        self._schema(version)
        self.segment.check_open()

    def _topic(self) -> Topic:
        """As the metadata have it now."""
        mine = self.segment.topic
        topic = self._lookup.view.topics.get(mine.name, mine)
        return topic if topic.uid == mine.uid else mine

    def _schema(self, version: int) -> pa.Schema | None:
        topic = self._topic()
        if version < topic.schema_version:
            raise InvalidArgument(
                f"a plain frame came to topic {topic.name}, which has a schema: publish tables that fit it (send_table)"
            )
        if version != topic.schema_version:
            raise StaleMetadata(
                f"a frame with schema version {version} came to topic {topic.name}, which is at version "
                f"{topic.schema_version}: refresh the metadata and send what fits the topic's schema"
            )
        return self._lookup.schema(topic)
