"""The client's side: conversations with one broker, on a stream that is opened for the first of them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias, TypeVar

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.messages.frames import Frames
from seaweedmq.rpc.channels import wire
from seaweedmq.rpc.channels.channel import Channel, ChannelWindow, Outgoing, SharedWindow
from seaweedmq.rpc.channels.wire import Credit, Message, Section, Status, read_envelope
from seaweedmq.rpc.status import from_code
from seaweedmq.runtime.closing import close, closing

Q = TypeVar("Q")
R = TypeVar("R")
Carry: TypeAlias = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
"""Opens a stream: envelopes out, envelopes in. Raises SeaweedMQError when it breaks."""

LINGER_S: Final = 0.5
"""A stream without channels is kept so long for the next one."""


class ChannelClient:
    """Conversations of one kind with one broker. Belongs to one event loop."""

    def __init__(self, carry: Carry, address: str) -> None:
        self._carry = carry
        self._address = address
        self._stream: _Stream | None = None

    async def converse(
        self,
        requests: AsyncIterator[Q],
        encode: Callable[[Q], bytes],
        decode: Callable[[Frames], R],
    ) -> AsyncIterator[R]:
        """Requests one way, replies the other. An error of ``requests`` ends it and is raised here; closing it ends it,
        too, and closes the requests."""
        if self._stream is None or self._stream.is_over:
            self._stream = _Stream(self._carry, self._address)
        stream = self._stream  # another one may take its place before this conversation ends
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
                sender.exception()  # was raised to the reader already, or the reader has left

    async def close(self) -> None:
        """Once the connection is closed, which ends the stream."""
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
    except BaseException as error:  # for whoever reads the replies
        channel.finish()
        channel.fail(error)
        raise
    finally:
        await close(requests)


class _Stream:
    """One gRPC stream and its channels."""

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
        """Another channel. The broker hears of it with its first message."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        number = next(self._numbers)
        channel = self._channels[number] = Channel(number, self._outgoing, window=ChannelWindow(self._ahead))
        return channel

    def closed(self, channel: Channel) -> None:
        """Nobody uses it any more."""
        del self._channels[channel.number]
        if not self._channels and not self.is_over:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._end)

    async def wait(self) -> None:
        """Until it has ended."""
        if self._linger is not None:
            self._linger.cancel()
        await asyncio.wait((self._carrying,))

    def _end(self) -> None:
        self.is_over = True
        self._carrying.cancel()

    async def _run(self, carry: Carry) -> None:
        error: BaseException = Unavailable(f"broker {self._address} ended the stream: it may be stopping; retry")
        try:
            async with closing(carry(self._outgoing.envelopes())) as envelopes:
                async for envelope in envelopes:
                    for section in read_envelope(envelope):
                        self._take(section)
        except SeaweedMQError as broken:
            error = broken
        except BaseException as broken:
            error = broken
            raise
        finally:
            self.is_over = True
            for channel in self._channels.values():
                channel.fail(error)

    def _take(self, section: Section) -> None:
        if isinstance(section, wire.Ahead):
            self._ahead.grow(section.size_bytes)
            return
        channel = self._channels.get(section.channel)
        if channel is None:
            return  # over on this side already
        if isinstance(section, Message):
            channel.on_message(section.data)
        elif isinstance(section, Credit):
            channel.on_credit(section.size_bytes)
        elif isinstance(section, Status):
            channel.on_status(from_code(section.code, section.text) if section.code else None)
