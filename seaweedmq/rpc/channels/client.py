"""Client side of channels to one broker, on a stream that the first channel opens."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias, TypeVar

from seaweedmq.errors import SeaweedMQError, Unavailable, unraised
from seaweedmq.model.messages.frames import Frames
from seaweedmq.rpc.channels import wire
from seaweedmq.rpc.channels.channel import Channel, ChannelWindow, Outgoing, SharedWindow
from seaweedmq.rpc.channels.wire import Credit, Message, Section, Status, read_envelope
from seaweedmq.rpc.status import from_code
from seaweedmq.runtime.closing import close, closing

Q = TypeVar("Q")
R = TypeVar("R")
Carry: TypeAlias = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
"""Function that opens a stream: it sends envelopes, yields envelopes, and raises SeaweedMQError if it breaks."""

LINGER_S: Final = 0.5
"""Seconds for which a stream without channels stays open for the next one."""


class ChannelClient:
    """A client of channels of one method at one broker, for one event loop."""

    def __init__(self, carry: Carry, address: str) -> None:
        self._carry = carry
        self._address = address
        self._stream: _Stream | None = None

    async def open_stream(
        self, requests: AsyncIterator[Q], encode: Callable[[Q], bytes], decode: Callable[[Frames], R]
    ) -> AsyncIterator[R]:
        """Send requests on a new channel and yield its replies; an error of ``requests`` is raised here.

        Closing the generator ends the channel and closes the requests.
        """
        if self._stream is None or self._stream.is_over:
            self._stream = _Stream(self._carry, self._address)
        stream = self._stream  # another stream may replace it before this channel ends
        channel = stream.open()
        sender = asyncio.create_task(_send(channel, requests, encode), name=f"send to {self._address}")
        try:
            while (data := await channel.receive()) is not None:
                yield decode(data)
        finally:
            channel.finish()
            stream.closed(channel)
            sender.cancel()
            await asyncio.wait((sender,))
            if not sender.cancelled():
                sender.exception()  # retrieved only: the reader has raised it, or is cancelled

    async def close(self) -> None:
        """Wait for the end of the stream; the connection must be closed, which ends it."""
        if self._stream is not None:
            await self._stream.wait()


async def _send(channel: Channel, requests: AsyncIterator[Q], encode: Callable[[Q], bytes]) -> None:
    try:
        async for request in requests:
            await channel.send(encode(request))
            if channel.is_over:
                return
        channel.end()
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # raised to the reader of the replies
        channel.finish()
        channel.fail(error)
        raise
    finally:
        await close(requests)


class _Stream:
    """A gRPC stream and its channels."""

    def __init__(self, carry: Carry, address: str) -> None:
        self.is_over = False
        self._address = address
        self._numbers = itertools.count(1)
        self._channels: dict[int, Channel] = {}
        self._outgoing = Outgoing()
        self._ahead = SharedWindow()
        self._linger: asyncio.TimerHandle | None = None
        self._carrying = asyncio.create_task(self._run(carry), name=f"channels to {address}")

    def open(self) -> Channel:
        """Open a channel; its first message opens it at the broker."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        number = next(self._numbers)
        channel = self._channels[number] = Channel(number, self._outgoing, window=ChannelWindow(self._ahead))
        return channel

    def closed(self, channel: Channel) -> None:
        """Remove a channel that is over; the stream ends ``LINGER_S`` after its last one."""
        del self._channels[channel.number]
        if not self._channels and not self.is_over:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._end)

    async def wait(self) -> None:
        """Wait until the stream has ended."""
        if self._linger is not None:
            self._linger.cancel()
        await asyncio.wait((self._carrying,))

    def _end(self) -> None:
        self.is_over = True
        self._carrying.cancel()

    async def _run(self, carry: Carry) -> None:
        error: BaseException = Unavailable(f"broker {self._address} ended the stream, it may be stopping: retry")
        try:
            async with closing(carry(self._outgoing.envelopes())) as envelopes:
                async for envelope in envelopes:
                    for section in read_envelope(envelope):
                        self._take(section)
        except SeaweedMQError as broken:
            error = unraised(broken)
        except BaseException as broken:
            error = broken
            raise
        finally:
            self.is_over = True
            for channel in self._channels.values():
                channel.fail(error)
            del error  # its traceback refers to this frame

    def _take(self, section: Section) -> None:
        if isinstance(section, wire.Ahead):
            self._ahead.grow(section.size_bytes)
            return
        channel = self._channels.get(section.channel)
        if channel is None:
            return  # the channel is over on this side
        if isinstance(section, Message):
            channel.on_message(section.data)
        elif isinstance(section, Credit):
            channel.on_credit(section.size_bytes)
        elif isinstance(section, Status):
            channel.on_status(from_code(section.code, section.text) if section.code else None)
