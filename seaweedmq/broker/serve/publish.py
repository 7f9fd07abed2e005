"""Native publish listener: a stream of one producer's frames to one segment, and acknowledgements back."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, closing
from traceback import clear_frames

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.intake import Intake
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.appender import Acknowledgements, Appender
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.codec.frame import FrameHeader, split_frames
from seaweedmq.errors import Fenced, ProtocolViolation, ResourceExhausted, SeaweedMQError, StaleMetadata, fresh
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.call_context import CallContext
from seaweedmq.model.messages.frames import FrameHead, Frames
from seaweedmq.model.messages.publish import (
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

IDLE_S = 1.0
"""Idle time in seconds after which a stream may be ended because another one needs its memory. Its client opens it
again with the next record."""


class PublishService:
    """The server side of all publish streams."""

    def __init__(self, config: BrokerConfig, lookup: Lookup, intake: MemoryBudget) -> None:
        self._config = config
        self._intake = intake
        self._lookup = lookup
        self.latest: dict[tuple[OpenSegment, int], _Stream] = {}
        """The newest stream of each producer to each segment, the only one that appends."""
        self._idle: dict[_Stream, float] = {}
        """The idle streams, the longest idle first, with the time of the last activity on the event loop's clock."""

    def end_idle(self) -> bool:
        """End the stream that has been idle the longest, if for at least ``IDLE_S``; return whether one was ended."""
        for stream, since_s in self._idle.items():
            if asyncio.get_running_loop().time() - since_s < IDLE_S:
                return False
            stream.end(
                ResourceExhausted(
                    f"idle publish stream to {stream.segment.segment} ended because another one needs its memory: "
                    "open it again with the next record"
                )
            )
            return True
        return False

    async def publish(
        self, requests: AsyncIterator[PublishRequest], context: CallContext
    ) -> AsyncIterator[PublishReply]:
        """Serve one publish stream: see ``ports.BrokerApi.publish``."""
        with closing(Intake(self._intake)) as intake:
            async with aclosing(self._serve(requests, intake, context)) as replies:
                async for reply in replies:
                    yield reply

    async def _serve(
        self, requests: AsyncIterator[PublishRequest], intake: Intake, context: CallContext
    ) -> AsyncGenerator[PublishReply, None]:
        opening = await anext(requests, None)
        if not isinstance(opening, PublishOpen):
            raise ProtocolViolation("publish stream does not begin with PublishOpen: send that first")
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
                is_new_epoch=stream.is_new_epoch,
            )
            async with aclosing(stream.serve(requests, context)) as acknowledgements:
                async for acks in acknowledgements:
                    yield acks
        finally:
            self._close(stream)
        if not segment.is_closed:
            stream.result()  # the client ended the stream, or sent a rejected frame
            return
        sealed = self._lookup.try_segment(opening.topic, opening.segment, segment.topic.uid)
        if sealed is None or sealed.segment.is_open:
            assert segment.rejection is not None
            raise fresh(segment.rejection)
        yield await self._sealed(sealed.topic, sealed.segment, opening, stream.settled)

    def _open(self, opening: PublishOpen, segment: OpenSegment, intake: Intake) -> "_Stream":
        """Open a stream and end the producer's earlier one, in one step without an await.

        A client that reconnects numbers its frames from the sequence in the reply. A frame of the earlier stream that
        is still on its way must not take one of those sequences.
        """
        is_new_epoch = segment.log.producers.is_new_epoch(opening.producer_id, opening.producer_epoch)
        next_sequence = segment.open_producer(opening.producer_id, opening.producer_epoch, opening.first_sequence)
        older = self.latest.get((segment, opening.producer_id))
        if older is not None:
            older.supersede()
        appender = Appender(segment, self._lookup, frame_bytes_max=self._config.frame_bytes_max)
        in_flight = self._config.stream_in_flight_frames_max
        stream = _Stream(opening, appender, intake, next_sequence, in_flight, self._idle, is_new_epoch=is_new_epoch)
        self.latest[segment, opening.producer_id] = stream
        return stream

    def _close(self, stream: "_Stream") -> None:
        key = stream.segment, stream.opening.producer_id
        if self.latest.get(key) is stream:
            del self.latest[key]
        stream.segment.close_producer(stream.opening.producer_id)

    async def _sealed(self, topic: Topic, segment: Segment, opening: PublishOpen, first: int) -> PublishSealed:
        """Return what a sealed segment holds of this producer, which repeats nothing below sequence ``first``."""
        assert segment.end_offset is not None
        next_sequence, recent = await self._lookup.sealed_producers.progress(
            topic, segment, opening.producer_id, opening.producer_epoch, first
        )
        return PublishSealed(
            end_offset=segment.end_offset,
            next_sequence=next_sequence,
            recent=recent,
            successors=segment.successors,
            is_new_epoch=self._lookup.sealed_producers.is_new_epoch(
                topic, segment, opening.producer_id, opening.producer_epoch
            ),
        )


def _frames_of(request: PublishRequest | None) -> Frames | None:
    return request.data if isinstance(request, PublishFrames) else None


