"""gRPC server of a ``BrokerApi``; its handlers only translate."""

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from seaweedmq.errors import SeaweedMQError, Unsupported
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, PROTOCOL_VERSION, Frames
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc import call_batcher, status, transport
from seaweedmq.rpc.address import Address, check_free, parse_address, port_in_use
from seaweedmq.rpc.channels.server import ChannelHandler, ChannelServer
from seaweedmq.rpc.health import HealthProbe, Readiness
from seaweedmq.rpc.messages import cluster, data, groups
from seaweedmq.rpc.messages.unary import Unary
from seaweedmq.rpc.methods import METHODS, TOGETHER
from seaweedmq.rpc.stream_admission import StreamAdmission, StreamMemory
from seaweedmq.rpc.v1 import cluster_pb2
from seaweedmq.runtime.closing import closing

Q = TypeVar("Q")
R = TypeVar("R")
Rpc = grpc.aio.ServicerContext[Any, Any]

UNARY_CALLS_MAX: Final = 1_000
"""Limit of concurrent calls beyond the streams."""

_log = logging.getLogger(__name__)


class RpcServer:
    """A running server, created by ``serve``."""

    def __init__(self, server: grpc.aio.Server, handlers: "_Handlers", probe: HealthProbe, address: Address) -> None:
        self._server = server
        self._handlers = handlers
        self._probe = probe
        self._address = address

    @property
    def port(self) -> int:
        """Port that the server listens on; chosen by the system if ``listen`` has port 0."""
        return self._address.port

    @property
    def address(self) -> str:
        """Address that the server listens on, ``host:port``."""
        return str(self._address)

    async def stop(self, grace_s: float) -> None:
        """Reject new calls, cancel open ones after ``grace_s`` and free the port. A second call has no effect."""
        await self._probe.stop()
        self._handlers.wind_down()
        await self._server.stop(grace_s)


