"""gRPC's health service: the probe of a broker's server, and the call of programs that start brokers."""

import asyncio
from typing import Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from seaweedmq.rpc.transport import SERVICES
from seaweedmq.runtime.signal import Signal


class Readiness(Protocol):
    """A broker's readiness to serve."""

    @property
    def is_ready(self) -> bool:
        """Whether the broker serves at present."""

    @property
    def changed(self) -> Signal:
        """Signal that fires when ``is_ready`` may have changed."""


class HealthProbe:
    """The health service, which reports the broker's readiness for every service."""

    def __init__(self, readiness: Readiness | None) -> None:
        self.servicer = health.aio.HealthServicer()
        self._readiness = readiness
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Report the current readiness, and every change until :meth:`stop`."""
        if self._readiness is None:
            await self._report(is_ready=True)
            return
        await self._report(is_ready=self._readiness.is_ready)
        self._following = asyncio.create_task(self._follow(self._readiness), name="health")

    async def stop(self) -> None:
        """Report from now on that the server does not serve; a second call has no effect."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
        await self.servicer.enter_graceful_shutdown()

    async def _follow(self, readiness: Readiness) -> None:
        reported: bool | None = None
        while True:
            if reported == readiness.is_ready:
                await readiness.changed.wait()
            else:
                reported = readiness.is_ready
                await self._report(is_ready=reported)

    async def _report(self, *, is_ready: bool) -> None:
        serving = health_pb2.HealthCheckResponse.ServingStatus
        for service in ("", *SERVICES):
            await self.servicer.set(service, serving.SERVING if is_ready else serving.NOT_SERVING)


async def is_serving(address: str, timeout_s: float) -> bool:
    """Return whether the broker at ``host:port`` reports within ``timeout_s``, with the connection, that it serves."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
