"""A subscribe stream: frames from memory where they are, else from files, never more than the client has credit for."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from seaweedmq.broker.lookup import Found, Lookup
from seaweedmq.broker.signal import Signal
from seaweedmq.codec.frame import split_frames
from seaweedmq.errors import Closed, Corrupt, InvalidArgument, NotFound, OutOfRange, SeaweedMQError, fresh
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.protocol import (
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
from seaweedmq.ports import SegmentStore
from seaweedmq.rpc.wire import pack_frames
from seaweedmq.storage.chunk import Chunk
from seaweedmq.storage.reader import read_segment
from seaweedmq.storage.recovery import earliest_offset, find_offset_by_time

CREDIT_BYTES_MAX = 256 * 1024 * 1024


class SubscribeService:
    """Serves subscribe streams."""

    def __init__(self, config: BrokerConfig, lookup: Lookup, store: SegmentStore) -> None:
        self._config = config
        self._lookup = lookup
        self._store = store

    async def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        """See ``ports.BrokerApi.subscribe``."""
        opening = await anext(requests, None)
        if not isinstance(opening, SubscribeOpen):
            raise InvalidArgument("a subscribe stream begins with SubscribeOpen: send that first")
        found = await self._lookup.segment(opening.topic, opening.segment, opening.topic_uid)
        start = await self._resolve(found, opening.start)
        yield SubscribeReady(start_offset=start, high_watermark=self._high_watermark(found))
        credit = _Credit(opening.credit_bytes, found.open.committed_changed if found.open else Signal())
        reading = asyncio.create_task(credit.read(requests), name=f"credit for {found.segment}")
        try:
            async with aclosing(self._deliver(opening, found.topic.uid, start, credit)) as replies:
                async for reply in replies:
                    yield reply
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _deliver(
        self, opening: SubscribeOpen, uid: int, start: int, credit: "_Credit"
    ) -> AsyncGenerator[SubscribeReply, None]:
        position = start
        while True:
            self._check_exists(opening.topic, uid)
            found = await self._lookup.segment(opening.topic, opening.segment, uid)
            end = found.segment.end_offset
            if end is not None and position >= end:
                yield SubscribeEnd(end_offset=end, successors=found.segment.successors)
                return
            segment = found.open
            credit.check()
            if segment and position >= segment.log.committed:
                await segment.committed_changed.wait()
                continue
            await credit.available()
            if segment and position >= segment.log.cache_start:
                entries = segment.log.read(position, min(self._config.read_chunk_bytes, credit.bytes))
                if entries:
                    packed = pack_frames([part for e in entries for part in (e.header, e.payload)])
                    position = entries[-1].end_offset
                    credit.spend(len(packed))
                    yield SubscribeFrames(packed)
                continue
            until = end if end is not None else min(segment.log.cache_start, segment.log.committed) if segment else 0
            try:
                async with aclosing(self._from_files(found, position, until, credit)) as runs:
                    async for run in runs:
                        self._check_exists(opening.topic, uid)
                        position = run.end_offset
                        credit.spend(len(run.data))
                        yield SubscribeFrames(run.data)
            except (OutOfRange, NotFound, Corrupt):
                self._check_exists(opening.topic, uid)  # with its topic a segment loses its files
                raise

    def _check_exists(self, name: TopicName, uid: int) -> None:
        """Raise NotFound if the topic was deleted, even if another one has its name now."""
        topic = self._lookup.view.topics.get(name)
        if topic is None or topic.uid != uid:
            raise NotFound(f"topic {name} was deleted")

    async def _from_files(self, found: Found, start: int, end: int, credit: "_Credit") -> AsyncGenerator[Chunk, None]:
        """Frames as there is credit for them."""
        async with aclosing(
            read_segment(
                self._store, found.topic, found.segment.id, start, end, chunk_bytes=self._config.read_chunk_bytes
            )
        ) as chunks:
            async for chunk in chunks:
                rest = chunk
                while rest.data:
                    await credit.available()
                    fitting = _fitting(rest, credit.bytes)
                    yield fitting
                    rest = Chunk(rest.end_offset, memoryview(rest.data)[len(fitting.data) :])

    def _high_watermark(self, found: Found) -> int:
        if found.open:
            return found.open.log.committed
        assert found.segment.end_offset is not None
        return found.segment.end_offset

    async def _resolve(self, found: Found, start: Start) -> int:
        """The offset at which delivery begins, never below what retention left."""
        high_watermark = self._high_watermark(found)
        if start.kind is StartKind.LATEST:
            return high_watermark
        if start.kind is StartKind.TIME:
            return await find_offset_by_time(self._store, found.topic, found.segment.id, start.value, high_watermark)
        earliest = min(await earliest_offset(self._store, found.topic, found.segment), high_watermark)
        if start.kind is StartKind.EARLIEST:
            return earliest
        if start.value < 0 or (start.value > high_watermark and found.open):
            raise OutOfRange(
                f"segment {found.segment} holds offsets {earliest} to {high_watermark}, not {start.value}: "
                "start within them, at 'earliest' or at 'latest'"
            )
        return max(start.value, earliest)


def _fitting(chunk: Chunk, size_bytes: int) -> Chunk:
    """The frames at the beginning that fit, the first one at least."""
    if len(chunk.data) <= size_bytes:
        return chunk
    fitting, end_offset = 0, 0
    for frame in split_frames(chunk.data, verify=False):
        if fitting and fitting + frame.header.frame_bytes > size_bytes:
            break
        fitting += frame.header.frame_bytes
        end_offset = frame.header.end_offset
    return Chunk(end_offset, memoryview(chunk.data)[:fitting])


class _Credit:
    """Bytes the client is ready to take. The last frame sent may exceed it, so that a small credit does not stall.

    ``records`` is fired too when the client breaks the protocol, to wake who waits for records and not for credit.
    """

    def __init__(self, credit_bytes: int, records: Signal) -> None:
        self.bytes = 0
        self._changed = Signal()
        self._records = records
        self._end: SeaweedMQError | None = None
        self._add(credit_bytes)

    async def read(self, requests: AsyncIterator[SubscribeRequest]) -> None:
        """Take more credit as it comes."""
        try:
            async for request in requests:
                if not isinstance(request, SubscribeCredit):
                    raise InvalidArgument("a subscribe stream is opened once: after SubscribeOpen only credit follows")
                self._add(request.credit_bytes)
                self._changed.fire()
            self._end = Closed("the client closed its side of the stream and has no credit left")
        except SeaweedMQError as error:
            self._end = error
            self._records.fire()
        finally:
            self._changed.fire()

    async def available(self) -> None:
        """Wait for credit.

        Raises:
            InvalidArgument: the client broke the protocol.
            Closed: there is none left, and no more can come.
        """
        while self.bytes <= 0:
            if self._end:
                raise fresh(self._end)
            await self._changed.wait()
        self.check()

    def check(self) -> None:
        """Raise InvalidArgument if the client broke the protocol."""
        if isinstance(self._end, InvalidArgument):
            raise fresh(self._end)

    def spend(self, size_bytes: int) -> None:
        """Count what is sent; the balance may go below zero by a part of one frame."""
        self.bytes -= size_bytes

    def _add(self, credit_bytes: int) -> None:
        if not 0 < credit_bytes <= CREDIT_BYTES_MAX:
            raise InvalidArgument(f"credit of {credit_bytes} bytes: give 1 to {CREDIT_BYTES_MAX}")
        self.bytes = min(self.bytes + credit_bytes, CREDIT_BYTES_MAX)