class _Stream:
    """The frames of one stream between arrival and acknowledgement, in order."""

    def __init__(
        self,
        opening: PublishOpen,
        appender: Appender,
        intake: Intake,
        next_sequence: int,
        in_flight_frames_max: int,
        idle: dict["_Stream", float],
        *,
        is_new_epoch: bool,
    ) -> None:
        self.opening = opening
        self.segment = appender.segment
        self.next_sequence = next_sequence
        """The sequence at which the stream begins."""
        self.is_new_epoch = is_new_epoch
        """Whether the segment remembers only an earlier epoch of the producer, as reported to the client."""
        self.settled = min(opening.first_sequence, next_sequence)
        """The sequence below which the producer repeats nothing: by its own request, the start in the reply, or
        acknowledgements."""
        self._appender = appender
        self._intake = intake
        self._in_flight_frames_max = in_flight_frames_max
        self._pending = Acknowledgements(appender)
        """The frames that wait for their acknowledgement, at most ``in_flight_frames_max``."""
        self._idle = idle
        """The service's idle streams, which include this one while it is idle."""
        self._is_taking = False
        """Whether a message is being processed."""
        self._reading: asyncio.Task[None] | None = None
        self._ended_by: SeaweedMQError | None = None

    def supersede(self) -> None:
        """End the stream because the producer has opened a newer one. Nothing more is appended."""
        text = f"producer {self.opening.producer_id} opened a newer stream to {self.segment.segment}: stop this one"
        self.end(Fenced(text))

    def end(self, error: SeaweedMQError) -> None:
        """Append nothing more, and end the stream with this error."""
        self._ended_by = error
        self._idle.pop(self, None)
        self._appender.stop(error)
        if self._reading is not None:
            self._reading.cancel()

    async def serve(
        self, requests: AsyncIterator[PublishRequest], context: CallContext
    ) -> AsyncGenerator[PublishAck, None]:
        """Append arriving frames and yield acknowledgements, until the stream has ended and all are acknowledged."""
        if self._ended_by:
            return
        self._reading = asyncio.create_task(
            self._read(requests), name=f"publish to {self.segment.segment} of {context.peer}"
        )
        self._reading.add_done_callback(self._read_all)
        try:
            self._note_idle()
            while acks := await self._pending.next():
                self.settled = acks[-1].end_sequence
                yield PublishAck(acks)
                self._note_idle()
        finally:
            self._idle.pop(self, None)
            self._reading.cancel()
            await asyncio.wait({self._reading})

    def result(self) -> None:
        """Raise the error that ended the stream; return if the client ended it."""
        if self._ended_by:
            raise fresh(self._ended_by)
        assert self._reading is not None
        self._reading.result()

    def _read_all(self, reading: "asyncio.Task[None]") -> None:
        """Retrieve the error of the reading task: with a lost connection or a sealed segment it has no receiver."""
        if not reading.cancelled():
            reading.exception()
        self._pending.end()

    def _note_idle(self) -> None:
        """Mark the stream as idle if nothing is under way."""
        assert self._reading is not None
        if not (self._is_taking or self._ended_by or self._reading.done()) and self._pending.is_empty:
            self._idle[self] = asyncio.get_running_loop().time()

    async def _read(self, requests: AsyncIterator[PublishRequest]) -> None:
        """Append arriving frames until the client ends the stream. Raises at the first rejected frame."""
        try:
            await self._take_all(requests)
        except BaseException as error:
            # The stream refers to this task, its error and the frames of the traceback, and those to the stream: what
            # they hold of a payload would stay until a garbage collection.
            clear_frames(error.__traceback__)
            raise

    async def _take_all(self, requests: AsyncIterator[PublishRequest]) -> None:
        async for request in requests:
            self._is_taking = True
            self._idle.pop(self, None)
            await self._take(request, requests)
            self._is_taking = False
            self._note_idle()

    async def _take(self, request: PublishRequest, requests: AsyncIterator[PublishRequest]) -> None:
        if isinstance(request, FrameHead):
            await self._pending.fewer_than(self._in_flight_frames_max)
            await self._take_large(request, requests)
            return
        if not isinstance(request, PublishFrames):
            raise ProtocolViolation("second PublishOpen in one publish stream: send only frames after the first")
        self._intake.check(request.data)
        for frame in split_frames(request.data):
            await self._pending.fewer_than(self._in_flight_frames_max)
            self._check_producer(frame.header)
            self._pending.add(await self._appender.append(frame))

    async def _take_large(self, head: FrameHead, requests: AsyncIterator[PublishRequest]) -> None:
        """Append a frame announced by its head: its memory is reserved before its payload is received."""
        header = self._intake.header(head)
        self._check_producer(header)
        self._pending.add(
            await self._appender.append_announced(header, lambda: self._intake.frame(head, requests, _frames_of))
        )

    def _check_producer(self, header: FrameHeader) -> None:
        opening = self.opening
        if (header.producer_id, header.producer_epoch) != (opening.producer_id, opening.producer_epoch):
            raise ProtocolViolation(
                f"frame of producer {header.producer_id} epoch {header.producer_epoch} in the stream of "
                f"producer {opening.producer_id} epoch {opening.producer_epoch}: open a stream for each"
            )
