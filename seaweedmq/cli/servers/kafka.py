"""Kafka listener of a broker; its packages are loaded only if it is configured."""

from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.config import BrokerConfig
from seaweedmq.rpc.address import WILDCARD_HOSTS, parse_address

if TYPE_CHECKING:
    from seaweedmq.broker.ports import GatewayPorts
    from seaweedmq.kafka.gateway import Gateway

PACKAGES = ("aiokafka", "cramjam", "google_crc32c", "kafka")
"""Packages of the extra ``seaweedmq[kafka]``."""


def check_kafka(config: BrokerConfig) -> None:
    """Check that this process can listen for Kafka clients as configured.

    Raises:
        InvalidArgument: If an address is invalid, or cannot be dialed by others.
        Unsupported: If packages are not installed.
    """
    if not config.kafka_listen:
        return
    listen = parse_address(config.kafka_listen)
    if config.kafka_advertise:
        parse_address(config.kafka_advertise)
    elif listen.host in WILDCARD_HOSTS:
        raise InvalidArgument(
            f"{listen} is not an address that Kafka clients can dial: name one with --kafka-advertise HOST:PORT"
        )
    check_packages()


def check_packages() -> None:
    """Check that the packages for Kafka's protocol are installed.

    Raises:
        Unsupported: If one is missing.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise Unsupported(
            f"listening for Kafka clients needs packages that are not installed ({', '.join(missing)}): "
            'pip install "seaweedmq[kafka]"'
        )


def open_gateway(config: BrokerConfig) -> "Gateway | None":
    """Return a gateway that is bound to its address and does not listen yet; None without a Kafka listener.

    Raises:
        AlreadyExists: If the port is taken.
        InvalidArgument: If the host is not an address of this machine.
    """
    if not config.kafka_listen:
        return None
    from seaweedmq.kafka.gateway import Gateway

    advertise = parse_address(config.kafka_advertise) if config.kafka_advertise else None
    return Gateway(config, parse_address(config.kafka_listen), advertise)


async def start_gateway(gateway: "Gateway", ports: "GatewayPorts", stack: AsyncExitStack) -> None:
    """Start the Kafka listener, once the broker is in the cluster; ``stack`` stops its handlers.

    The listener itself stops after the broker: clients learn new addresses while the broker's segments move.
    """
    from seaweedmq.kafka.handlers import Handlers

    rooms = Handlers(ports)
    stack.push_async_callback(rooms.close)
    await gateway.start(rooms.all, ports.runtime.memory.in_flight_bytes)
