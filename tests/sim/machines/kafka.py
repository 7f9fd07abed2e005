"""A door for Kafka's producers in a simulated broker: what a connection brings is appended and answered in order.

As the gateway's, without its protocol: the same ``Appender`` behind it, the same rules for what was refused.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from seaweedmq.broker.broker import Broker
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.appender import Appender
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.codec.frame import Frame, split_frames
from seaweedmq.core.kafka.refused_sequences import RefusedSequences
from seaweedmq.errors import DuplicateSequence, OutOfOrderSequence, SeaweedMQError, StaleMetadata, Unavailable, fresh
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.publish import FrameAck, PublishAck
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore

COMMITTED_TIMEOUT_S = 3.0


def kafka_address(address: str) -> str:
    """Where the broker of an address listens for Kafka."""
    return f"{address}/kafka"


@dataclass(frozen=True, slots=True)
class Produce:
    """One frame to a partition."""

    topic: TopicName
    partition: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Produced(PublishAck):
    """The answer, in the order of the requests: where the frame is, or what is wrong."""

    segment: int | None = None
    """Of the one frame in ``frames``."""
    error: SeaweedMQError | None = None


class _Appended(NamedTuple):
    to: OpenSegment
    ack: FrameAck
    segment: int
    """Where it is: a repeat may be in an earlier one."""


class KafkaDoor:
    """Served at ``kafka_address``; connections are called publish streams in the simulated network."""

    def __init__(self, broker: Broker, store: SegmentStore, config: BrokerConfig) -> None:
        inspect = broker.inspect
        self._view = inspect.view
        self._lookup = Lookup(inspect.view, inspect.segments, SealedProducers(store))
        self._config = config

    async def publish(self, requests: AsyncIterator[Produce]) -> AsyncIterator[Produced]:
        """One connection."""
        async with aclosing(self._serve(requests)) as replies:
            async for reply in replies:
                yield reply

    async def _serve(self, requests: AsyncIterator[Produce]) -> AsyncGenerator[Produced, None]:
        appended: asyncio.Queue[_Appended | SeaweedMQError | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read(requests, appended), name="Kafka connection")
        try:
            while (outcome := await appended.get()) is not None:
                yield await self._answer(outcome)
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()

    async def _read(
        self, requests: AsyncIterator[Produce], appended: "asyncio.Queue[_Appended | SeaweedMQError | None]"
    ) -> None:
        refused = RefusedSequences()
        try:
            async for request in requests:
                try:
                    appended.put_nowait(await self._append(request, refused))
                except SeaweedMQError as error:
                    appended.put_nowait(error)
        finally:
            appended.put_nowait(None)

    async def _append(self, request: Produce, refused: RefusedSequences) -> _Appended:
        (frame,) = split_frames(request.data)
        header = frame.header
        who = (request.topic, request.partition, header.producer_id)
        is_behind = refused.is_behind(who, header.producer_epoch, header.first_sequence)
        try:
            appended = await self._append_to(request, frame, may_begin=not is_behind)
        except DuplicateSequence:
            raise
        except OutOfOrderSequence as error:
            raise Unavailable(str(error)) if is_behind else error from None
        except SeaweedMQError:
            if not is_behind:
                refused.refuse(who, header.producer_epoch, header.first_sequence)
            raise
        refused.forget(who)
        return appended

    async def _append_to(self, request: Produce, frame: Frame, *, may_begin: bool) -> _Appended:
        segment = self._led(request)
        ack = await Appender(segment, self._lookup, frame_bytes_max=self._config.frame_bytes_max).append(
            frame, may_begin=may_begin
        )
        return _Appended(segment, ack, self._holder(request, segment, ack))

    def _led(self, request: Produce) -> OpenSegment:
        topic = self._view.topics.get(request.topic)
        of_topic = self._view.open_of(request.topic).values()
        segment = next((s for s in of_topic if request.partition in s.slots), None)
        found = None
        if topic is not None and segment is not None:
            found = self._lookup.try_segment(request.topic, segment.id, topic.uid)
        if found is None or found.open is None:
            raise StaleMetadata(f"partition {request.partition} of {request.topic} is not led here")
        return found.open

    def _holder(self, request: Produce, segment: OpenSegment, ack: FrameAck) -> int:
        if ack.base_offset >= segment.segment.start_offset:
            return segment.segment.id
        of_topic = self._view.segments_of(request.topic).values()
        return next(
            s.id
            for s in of_topic
            if request.partition in s.slots
            and s.end_offset is not None
            and s.start_offset <= ack.base_offset < s.end_offset
        )

    async def _answer(self, outcome: _Appended | SeaweedMQError) -> Produced:
        if isinstance(outcome, SeaweedMQError):
            return Produced((), error=outcome)
        try:
            async with asyncio.timeout(COMMITTED_TIMEOUT_S):
                await _committed(outcome.to, outcome.ack.end_offset)
        except SeaweedMQError as error:
            return Produced((), error=error)
        except TimeoutError:
            return Produced((), error=StaleMetadata("not committed in time"))
        return Produced((outcome.ack,), segment=outcome.segment)


async def _committed(segment: OpenSegment, end_offset: int) -> None:
    while segment.log.committed < end_offset:
        if segment.is_closed:
            raise StaleMetadata(f"{segment.segment} has ended")
        if segment.failure:
            raise fresh(segment.failure)
        await segment.committed_changed.wait()