async def serve(
    api: BrokerApi,
    listen: str,
    config: BrokerConfig,
    *,
    memory: StreamMemory | None = None,
    readiness: Readiness | None = None,
    protocol_version: int = PROTOCOL_VERSION,
) -> RpcServer:
    """Serve ``api`` at ``listen`` (``host:port``; without a host 127.0.0.1, with port 0 any free one).

    Streams reserve ``memory`` if it is given. Without ``readiness``, the health service reports that the broker is
    ready. Raises AlreadyExists and InvalidArgument as :func:`check_free`.
    """
    address = parse_address(listen)
    await check_free(address)
    server = grpc.aio.server(
        options=transport.server_options(LARGE_MESSAGE_BYTES + transport.MESSAGE_SLACK_BYTES, config.connections_max),
        maximum_concurrent_rpcs=config.streams_max + UNARY_CALLS_MAX,
    )
    handlers = _Handlers(api, StreamAdmission(config.streams_max, memory), protocol_version)
    handlers.add_to(server)
    probe = HealthProbe(readiness)
    health_pb2_grpc.add_HealthServicer_to_server(probe.servicer, server)
    await probe.start()
    reflection.enable_server_reflection((*transport.SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = server.add_insecure_port(str(address))
    except RuntimeError as error:
        raise port_in_use(address) from error
    await server.start()
    return RpcServer(server, handlers, probe, Address(address.host, port))


class _Handlers:
    """The handlers of all calls. They pull requests only as fast as the api takes them, for flow control of clients."""

    def __init__(self, api: BrokerApi, admission: StreamAdmission, protocol_version: int) -> None:
        self._api = api
        self._admission = admission
        self._protocol_version = protocol_version
        self._between_brokers: frozenset[str] = frozenset()
        self._channel_servers: set[ChannelServer[Any, Any]] = set()
        self._failures = itertools.count(1)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register every service."""
        api = self._api
        services: dict[str, dict[str, Any]] = {service: {} for service in transport.SERVICES}
        for method in METHODS.values():
            services[method.service][method.name] = grpc.unary_unary_rpc_method_handler(self._unary(method))
        services[transport.DATA_SERVICE]["Publish"] = self._channels(
            "Publish", api.publish, data.decode_publish_request, data.encode_publish_reply, self._admission.admit
        )
        services[transport.DATA_SERVICE]["Subscribe"] = grpc.stream_stream_rpc_method_handler(
            self._stream("Subscribe", api.subscribe),
            request_deserializer=data.decode_subscribe_request,
            response_serializer=data.encode_subscribe_reply,
        )
        services[transport.GROUPS_SERVICE]["Join"] = grpc.stream_stream_rpc_method_handler(
            self._stream("Join", api.join_group, api.forwarded.join_group),
            request_deserializer=groups.decode_group_request,
            response_serializer=groups.encode_group_reply,
        )
        services[transport.CLUSTER_SERVICE]["Replicate"] = self._channels(
            "Replicate",
            api.replicate,
            cluster.decode_replicate_request,
            cluster.encode_replicate_reply,
            self._admission.count,
        )
        batched = [METHODS[call] for call in TOGETHER]
        for service in {method.service for method in batched}:
            methods = {method.name: method for method in batched if method.service == service}
            services[service][transport.AT_ONCE] = grpc.unary_unary_rpc_method_handler(self._together(methods))
        services[transport.CLUSTER_SERVICE]["ReportLoad"] = grpc.stream_unary_rpc_method_handler(
            self._report_load, request_deserializer=cluster.decode_load
        )
        self._between_brokers = frozenset(services[transport.CLUSTER_SERVICE]) - {transport.AT_ONCE}
        server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(name, handlers) for name, handlers in services.items())
        )

    def _unary(self, method: Unary[Any, Any]) -> Callable[..., Awaitable[bytes]]:
        async def handle(request: bytes, rpc: Rpc) -> bytes:
            context = _context_of(rpc)
            async with self._errors_as_status(method.name, rpc, context):
                api = self._api.forwarded if _is_forwarded(rpc) else self._api
                return method.encode_reply(await api.call(method.decode_request(request), context))
            raise AssertionError("unreachable: a translated block returns or aborts")

        return handle

    def _together(self, methods: Mapping[str, Unary[Any, Any]]) -> Callable[..., Awaitable[bytes]]:
        async def handle(request: bytes, rpc: Rpc) -> bytes:
            context = _context_of(rpc)
            async with self._errors_as_status(transport.AT_ONCE, rpc, context):
                api = self._api.forwarded if _is_forwarded(rpc) else self._api
                call = partial(api.call, context=context)
                return await call_batcher.answer(
                    request, methods.get, call, lambda method, error: self._reported_error(method, context, error)
                )
            raise AssertionError("unreachable: a translated block returns or aborts")

        return handle

    def _stream(
        self,
        name: str,
        call: Callable[[AsyncIterator[Q], CallContext], AsyncIterator[R]],
        forwarded: Callable[[AsyncIterator[Q], CallContext], AsyncIterator[R]] | None = None,
    ) -> Callable[..., Awaitable[None]]:
        async def handle(requests: AsyncIterator[Q], rpc: Rpc) -> None:
            answer, admission = call, self._admission.admit
            if forwarded is not None and _is_forwarded(rpc):
                answer, admission = forwarded, self._admission.count
            context = _context_of(rpc)
            async with (
                self._errors_as_status(name, rpc, context),
                admission(),
                closing(answer(requests, context)) as replies,
            ):
                async for reply in replies:
                    await rpc.write(reply)
                    del reply  # a paused stream holds no reply

        return handle

    def _channels(
        self,
        name: str,
        answer: Callable[[AsyncIterator[Q], CallContext], AsyncIterator[R]],
        decode: Callable[[Frames], Q],
        encode: Callable[[R], bytes],
        admitted: Callable[[], AbstractAsyncContextManager[None]],
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def handle(envelopes: AsyncIterator[bytes], rpc: Rpc) -> None:
            context = _context_of(rpc)
            handler = ChannelHandler(
                name=name,
                answer=lambda requests: answer(requests, context),
                decode=decode,
                encode=encode,
                admitted=admitted,
                error_of=lambda error: self._reported_error(name, context, error),
            )
            async with self._errors_as_status(name, rpc, context):
                with self._admission.ahead() as ahead_bytes:
                    server = ChannelServer(handler, ahead_bytes=ahead_bytes)
                    self._channel_servers.add(server)
                    try:
                        await server.run(envelopes, rpc.write)
                    finally:
                        self._channel_servers.discard(server)

        return grpc.stream_stream_rpc_method_handler(handle)

    def wind_down(self) -> None:
        """End each stream of channels as soon as it has no open channel."""
        for server in self._channel_servers:
            server.wind_down()

    async def _report_load(self, requests: AsyncIterator[Any], rpc: Rpc) -> bytes:
        context = _context_of(rpc)
        async with self._errors_as_status("ReportLoad", rpc, context), self._admission.count():
            await self._api.report_load(requests, context)
        return cluster_pb2.ReportLoadReply().SerializeToString()

    @asynccontextmanager
    async def _errors_as_status(self, method: str, rpc: Rpc, context: CallContext) -> AsyncIterator[None]:
        """End the call with the status of the block's error; ignore errors of a call that is over."""
        try:
            self._check_protocol(method, rpc)
            yield
        except SeaweedMQError as error:
            await rpc.abort(*status.to_status(error))
        except Exception as error:  # logged, and reported to the client with its failure number
            if _is_over(error):
                _log.debug("%s from %s ended: %s", method, context.peer, error)
                raise asyncio.CancelledError from error
            await rpc.abort(*status.to_status(self._reported_error(method, context, error)))

    def _reported_error(self, method: str, context: CallContext, error: Exception) -> SeaweedMQError:
        """Return the error to report to the client; log an internal one under a failure number."""
        if isinstance(error, SeaweedMQError):
            return error
        name = f"{os.getpid()}-{next(self._failures)}"
        _log.error("call failed: failure %s in %s from %s", name, method, context.peer, exc_info=error)
        return SeaweedMQError(
            f"{method} failed inside the broker ({type(error).__name__}): see failure {name} in its log"
        )

    def _check_protocol(self, method: str, rpc: Rpc) -> None:
        supported = str(self._protocol_version)
        requested = next((v for key, v in rpc.invocation_metadata() or () if key == transport.PROTOCOL_KEY), supported)
        if requested == supported:
            return
        number = str(requested)[:20]
        caller = "calling broker" if method in self._between_brokers or _is_forwarded(rpc) else "client"
        older = f"the {caller}" if number.isdecimal() and int(number) < self._protocol_version else "this broker"
        raise Unsupported(f"the {caller} speaks protocol {number}, this broker {supported}: upgrade {older}")


def _is_over(error: Exception) -> bool:
    """Whether a gRPC error means that the call is over: the client is unreachable, or the server has stopped."""
    return isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.UsageError)


def _context_of(rpc: Rpc) -> CallContext:
    left_s = rpc.time_remaining()
    deadline_s = inf if left_s is None else asyncio.get_running_loop().time() + left_s
    return CallContext(listener=ListenerKind.NATIVE, peer=rpc.peer(), deadline_s=deadline_s)


def _is_forwarded(rpc: Rpc) -> bool:
    return any(key == transport.FORWARDED_KEY for key, _ in rpc.invocation_metadata() or ())
