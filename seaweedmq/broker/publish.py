"""A publish stream: check frames at the door, append them, acknowledge them once they are committed."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, closing
from weakref import WeakValueDictionary

import pyarrow as pa

from seaweedmq.broker.budget import MemoryBudget
from seaweedmq.broker.intake import Intake
from seaweedmq.broker.lookup import Lookup
from seaweedmq.broker.segment import OpenSegment
from seaweedmq.broker.signal import Signal
from seaweedmq.codec.batch import validate_payload
from seaweedmq.codec.frame import Frame, FrameHeader, split_frames
from seaweedmq.core.producers import ProducerState
from seaweedmq.errors import Corrupt, Fenced, InvalidArgument, NotFound, SeaweedMQError, StaleMetadata
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.protocol import (
    FrameAck,
    FrameHead,
    Frames,
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
from seaweedmq.storage.recovery import recover_segment

log = logging.getLogger(__name__)

RECOVERED_PRODUCERS_MAX = 4_000
"""Of sealed segments, kept in memory: some 2 KB each."""


class PublishService:
    """Serves publish streams."""

    def __init__(self, config: BrokerConfig, lookup: Lookup, store: SegmentStore, intake: MemoryBudget) -> None:
        self._config = config
        self._intake = intake
        self._lookup = lookup
        self._store = store
        self._recovered = _Recovered(store)
        self._readers: dict[tuple[OpenSegment, int], asyncio.Task[None]] = {}
        """The stream that appends for a producer to a segment: the latest. Bounded by the streams there are."""

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
            raise InvalidArgument("a publish stream begins with PublishOpen: send that first")
        found = await self._lookup.segment(opening.topic, opening.segment)
        if opening.epoch != found.segment.epoch:
            raise StaleMetadata(
                f"segment {found.segment} has epoch {found.segment.epoch}, not {opening.epoch}: refresh the metadata"
            )
        if found.open is None:
            yield await self._sealed(found.topic, found.segment, opening)
            return
        found.open.check_open()
        await self._end_older_stream(found.open, opening.producer_id)
        state = found.open.log.producers.state(opening.producer_id, opening.producer_epoch)
        yield PublishReady(
            next_sequence=state.next_sequence,
            frame_bytes_max=self._config.frame_bytes_max,
            in_flight_frames_max=self._config.stream_in_flight_frames_max,
            in_flight_bytes_max=self._config.stream_in_flight_bytes_max,
            message_bytes_max=intake.message_bytes_max,
        )
        segment = found.open
        stream = _Stream(self._config, self._lookup, opening, segment, intake)
        reading = asyncio.create_task(stream.read(requests), name=f"publish to {segment.segment}")
        reading.add_done_callback(_retrieve)
        reader = (segment, opening.producer_id)
        self._readers[reader] = reading
        try:
            async with aclosing(stream.acknowledgements(reading)) as acknowledgements:
                async for acks in acknowledgements:
                    yield acks
        finally:
            if self._readers.get(reader) is reading:
                del self._readers[reader]
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # told below, unless the segment's end is the better answer
        if not segment.closed_hard:
            if reading.cancelled():
                raise Fenced(
                    f"producer {opening.producer_id} opened a newer stream to {segment.segment}: stop this one"
                )
            reading.result()  # the client ended the stream, or sent what was refused
            return
        sealed = self._lookup.try_segment(opening.topic, opening.segment)
        if sealed is None or sealed.segment.is_open or sealed.topic.uid != segment.topic.uid:
            assert segment.closed is not None
            raise segment.closed
        yield await self._sealed(sealed.topic, sealed.segment, opening)

    async def _end_older_stream(self, segment: OpenSegment, producer_id: int) -> None:
        """Let no earlier stream of the producer append any more: a client that reconnected numbers its frames from the
        ``next_sequence`` it is told, and a frame still on its way must not take one of those numbers."""
        older = self._readers.pop((segment, producer_id), None)
        if older is not None:
            older.cancel()
            await asyncio.wait({older})

    async def _sealed(self, topic: Topic, segment: Segment, opening: PublishOpen) -> PublishSealed:
        """What a sealed segment holds of this producer: from the log file while it is there, else as recorded."""
        assert segment.end_offset is not None
        me = (opening.producer_id, opening.producer_epoch)
        recorded = next((s for s in segment.sequences if (s.producer_id, s.producer_epoch) == me), None)
        next_sequence = recorded.next_sequence if recorded else 0
        recent: tuple[FrameAck, ...] = ()
        try:
            state = (await self._recovered.producers(topic, segment)).get(me)
            if state is not None:
                next_sequence, recent = state.next_sequence, state.recent
        except (Corrupt, NotFound) as error:
            if recorded is None:
                raise
            log.warning("%s: a publisher gets no offsets of its last frames: %s", segment, error)
        return PublishSealed(
            end_offset=segment.end_offset,
            next_sequence=next_sequence,
            recent=recent,
            successors=segment.successors,
        )


class _Recovered:
    """Producers of sealed segments as the log files have them: all publishers of a segment come back at once when it
    is sealed, and reading the files for each of them costs."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._known: OrderedDict[tuple[int, int], dict[tuple[int, int], ProducerState]] = OrderedDict()
        """(topic uid, segment), the longest unused first -> (producer id, epoch) -> state."""
        self._turns: WeakValueDictionary[tuple[int, int], asyncio.Lock] = WeakValueDictionary()

    async def producers(self, topic: Topic, segment: Segment) -> dict[tuple[int, int], ProducerState]:
        """By (producer id, epoch); raises as ``recover_segment``."""
        key = topic.uid, segment.id
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            if key not in self._known:
                recovered = await recover_segment(self._store, topic, segment)
                self._known[key] = {(p.producer_id, p.producer_epoch): p for p in recovered.producers}
                while len(self._known) > 1 and sum(1 + len(p) for p in self._known.values()) > RECOVERED_PRODUCERS_MAX:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Its error matters only while somebody listens: with a lost connection or a sealed segment nobody does."""
    if not task.cancelled():
        task.exception()


def _frames_of(request: PublishRequest | None) -> Frames | None:
    return request.data if isinstance(request, PublishFrames) else None


class _Stream:
    """One stream's frames between arrival and acknowledgement, in order."""

    def __init__(
        self, config: BrokerConfig, lookup: Lookup, opening: PublishOpen, segment: OpenSegment, intake: Intake
    ) -> None:
        self._config = config
        self._intake = intake
        self._lookup = lookup
        self._opening = opening
        self._segment = segment
        self._pending: deque[FrameAck] = deque()
        """Appended, not yet told to the client. Bounded by ``stream_in_flight_frames_max``."""
        self._acknowledged = Signal()
        self._is_admitting = False
        """A frame waits for memory, or was refused."""

    async def read(self, requests: AsyncIterator[PublishRequest]) -> None:
        """Append what comes until the client ends the stream. Raises at the first frame that is refused."""
        try:
            async for request in requests:
                if isinstance(request, FrameHead):
                    await self._until_acknowledged()
                    await self._take_large(request, requests)
                    continue
                if not isinstance(request, PublishFrames):
                    raise InvalidArgument("a publish stream is opened once: after PublishOpen only frames may follow")
                self._intake.check(request.data)
                for frame in split_frames(request.data):
                    await self._until_acknowledged()
                    await self._take(frame)
        finally:
            self._segment.committed_changed.fire()

    async def _until_acknowledged(self) -> None:
        while len(self._pending) >= self._config.stream_in_flight_frames_max:
            await self._acknowledged.wait()

    async def acknowledgements(self, reading: "asyncio.Task[None]") -> AsyncGenerator[PublishAck, None]:
        """Acknowledgements of what is committed, until the stream has ended and nothing more will come."""
        segment = self._segment
        while True:
            acks = self._committed()
            if acks:
                self._acknowledged.fire()
                yield PublishAck(acks)
                continue
            if segment.closed_hard or (reading.done() and not self._pending):
                return
            if segment.failure and (self._pending or self._is_admitting):
                raise segment.failure
            await segment.committed_changed.wait()

    def _committed(self) -> tuple[FrameAck, ...]:
        committed = self._segment.log.committed
        acks = []
        while self._pending and self._pending[0].base_offset + self._pending[0].record_count <= committed:
            acks.append(self._pending.popleft())
        return tuple(acks)

    async def _take(self, frame: Frame) -> None:
        self._check(frame)
        self._is_admitting = True
        await self._segment.admit(frame.header.frame_bytes)
        self._is_admitting = False
        self._append(frame)

    async def _take_large(self, head: FrameHead, requests: AsyncIterator[PublishRequest]) -> None:
        """As ``_take``, but there is memory for the frame before its payload is taken in."""
        header, segment = self._intake.header(head), self._segment
        self._check_header(header)
        self._is_admitting = True
        await segment.admit(header.frame_bytes)
        try:
            frame = await self._intake.frame(head, requests, _frames_of)
            self._check(frame)
            segment.check_open()
        except BaseException:
            segment.release(header.frame_bytes)
            raise
        self._is_admitting = False
        self._append(frame)

    def _append(self, frame: Frame) -> None:
        """Of an admitted frame."""
        header, segment = frame.header, self._segment
        size = header.frame_bytes
        try:
            ack = segment.log.find_repeat(
                header.producer_id, header.producer_epoch, header.first_sequence, header.record_count
            )
        except SeaweedMQError:
            segment.release(size)
            raise
        if ack is None:
            ack = segment.append(frame)
        else:
            segment.release(size)
            segment.committed_changed.fire()
        self._pending.append(ack)

    def _check(self, frame: Frame) -> None:
        self._check_header(frame.header)
        validate_payload(frame.header, frame.payload, self._schema(frame.header.schema_version))

    def _check_header(self, header: FrameHeader) -> None:
        opening, slots = self._opening, self._segment.segment.slots
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
                f"{self._segment.segment}, which holds {slots}: refresh the metadata and route by key"
            )

    def _schema(self, version: int) -> pa.Schema | None:
        topic = self._lookup.view.topics.get(self._segment.topic.name, self._segment.topic)
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
