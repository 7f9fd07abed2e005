"""Brokers at a distance: ``GrpcDialer.dial`` gives the ``BrokerApi`` of an address."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import grpc.aio

from seaweedmq.errors import Closed, InvalidArgument
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.calls import Call
from seaweedmq.model.messages.frames import PROTOCOL_VERSION
from seaweedmq.model.messages.groups import GroupReply, GroupRequest
from seaweedmq.model.messages.publish import PublishReply, PublishRequest
from seaweedmq.model.messages.replication import ReplicateReply, ReplicateRequest
from seaweedmq.model.messages.subscribe import SubscribeReply, SubscribeRequest
from seaweedmq.ports import BrokerApi, LeaderApi
from seaweedmq.rpc.address import parse_address
from seaweedmq.rpc.call_batcher import CallBatcher
from seaweedmq.rpc.calls import Peer
from seaweedmq.rpc.channels.client import ChannelClient
from seaweedmq.rpc.messages import cluster, data, groups
from seaweedmq.rpc.methods import METHODS, TOGETHER
from seaweedmq.rpc.transport import (
    AT_ONCE,
    FORWARDED_KEY,
    JOIN_GROUP,
    PROTOCOL_KEY,
    PUBLISH,
    REPLICATE,
    REPORT_LOAD,
    SUBSCRIBE,
    client_options,
)
from seaweedmq.rpc.unary import Unary
from seaweedmq.runtime.process.forking import leave_alone_in_children

R = TypeVar("R")
_has_connected = False
"""Whether this process has had a dialer. Threads of gRPC may outlive all its connections."""
_inherited_from: int | None = None
"""The process that had connected before this one was forked from it."""
_GRPC_CALLBACK = "_handle_callback_wrapper"

MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Largest message accepted from a broker; its own frame limit is below."""


