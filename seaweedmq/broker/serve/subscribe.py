"""A subscribe stream: frames from memory where they are, else from files, never more than the client has credit for."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TypeAlias

from seaweedmq.broker.memory.file_turn import FileTurn
from seaweedmq.broker.memory.sending import STALL_S, Sending
from seaweedmq.broker.memory.shares import BrokerMemory
from seaweedmq.broker.serve.lookup import Found, Lookup
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import (
    Closed,
    Corrupt,
    InvalidArgument,
    NotFound,
    OutOfRange,
    ProtocolViolation,
    SeaweedMQError,
    fresh,
)
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.frames import SMALL_MESSAGE_BYTES
from seaweedmq.model.subscribe import (
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
from seaweedmq.rpc.frames import pack_frames
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.recovery import earliest_offset, find_offset_by_time

CREDIT_BYTES_MAX = 256 * 1024 * 1024

Sent: TypeAlias = tuple[int, SubscribeFrames]
"""The offset after a message, and the message."""


class SubscribeService:
    """Serves subscribe streams."""

    def __init__(self, config: BrokerConfig, lookup: Lookup, store: SegmentStore, memory: BrokerMemory) -> None:
        self._config = config
        self._lookup = lookup
        self._store = store
        self._reading = memory.reading
        self._sending = Sending(memory.sending, memory.logs)

    async def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        """See ``ports.BrokerApi.subscribe``."""
        opening = await anext(requests, None)
        if not isinstance(opening, SubscribeOpen):
            raise ProtocolViolation("a subscribe stream begins with SubscribeOpen: send that first")
        found = await self._lookup.segment(opening.topic, opening.segment, opening.topic_uid)
        start = await self._resolve(found, opening.start)
        yield SubscribeReady(start_offset=start, high_watermark=self._high_watermark(found))
        credit = _Credit(opening.credit_bytes, found.open.committed_changed if found.open else Signal())
        reading = asyncio.create_task(credit.read(requests), name=f"credit for {found.segment}")
        try:
            async with aclosing(self._deliver(opening, found.topic.uid, start, credit)) as replies:
                async for reply in replies:
                    yield reply
                    del reply  # a paused stream holds nothing
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
                sending = self._from_memory(segment.log, position, credit)
            else:
                until = (
                    end if end is not None else min(segment.log.cache_start, segment.log.committed) if segment else 0
                )
                sending = self._from_files(found, position, until, credit)
            try:
                async with aclosing(sending) as messages:
                    async for position, message in messages:  # noqa: B007 - the next round begins there
                        self._check_exists(opening.topic, uid)
                        yield message
                        del message
            except (OutOfRange, NotFound, Corrupt) as error:
                self._check_exists(opening.topic, uid)  # with its topic a segment loses its files
                if isinstance(error, Corrupt):
                    await self._check_kept(found, position)
                raise

    async def _check_kept(self, found: Found, position: int) -> None:
        """Raise OutOfRange if retention removed what is wanted, though a file that begins below was left over."""
        if found.topic.has_retention:
            earliest = await earliest_offset(self._store, found.topic, found.segment)
            if position < earliest:
                raise OutOfRange(
                    f"{found.segment}: offset {position} was removed by retention, the lowest that is kept is "
                    f"{earliest}: start from the earliest"
                ) from None

    def _check_exists(self, name: TopicName, uid: int) -> None:
        """Raise NotFound if the topic was deleted, even if another one has its name now."""
        topic = self._lookup.view.topics.get(name)
        if topic is None or topic.uid != uid:
            raise NotFound(f"topic {name} was deleted")

    async def _from_memory(self, log: SegmentLog, position: int, credit: "_Credit") -> AsyncGenerator[Sent, None]:
        """One message of what is there; none if it went to the files while there was no memory to send it."""
        size = _size(log.read(position, min(self._config.read_chunk_bytes, credit.bytes)))
        held = self._sending.take_now(size)
        if held is None:  # a small one goes at any time
            size = _size(log.read(position, min(SMALL_MESSAGE_BYTES, credit.bytes)))
            held = await self._sending.take(size)
        with self._sending.writing(held):
            if position < log.cache_start:
                return
            entries = log.read(position, size)
            packed = pack_frames([part for e in entries for part in (e.header, e.payload)])
            end_offset = entries[-1].end_offset
            del entries  # the log may forget them while this is written
            credit.spend(len(packed))
            yield end_offset, SubscribeFrames(packed)

    async def _from_files(self, found: Found, start: int, end: int, credit: "_Credit") -> AsyncGenerator[Sent, None]:
        """Messages of one turn at reading files, as there is credit for them."""
        chunk_bytes = self._config.read_chunk_bytes
        turn = FileTurn(self._reading, chunk_bytes, credit.largest_bytes, credit.nudge)
        await turn.begin(read_segment(self._store, found.topic, found.segment.id, start, end, chunk_bytes=chunk_bytes))
        loop = asyncio.get_running_loop()
        try:
            while await turn.more():
                if credit.bytes <= 0:
                    turn.offer()
                    await credit.change()
                    turn.keep()
                    continue
                size = turn.next_bytes(credit.bytes)
                held = self._sending.take_now(size)
                if held is None:
                    size = turn.next_bytes(min(SMALL_MESSAGE_BYTES, credit.bytes))
                    held = await self._sending.take(size)
                with self._sending.writing(held):
                    if turn.evicted:
                        break
                    chunk = turn.take(size)
                    end_offset, packed = chunk.end_offset, pack_frames((chunk.data,))
                    del chunk  # it keeps all that was read with it
                    credit.spend(len(packed))
                    stalled = loop.call_later(STALL_S, turn.offer)
                    try:
                        yield end_offset, SubscribeFrames(packed)
                    finally:
                        stalled.cancel()
                        turn.keep()
                del packed
        finally:
            credit.largest_bytes = turn.largest_bytes
            await turn.end()

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


def _size(entries: Sequence[LogEntry]) -> int:
    return sum(e.size_bytes for e in entries)


class _Credit:
    """Bytes the client is ready to take. The last frame sent may exceed it, so that a small credit does not stall.

    ``records`` is fired too when the client breaks the protocol, to wake who waits for records and not for credit.
    """

    def __init__(self, credit_bytes: int, records: Signal) -> None:
        self.bytes = 0
        self.largest_bytes = 0
        """Of what the stream read from files at once."""
        self._changed = Signal()
        self._records = records
        self._end: SeaweedMQError | None = None
        self._add(credit_bytes)

    async def read(self, requests: AsyncIterator[SubscribeRequest]) -> None:
        """Take more credit as it comes."""
        try:
            async for request in requests:
                if not isinstance(request, SubscribeCredit):
                    raise ProtocolViolation("a subscribe stream is opened once: then only credit follows")
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
            await self.change()
        self.check()

    async def change(self) -> None:
        """Wait for credit, or a nudge; raises as ``available``."""
        if self._end:
            raise fresh(self._end)
        await self._changed.wait()

    def nudge(self) -> None:
        """Wake who waits in ``change``."""
        self._changed.fire()

    def check(self) -> None:
        """Raise InvalidArgument if the client broke the protocol."""
        if isinstance(self._end, InvalidArgument | ProtocolViolation):
            raise fresh(self._end)

    def spend(self, size_bytes: int) -> None:
        """Count what is sent; the balance may go below zero by a part of one frame."""
        self.bytes -= size_bytes

    def _add(self, credit_bytes: int) -> None:
        if not 0 < credit_bytes <= CREDIT_BYTES_MAX:
            raise InvalidArgument(f"credit of {credit_bytes} bytes: give 1 to {CREDIT_BYTES_MAX}")
        self.bytes = min(self.bytes + credit_bytes, CREDIT_BYTES_MAX)
