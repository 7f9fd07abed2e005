"""The native door for subscribers: a stream of one segment's frames, never more than the client has credit for."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

from seaweedmq.broker.memory.sending import STALL_S, Sending
from seaweedmq.broker.memory.shares import BrokerMemory
from seaweedmq.broker.serve.lookup import Found, Lookup
from seaweedmq.broker.serve.tail import Standing, Tail, Tails, Taken
from seaweedmq.errors import (
    Closed,
    DataLoss,
    OutOfRange,
    ProtocolViolation,
    SeaweedMQError,
    fresh,
)
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
    SubscribeSkipped,
)
from seaweedmq.ports import SegmentStore
from seaweedmq.rpc.frames import pack_frames
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.read.recovery import earliest_offset
from seaweedmq.storage.read.time_search import find_offset_by_time

CREDIT_BYTES_MAX = 256 * 1024 * 1024


class SubscribeService:
    """Serves subscribe streams."""

    def __init__(self, lookup: Lookup, store: SegmentStore, tails: Tails, memory: BrokerMemory) -> None:
        self._lookup = lookup
        self._store = store
        self._tails = tails
        self.sending = Sending(memory.sending, memory.logs)
        """Memory of what is on its way to subscribers."""

    async def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        """See ``ports.BrokerApi.subscribe``."""
        opening = await anext(requests, None)
        if not isinstance(opening, SubscribeOpen):
            raise ProtocolViolation("a subscribe stream begins with SubscribeOpen: send that first")
        found = await self._lookup.segment(opening.topic, opening.segment, opening.topic_uid)
        start = await self._resolve(found, opening.start, skip_missing=opening.skip_missing)
        yield SubscribeReady(start_offset=start, high_watermark=found.high_watermark)
        tail = self._tails.at(found, start)
        credit = _Credit(opening.credit_bytes)
        reading = asyncio.create_task(credit.read(requests), name=f"credit for {found.segment}")
        try:
            async with aclosing(self._deliver(tail, credit, opening.skip_missing)) as replies:
                async for reply in replies:
                    yield reply
                    del reply  # a paused stream holds nothing
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _deliver(self, tail: Tail, credit: "_Credit", skip_missing: bool) -> AsyncGenerator[SubscribeReply, None]:
        try:
            while (standing := await tail.look()) is not Standing.ENDED:
                credit.check()
                if standing is Standing.CAUGHT_UP:
                    await tail.change(credit.broken)
                    continue
                if credit.bytes <= 0:
                    tail.offer()
                    await credit.change()
                    tail.keep()
                    continue
                try:
                    is_ready = await tail.ready()
                except DataLoss as loss:
                    if not skip_missing:
                        raise
                    skipped = await tail.skip(loss)
                    yield SubscribeSkipped(start_offset=skipped.start, end_offset=skipped.stop)
                    continue
                if is_ready:
                    size, held = await self._memory_for(tail, credit)
                    with self.sending.writing(held), _passing_on(tail):
                        if (message := _message(tail.take(size))) is not None:
                            credit.spend(len(message.data))
                            yield message
                    del message
            yield SubscribeEnd(end_offset=tail.found.high_watermark, successors=tail.found.segment.successors)
        finally:
            await tail.close()

    async def _memory_for(self, tail: Tail, credit: "_Credit") -> tuple[int, int]:
        """Bytes of the next message, and what is held for it: at once as large as credit allows; else small ones go at
        any time, and a large frame when there is memory."""
        size = tail.next_bytes(credit.bytes)
        held = self.sending.take_now(size)
        if held is None:
            size = tail.next_bytes(min(SMALL_MESSAGE_BYTES, credit.bytes))
            held = await self.sending.take(size)
        return size, held

    async def _resolve(self, found: Found, start: Start, *, skip_missing: bool) -> int:
        """Return the offset at which delivery begins, never below what retention left."""
        high_watermark = found.high_watermark
        if start.kind is StartKind.LATEST:
            return high_watermark
        if start.kind is StartKind.TIME:
            at = await find_offset_by_time(
                self._store,
                found.topic,
                found.segment.id,
                start.value,
                high_watermark,
                start_offset=max(found.segment.start_offset, found.low_watermark),
                skip_missing=skip_missing,
            )
            return high_watermark if at is None else at.offset
        earliest = min(await earliest_offset(self._store, found.topic, found.segment), high_watermark)
        if start.kind is StartKind.EARLIEST:
            return earliest
        if start.value < 0 or (start.value > high_watermark and found.open):
            raise OutOfRange(
                f"segment {found.segment} holds offsets {earliest} to {high_watermark}, not {start.value}: "
                "start within them, at 'earliest' or at 'latest'"
            )
        return max(start.value, earliest)


def _message(taken: Taken | None) -> SubscribeFrames | None:
    """A copy of its own: what was read may go, and the log forget, while it is written."""
    return None if taken is None else SubscribeFrames(pack_frames(taken.parts))


@contextmanager
def _passing_on(tail: Tail) -> Iterator[None]:
    """Around the writing of a message: a subscriber that takes nothing for long offers its turn to others."""
    if not tail.reads_files:
        yield
        return
    stalled = asyncio.get_running_loop().call_later(STALL_S, tail.offer)
    try:
        yield
    finally:
        stalled.cancel()
        tail.keep()


class _Credit:
    """Bytes the client is ready to take. The last frame sent may exceed it, so that a small credit does not stall."""

    def __init__(self, credit_bytes: int) -> None:
        self.bytes = 0
        self.broken = Signal()
        """Fires when the client breaks the protocol: who waits for records, and not for credit, has to know."""
        self._changed = Signal()
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
            self.broken.fire()
        finally:
            self._changed.fire()

    async def change(self) -> None:
        """Wait for credit.

        Raises:
            ProtocolViolation: the client broke the protocol.
            Closed: no more can come.
        """
        if self._end:
            raise fresh(self._end)
        await self._changed.wait()

    def check(self) -> None:
        """Raise ProtocolViolation if the client broke the protocol."""
        if isinstance(self._end, ProtocolViolation):
            raise fresh(self._end)

    def spend(self, size_bytes: int) -> None:
        """Count what is sent; the balance may go below zero by a part of one frame."""
        self.bytes -= size_bytes

    def _add(self, credit_bytes: int) -> None:
        if not 0 < credit_bytes <= CREDIT_BYTES_MAX:
            raise ProtocolViolation(f"credit of {credit_bytes} bytes: give 1 to {CREDIT_BYTES_MAX}")
        self.bytes = min(self.bytes + credit_bytes, CREDIT_BYTES_MAX)
