"""Dialer of remote brokers: ``GrpcDialer.dial`` returns the ``BrokerApi`` of an address."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import grpc.aio

from seaweedmq.errors import Closed, InvalidArgument
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.blobs import BlobData, BlobRange, UploadReply, UploadRequest
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
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
from seaweedmq.rpc.messages import blobs, cluster, data, groups
from seaweedmq.rpc.messages.unary import Unary
from seaweedmq.rpc.methods import METHODS, TOGETHER
from seaweedmq.rpc.transport import (
    AT_ONCE,
    FORWARDED_KEY,
    JOIN_GROUP,
    PROTOCOL_KEY,
    PUBLISH,
    READ,
    REPLICATE,
    REPORT_LOAD,
    SUBSCRIBE,
    UPLOAD,
    client_options,
)
from seaweedmq.runtime.process.forking import leave_alone_in_children

R = TypeVar("R")
_has_connected = False
"""Whether this process has created a dialer. gRPC's threads may outlive all its connections."""
_inherited_from: int | None = None
"""Pid of the parent process, if it had connected before this one was forked from it."""
_GRPC_CALLBACK = "_handle_callback_wrapper"

MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Largest message accepted from a broker, in bytes; brokers' frame limits are lower."""


class GrpcDialer:
    """A dialer for one event loop: one connection per address, opened at the first call and reopened after a loss."""

    def __init__(
        self,
        *,
        timeout_s: float = 10.0,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        protocol_version: int = PROTOCOL_VERSION,
    ) -> None:
        """Create a dialer without connections; InvalidArgument in a process forked from one that ever connected.

        Args:
            timeout_s: Deadline of a unary call in seconds; streams have none.
            message_bytes_max: Largest message accepted from a broker, in bytes.
            protocol_version: Protocol version sent with every call.
        """
        global _has_connected
        if _inherited_from is not None:
            raise InvalidArgument(
                f"process {_inherited_from} had connected before this one, {os.getpid()}, was forked from it, and gRPC "
                "does not work after such a fork: connect in children only, or start them with spawn, for example by "
                "multiprocessing.get_context('spawn')"
            )
        leave_alone_in_children(self)
        _has_connected = True
        self._timeout_s = timeout_s
        self._options = client_options(message_bytes_max)
        self._metadata = ((PROTOCOL_KEY, str(protocol_version)),)
        self._brokers: dict[str, _GrpcBroker] = {}
        self._before: dict[str, _GrpcBroker] = {}
        """Previous broker of each renewed address."""
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def dial(self, address: str) -> BrokerApi:
        """Return the broker at ``host:port``; an unreachable broker shows only at the first call."""
        if self._closed:
            raise Closed(f"cannot dial {address}, the client is closed: create a new one")
        broker = self._brokers.get(address)
        if broker is None:
            target = str(parse_address(address))
            channel = grpc.aio.insecure_channel(target, options=self._options)
            broker = _GrpcBroker(channel, Peer(target, self._metadata), self._timeout_s)
            self._brokers[address] = broker
        return broker

    def renew(self, address: str) -> None:
        """Open a new connection at the next call, since another broker has the address.

        gRPC repeats the outcome of its last attempt to connect until the next one, up to ``RECONNECT_INTERVAL_MS_MAX``
        later. For a broker that has just started it would report a refused connection. Pending calls on the previous
        connection continue until the next renewal; then they end with Unavailable.
        """
        broker = self._brokers.pop(address, None)
        if broker is None:
            return
        earlier = self._before.get(address)
        self._before[address] = broker
        if earlier is not None:
            closing = asyncio.create_task(earlier.close(replaced=True), name=f"close connection to {address}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every connection; pending calls end with Closed. A second call has no effect."""
        if not self._closed:
            _drop_late_events(asyncio.get_running_loop())
        self._closed = True
        for broker in (*self._brokers.values(), *self._before.values()):
            await broker.close()
        if self._closing:
            await asyncio.wait(set(self._closing))


class _GrpcBroker:
    """A remote broker.

    Streams are async generators. A call starts when the caller requests the first reply, and pulls requests only as
    fast as the network takes them. Closing the generator ends the call and closes the requests.
    """

    def __init__(self, channel: grpc.aio.Channel, peer: Peer, timeout_s: float) -> None:
        self._channel = channel
        self._peer = peer
        self._timeout_s = timeout_s
        self._publish = self._channels("Publish", PUBLISH)
        self._subscribe: Any = channel.stream_stream(SUBSCRIBE, None, None)
        self._replicate = self._channels("Replicate", REPLICATE)
        self._join_group: Any = channel.stream_stream(JOIN_GROUP, None, None)
        self._upload: Any = channel.stream_stream(UPLOAD, None, None)
        self._read: Any = channel.stream_stream(READ, None, None)
        self._report_load: Any = channel.stream_unary(REPORT_LOAD, None, None)
        self._together = {
            service: CallBatcher(self._alone, partial(self._at_once, service), peer.address)
            for service in {METHODS[call].service for call in TOGETHER}
        }

    @cached_property
    def forwarded(self) -> LeaderApi:
        return _GrpcBroker(self._channel, self._peer.with_metadata(FORWARDED_KEY, "1"), self._timeout_s)

    def publish(
        self, requests: AsyncIterator[PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[PublishReply]:
        return self._publish.open_stream(requests, data.encode_publish_request, data.decode_publish_reply)

    def subscribe(
        self, requests: AsyncIterator[SubscribeRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[SubscribeReply]:
        return self._peer.stream(
            "Subscribe", self._subscribe, requests, data.encode_subscribe_request, data.decode_subscribe_reply
        )

    def replicate(
        self, requests: AsyncIterator[ReplicateRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[ReplicateReply]:
        return self._replicate.open_stream(requests, cluster.encode_replicate_request, cluster.decode_replicate_reply)

    def join_group(
        self, requests: AsyncIterator[GroupRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[GroupReply]:
        return self._peer.stream(
            "Join", self._join_group, requests, groups.encode_group_request, groups.decode_group_reply
        )

    def upload(
        self, requests: AsyncIterator[UploadRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[UploadReply]:
        return self._peer.stream(
            "Upload", self._upload, requests, blobs.encode_upload_request, blobs.decode_upload_reply
        )

    def read_blob(self, requests: AsyncIterator[BlobRange], context: CallContext = INTERNAL) -> AsyncIterator[BlobData]:
        return self._peer.stream("Read", self._read, requests, blobs.encode_range, blobs.decode_blob_data)

    async def report_load(self, reports: AsyncIterator[BrokerLoad], context: CallContext = INTERNAL) -> None:
        await self._peer.feed("ReportLoad", self._report_load, reports, cluster.encode_load)

    async def call(self, request: Call[R], context: CallContext = INTERNAL) -> R:
        method: Unary[Any, R] = METHODS[type(request)]
        try:
            encoded = method.encode_request(request)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{method.name} was not sent, {error}: correct its arguments") from error
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
        """Cancel pending calls and close the connection; ``replaced`` if a newer connection exists."""
        self._peer.close(replaced=replaced)
        await self._channel.close(None)
        for together in self._together.values():
            await together.close()
        await self._publish.close()
        await self._replicate.close()


def _as_it_is(data: bytes) -> bytes:
    return data


def _drop_late_events(loop: asyncio.AbstractEventLoop) -> None:
    """Make the loop ignore gRPC events that arrive after it is closed.

    gRPC has one event queue for all loops of a process. A loop that takes an event of another loop forwards it with
    ``call_soon_threadsafe``. If the other loop is closed, the first logs a RuntimeError and takes no further events in
    this turn. Each ``asyncio.run`` of a program has its own loop, and the last events of a cancelled call may come
    after the loop is closed.
    """
    if not isinstance(loop.call_soon_threadsafe, _PostUnlessLate):
        # Once per loop: a program may open and close thousands of clients in it, and each layer costs a call.
        loop.call_soon_threadsafe = _PostUnlessLate(loop)  # type: ignore[assignment,method-assign]


class _PostUnlessLate:
    """A replacement of a loop's ``call_soon_threadsafe`` that drops gRPC events once the loop is closed."""

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
