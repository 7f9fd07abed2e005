"""Client of gRPC's health service, for programs that start brokers."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


async def is_serving(address: str, timeout_s: float) -> bool:
    """Return whether the broker at an address reports that it serves; False if it does not reply in time.

    Args:
        address: Address of the broker, ``host:port``.
        timeout_s: Deadline of the call in seconds, including the connection.
    """
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
