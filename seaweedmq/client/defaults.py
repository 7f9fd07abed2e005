"""Defaults of a client's surroundings: the network and the machine's clocks."""

from seaweedmq.ports import Dialer, Environment
from seaweedmq.runtime.process.boot_clock import boot_s
from seaweedmq.runtime.process.wall_clock import wall_us


def system_environment() -> Environment:
    """Return an environment with the machine's clocks and unseeded randomness."""
    return Environment(wall_us=wall_us, boot_s=boot_s)


def grpc_dialer() -> Dialer:
    """Return a dialer that connects over the network by gRPC."""
    # Lazy import: a simulation with its own dialer needs no gRPC.
    from seaweedmq.rpc.client import GrpcDialer

    return GrpcDialer()
