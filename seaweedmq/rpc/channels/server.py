"""Broker side of channels: one task serves each channel of a stream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from seaweedmq.errors import ProtocolViolation, SeaweedMQError
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, Frames
from seaweedmq.rpc.channels.channel import WINDOW_BYTES, Channel, Outgoing
from seaweedmq.rpc.channels.wire import Ahead, End, Message, Section, Status, read_envelope
from seaweedmq.rpc.status import code_of
from seaweedmq.rpc.transport import MESSAGE_SLACK_BYTES
from seaweedmq.runtime.closing import closing
from seaweedmq.runtime.signal import Signal

Q = TypeVar("Q")
R = TypeVar("R")

LAST_WRITE_S = 1.0
"""Seconds for which the end of a stream waits for an unfinished write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHandler(Generic[Q, R]):
    """A handler of the channels of one method."""

    name: str
    answer: Callable[[AsyncIterator[Q]], AsyncIterator[R]]
    decode: Callable[[Frames], Q]
    encode: Callable[[R], bytes]
    admitted: Callable[[], AbstractAsyncContextManager[None]]
    """Context manager around the life of a channel. It raises ResourceExhausted to reject the channel."""
    error_of: Callable[[Exception], SeaweedMQError]
    """Function that returns the error to report to the client."""


class ChannelServer(Generic[Q, R]):
    """A server of the channels of one stream."""

    def __init__(self, handler: ChannelHandler[Q, R], *, ahead_bytes: int) -> None:
        """Create a server without channels; the caller has reserved ``ahead_bytes``, the bytes of ``wire.Ahead``."""
        self._handler = handler
        self._ahead_bytes = ahead_bytes
        self._channels: dict[int, Channel] = {}
        self._answers: dict[int, asyncio.Task[None]] = {}
        """Task of each channel, until it has ended."""
        self._last = 0
        self._outgoing = Outgoing()
        self._stopping = False
        self._is_writing = False
        self._is_over = False
        self._changed = Signal()

    async def run(self, envelopes: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]) -> None:
        """Serve until the client ends the stream or breaks the protocol, or no channel is open after ``wind_down``."""
        if self._ahead_bytes:
            self._outgoing.put(Ahead(self._ahead_bytes))
        writer = asyncio.ensure_future(self._write(write))
        work = {writer, *map(asyncio.ensure_future, (self._read(envelopes), self._wait_until_unused()))}
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            self._is_over = True
            if self._is_writing:
                # During a write, even a cancelled one, gRPC sends no status: the client would get none.
                await asyncio.wait({writer}, timeout=LAST_WRITE_S)
            for task in done:
                task.result()
        finally:
            for channel in self._channels.values():
                channel.on_status(None)
            ending = {*work, *self._answers.values()}
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)

    def wind_down(self) -> None:
        """End the stream as soon as no channel is open: the broker stops."""
        self._stopping = True
        self._changed.fire()

    async def _wait_until_unused(self) -> None:
        while self._channels or not self._stopping:
            await self._changed.wait()

    async def _read(self, envelopes: AsyncIterator[bytes]) -> None:
        async for envelope in envelopes:
            for section in read_envelope(envelope):
                self._take(section)

    async def _write(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        async with closing(self._outgoing.envelopes()) as envelopes:
            async for envelope in envelopes:
                self._is_writing = True
                await write(envelope)
                self._is_writing = False
                if self._is_over:
                    return

    def _take(self, section: Section) -> None:
        if not isinstance(section, Message | End | Status):
            raise ProtocolViolation(
                f"a client sent {type(section).__name__}, which only brokers send: correct the client"
            )
        channel = self._channels.get(section.channel)
        if channel is None:
            if not isinstance(section, Message) or section.channel <= self._last:
                return  # the channel is over on this side
            channel = self._open(section.channel)
        if isinstance(section, Message):
            channel.on_message(section.data)
        elif isinstance(section, End):
            channel.on_end()
        else:
            channel.on_status(None)
            self._answers[section.channel].cancel()

    def _open(self, number: int) -> Channel:
        self._last = number
        queue_bytes_max = WINDOW_BYTES + LARGE_MESSAGE_BYTES + MESSAGE_SLACK_BYTES + self._ahead_bytes
        channel = self._channels[number] = Channel(number, self._outgoing, queue_bytes_max=queue_bytes_max)
        task = asyncio.create_task(self._answer(channel), name=f"{self._handler.name} {number}")
        self._answers[number] = task
        task.add_done_callback(partial(self._answered, channel))
        return channel

    def _answered(self, channel: Channel, _: "asyncio.Task[None]") -> None:
        """Remove a channel whose task has ended, even one cancelled before its start."""
        channel.finish()
        del self._channels[channel.number], self._answers[channel.number]
        self._changed.fire()

    async def _answer(self, channel: Channel) -> None:
        handler = self._handler
        try:
            requests = _Requests(channel, handler.decode)
            async with handler.admitted(), closing(handler.answer(requests)) as replies:
                async for reply in replies:
                    await channel.send(handler.encode(reply))
        except Exception as error:  # noqa: BLE001 - reported, and logged there if it is internal
            _finish(channel, handler.error_of(error))


def _finish(channel: Channel, error: SeaweedMQError) -> None:
    """Finish a channel with an error; its traceback, which refers to payloads, has no frame that refers to it."""
    channel.finish(code_of(error), str(error))


class _Requests(Generic[Q]):
    """The decoded requests of a channel."""

    def __init__(self, channel: Channel, decode: Callable[[Frames], Q]) -> None:
        self._channel = channel
        self._decode = decode

    def __aiter__(self) -> "_Requests[Q]":
        return self

    async def __anext__(self) -> Q:
        data = await self._channel.receive()
        if data is None:
            raise StopAsyncIteration
        return self._decode(data)
