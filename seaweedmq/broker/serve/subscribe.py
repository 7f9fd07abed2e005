"""Native subscribe listener: a stream of one segment's frames, bounded by the client's credit."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager

from seaweedmq.broker.memory.broker_memory import BrokerMemory
from seaweedmq.broker.memory.sending import STALL_S, Sending
from seaweedmq.broker.serve.lookup import Lookup, ServedSegment
from seaweedmq.broker.serve.tail import Tail, Tails, TailState
from seaweedmq.codec.frame import HEADER_BYTES, split_payload
from seaweedmq.errors import Closed, DataLoss, OutOfRange, ProtocolViolation, SeaweedMQError, fresh, unraised
from seaweedmq.model.messages.call_context import CallContext
from seaweedmq.model.messages.frames import (
    LARGE_MESSAGE_BYTES,
    SENT_PIECE_BYTES,
    SMALL_MESSAGE_BYTES,
    FrameHead,
    Frames,
)
from seaweedmq.model.messages.subscribe import (
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
from seaweedmq.rpc.messages.frames import pack_frames
from seaweedmq.runtime.signal import Signal
from seaweedmq.storage.read.recovery import earliest_offset
from seaweedmq.storage.read.time_search import find_offset_by_time

CREDIT_BYTES_MAX = 256 * 1024 * 1024
"""Most credit in bytes, per request and in total."""


class SubscribeService:
    """The server side of all subscribe streams."""

    def __init__(self, lookup: Lookup, store: SegmentStore, tails: Tails, memory: BrokerMemory) -> None:
        self._lookup = lookup
        self._store = store
        self._tails = tails
        self.sending = Sending(memory.sending, memory.logs)
        """The memory of messages on their way to subscribers."""

    async def subscribe(
        self, requests: AsyncIterator[SubscribeRequest], context: CallContext
    ) -> AsyncIterator[SubscribeReply]:
        """Serve one subscribe stream: see ``ports.BrokerApi.subscribe``."""
        opening = await anext(requests, None)
        if not isinstance(opening, SubscribeOpen):
            raise ProtocolViolation("subscribe stream does not begin with SubscribeOpen: send that first")
        found = await self._lookup.segment(opening.topic, opening.segment, opening.topic_uid)
        start = await self._resolve(found, opening.start, skip_missing=opening.skip_missing)
        yield SubscribeReady(start_offset=start, high_watermark=found.high_watermark)
        tail = self._tails.at(found, start)
        credit = _Credit(opening.credit_bytes)
        reading = asyncio.create_task(credit.read(requests), name=f"credit for {found.segment} of {context.peer}")
        try:
            async with aclosing(self._deliver(tail, credit, opening)) as replies:
                async for reply in replies:
                    yield reply
                    del reply  # a paused stream must hold no memory
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _deliver(
        self, tail: Tail, credit: "_Credit", opening: SubscribeOpen
    ) -> AsyncGenerator[SubscribeReply, None]:
        try:
            while (state := await tail.poll()) is not TailState.ENDED:
                credit.check()
                if state is TailState.CAUGHT_UP:
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
                    if not opening.skip_missing:
                        raise
                    skipped = await tail.skip(loss)
                    yield SubscribeSkipped(start_offset=skipped.start, end_offset=skipped.stop)
                    continue
                if is_ready:
                    size, held = await self._memory_for(tail, credit)
                    with self.sending.writing(held), _passing_on(tail):
                        taken = tail.take(size)
                        if taken is not None:
                            credit.spend(sum(map(len, taken.parts)))
                            for message in _messages(taken.parts, in_pieces=opening.takes_pieces):
                                yield message
                                del message
                    del taken
            yield SubscribeEnd(end_offset=tail.found.high_watermark, successors=tail.found.segment.successors)
        finally:
            await tail.close()

    async def _memory_for(self, tail: Tail, credit: "_Credit") -> tuple[int, int]:
        """Return the size of the next frames in bytes and the memory reserved for them.

        With memory available, the size is as much as credit and one large message allow. Otherwise small messages are
        sent at any time, and a large frame once there is memory. A frame too large for one message is sent alone.
        """
        size = tail.next_bytes(min(LARGE_MESSAGE_BYTES, credit.bytes))
        held = self.sending.take_now(size)
        if held is None:
            size = tail.next_bytes(min(SMALL_MESSAGE_BYTES, credit.bytes))
            held = await self.sending.take(size)
        return size, held

    async def _resolve(self, found: ServedSegment, start: Start, *, skip_missing: bool) -> int:
        """Return the offset at which delivery begins, never below the earliest retained record."""
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


def _messages(parts: Sequence[Frames], *, in_pieces: bool) -> Iterator[SubscribeFrames | FrameHead]:
    """Yield one message, or the head and the payload parts of a frame that is too large for one.

    One message is a copy, so the chunk or the log may free the frames while the message is written. A large frame stays
    in place until its last part is written. The memory reserved for it covers it.
    """
    if not in_pieces or sum(map(len, parts)) <= LARGE_MESSAGE_BYTES:
        yield SubscribeFrames(pack_frames(parts))
        return
    first = memoryview(parts[0])
    payload = first[HEADER_BYTES:] if len(parts) == 1 else parts[1]
    yield FrameHead(bytes(first[:HEADER_BYTES]))
    for piece in split_payload(payload, SENT_PIECE_BYTES):
        yield SubscribeFrames(piece)


@contextmanager
def _passing_on(tail: Tail) -> Iterator[None]:
    """Offer the tail's read permit to others while the writing of a message stalls for ``STALL_S`` or longer."""
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
    """The bytes that the client is ready to receive.

    The last frame sent may exceed the credit, so that a credit smaller than one frame does not stall the stream.
    """

    def __init__(self, credit_bytes: int) -> None:
        self.bytes = 0
        self.broken = Signal()
        """Signal that the client broke the protocol, for a stream that waits for records and not for credit."""
        self._changed = Signal()
        self._end: SeaweedMQError | None = None
        self._add(credit_bytes)

    async def read(self, requests: AsyncIterator[SubscribeRequest]) -> None:
        """Add credit as it arrives, until the client closes its side or breaks the protocol."""
        try:
            async for request in requests:
                if not isinstance(request, SubscribeCredit):
                    raise ProtocolViolation("second SubscribeOpen in one subscribe stream: send only credit")
                self._add(request.credit_bytes)
                self._changed.fire()
            self._end = Closed("client closed its side of the stream and has no credit left")
        except SeaweedMQError as error:
            self._end = unraised(error)
            self.broken.fire()
        finally:
            self._changed.fire()

    async def change(self) -> None:
        """Wait for more credit; raise ProtocolViolation or Closed if the client broke the protocol or closed."""
        if self._end:
            raise fresh(self._end)
        await self._changed.wait()

    def check(self) -> None:
        """Raise ProtocolViolation if the client broke the protocol."""
        if isinstance(self._end, ProtocolViolation):
            raise fresh(self._end)

    def spend(self, size_bytes: int) -> None:
        """Subtract the bytes sent. The balance may fall below zero by part of one frame."""
        self.bytes -= size_bytes

    def _add(self, credit_bytes: int) -> None:
        if not 0 < credit_bytes <= CREDIT_BYTES_MAX:
            raise ProtocolViolation(f"credit of {credit_bytes} bytes is out of range: grant 1 to {CREDIT_BYTES_MAX}")
        self.bytes = min(self.bytes + credit_bytes, CREDIT_BYTES_MAX)