class GrpcDialer:
    """One connection an address, opened at the first call and opened again after a loss. Belongs to one event loop."""

    def __init__(
        self,
        *,
        timeout_s: float = 10.0,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        protocol_version: int = PROTOCOL_VERSION,
    ) -> None:
        """
        Args:
            timeout_s: deadline of a unary call; streams have none.

        Raises:
            InvalidArgument: this process was forked from one that had connected, even if it had closed all again.
        """
        global _has_connected
        if _inherited_from is not None:
            raise InvalidArgument(
                f"process {_inherited_from} had connected before this one, {os.getpid()}, was forked from it, in which "
                "gRPC no longer works: connect in children only, or start them with spawn, as by "
                "multiprocessing.get_context('spawn')"
            )
        leave_alone_in_children(self)
        _has_connected = True
        self._timeout_s = timeout_s
        self._options = client_options(message_bytes_max)
        self._metadata = ((PROTOCOL_KEY, str(protocol_version)),)
        self._brokers: dict[str, _GrpcBroker] = {}
        self._before: dict[str, _GrpcBroker] = {}
        """Those that were at the same addresses, one each."""
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def dial(self, address: str) -> BrokerApi:
        """The broker at ``host:port``. Nothing is sent yet: a broker out of reach shows at the first call.

        Raises:
            InvalidArgument: not an address.
            Closed: the dialer was closed.
        """
        if self._closed:
            raise Closed(f"can not dial {address}: the client was closed; make a new one")
        broker = self._brokers.get(address)
        if broker is None:
            target = str(parse_address(address))
            channel = grpc.aio.insecure_channel(target, options=self._options)
            broker = _GrpcBroker(channel, Peer(target, self._metadata), self._timeout_s)
            self._brokers[address] = broker
        return broker

    def renew(self, address: str) -> None:
        """Another broker has the address by now: connect anew at the next call.

        gRPC knows how the last attempt to connect ended, and answers with that until it tries again, up to
        ``RECONNECT_INTERVAL_MS_MAX`` later: of a broker that was just started it would say that nobody listens there.
        What is under way on the connection as it is goes on, until the next renewal; then it ends with Unavailable.
        """
        broker = self._brokers.pop(address, None)
        if broker is None:
            return
        earlier = self._before.get(address)
        self._before[address] = broker
        if earlier is not None:
            closing = asyncio.create_task(earlier.close(replaced=True), name=f"close what was connected to {address}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every connection; what is under way ends with Closed. May be called again."""
        if not self._closed:
            _drop_late_events(asyncio.get_running_loop())
        self._closed = True
        for broker in (*self._brokers.values(), *self._before.values()):
            await broker.close()
        if self._closing:
            await asyncio.wait(set(self._closing))


class _GrpcBroker:
    """A remote broker. Streams are async generators: nothing happens before the first reply is asked for, requests are
    pulled only as the network takes them, and closing the generator cancels the call and closes the requests."""

    def __init__(self, channel: grpc.aio.Channel, peer: Peer, timeout_s: float) -> None:
        self._channel = channel
        self._peer = peer
        self._timeout_s = timeout_s
        self._publish = self._channels("Publish", PUBLISH)
        self._subscribe: Any = channel.stream_stream(SUBSCRIBE, None, None)
        self._replicate = self._channels("Replicate", REPLICATE)
        self._join_group: Any = channel.stream_stream(JOIN_GROUP, None, None)
        self._report_load: Any = channel.stream_unary(REPORT_LOAD, None, None)
        self._together = {
            service: CallBatcher(self._alone, partial(self._at_once, service), peer.address)
            for service in {METHODS[call].service for call in TOGETHER}
        }

    @cached_property
    def forwarded(self) -> LeaderApi:
        return _GrpcBroker(self._channel, self._peer.with_metadata(FORWARDED_KEY, "1"), self._timeout_s)

    def publish(self, requests: AsyncIterator[PublishRequest]) -> AsyncIterator[PublishReply]:
        return self._publish.converse(requests, data.encode_publish_request, data.decode_publish_reply)

    def subscribe(self, requests: AsyncIterator[SubscribeRequest]) -> AsyncIterator[SubscribeReply]:
        return self._peer.stream(
            "Subscribe", self._subscribe, requests, data.encode_subscribe_request, data.decode_subscribe_reply
        )

    def replicate(self, requests: AsyncIterator[ReplicateRequest]) -> AsyncIterator[ReplicateReply]:
        return self._replicate.converse(requests, cluster.encode_replicate_request, cluster.decode_replicate_reply)

    def join_group(self, requests: AsyncIterator[GroupRequest]) -> AsyncIterator[GroupReply]:
        return self._peer.stream(
            "Join", self._join_group, requests, groups.encode_group_request, groups.decode_group_reply
        )

    async def report_load(self, reports: AsyncIterator[BrokerLoad]) -> None:
        await self._peer.feed("ReportLoad", self._report_load, reports, cluster.encode_load)

    async def call(self, request: Call[R]) -> R:
        method: Unary[Any, R] = METHODS[type(request)]
        try:
            encoded = method.encode_request(request)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{method.name} cannot be sent, correct its arguments: {error}") from error
        make = self._together[method.service].call if type(request) in TOGETHER else self._alone
        reply = await make(method, encoded, method.timeout_s or self._timeout_s)
        return method.decode_reply(reply)

    async def _alone(self, method: Unary[Any, Any], request: bytes, timeout_s: float) -> bytes:
        return await self._peer.unary(
            method.name, self._channel.unary_unary(method.path, None, None), request, timeout_s
        )

    async def _at_once(self, service: str, request: bytes, timeout_s: float) -> bytes:
        call = self._channel.unary_unary(f"/{service}/{AT_ONCE}", None, None)
        return await self._peer.unary(AT_ONCE, call, request, timeout_s)

    def _channels(self, name: str, path: str) -> ChannelClient:
        method: Any = self._channel.stream_stream(path, None, None)
        return ChannelClient(
            lambda envelopes: self._peer.stream(name, method, envelopes, _as_it_is, _as_it_is), self._peer.address
        )

    async def close(self, *, replaced: bool = False) -> None:
        """Cancel what is under way and drop the connection. ``replaced``: there is a newer one."""
        self._peer.close(replaced=replaced)
        await self._channel.close(None)
        for together in self._together.values():
            await together.close()
        await self._publish.close()
        await self._replicate.close()


def _as_it_is(data: bytes) -> bytes:
    return data


def _drop_late_events(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop, once it is closed, ignore events of calls that ended with it.

    gRPC has one queue of events for all loops of a process. A loop that takes an event of another passes it on with
    ``call_soon_threadsafe``; if that one is closed by then, the first logs a RuntimeError and takes no further events
    in this turn. Each ``asyncio.run`` of a program has a loop of its own, and the last events of a call that was
    cancelled may come after it.
    """
    if not isinstance(loop.call_soon_threadsafe, _PostUnlessLate):
        # Once a loop: a program may open and close thousands of clients in it, and each layer costs a call.
        loop.call_soon_threadsafe = _PostUnlessLate(loop)  # type: ignore[assignment,method-assign]


class _PostUnlessLate:
    """The ``call_soon_threadsafe`` of a loop, which drops events of gRPC once the loop is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._post: Callable[..., asyncio.Handle] = loop.call_soon_threadsafe

    def __call__(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        if self._loop.is_closed() and getattr(callback, "__name__", None) == _GRPC_CALLBACK:
            return None
        return self._post(callback, *args, context=context)


def _after_fork() -> None:
    global _inherited_from
    if _has_connected and _inherited_from is None:
        _inherited_from = os.getppid()


os.register_at_fork(after_in_child=_after_fork)
