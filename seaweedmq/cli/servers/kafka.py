"""Kafka's door to a broker, if there is to be one. What it needs is loaded only then."""

from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.config import BrokerConfig
from seaweedmq.rpc.address import WILDCARD_HOSTS, parse_address

if TYPE_CHECKING:
    from seaweedmq.broker.local import LocalBroker
    from seaweedmq.kafka.gateway import Gateway

PACKAGES = ("aiokafka", "cramjam", "google_crc32c", "kafka")
"""Of the extra ``seaweedmq[kafka]``."""


def check_kafka(config: BrokerConfig) -> None:
    """Whether Kafka clients can be listened for, as the settings say.

    Raises:
        InvalidArgument: an address is none, or none that others can dial.
        Unsupported: packages are not installed.
    """
    if not config.kafka_listen:
        return
    listen = parse_address(config.kafka_listen)
    if config.kafka_advertise:
        parse_address(config.kafka_advertise)
    elif listen.host in WILDCARD_HOSTS:
        raise InvalidArgument(
            f"{listen} is no address that Kafka clients can dial: name one with --kafka-advertise HOST:PORT"
        )
    check_packages()


def check_packages() -> None:
    """Unsupported if the packages that Kafka's protocol needs are not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise Unsupported(
            f"listening for Kafka clients needs packages that are not installed ({', '.join(missing)}): "
            'pip install "seaweedmq[kafka]"'
        )


def open_gateway(config: BrokerConfig) -> "Gateway | None":
    """Bound to its address, and not listening yet; None if Kafka clients are not to be listened for.

    Raises:
        AlreadyExists: the port is taken.
        InvalidArgument: the host is none of this machine.
    """
    if not config.kafka_listen:
        return None
    from seaweedmq.kafka.gateway import Gateway

    advertise = parse_address(config.kafka_advertise) if config.kafka_advertise else None
    return Gateway(config, parse_address(config.kafka_listen), advertise)


async def start_gateway(gateway: "Gateway", local: "LocalBroker", stack: AsyncExitStack) -> None:
    """Have Kafka clients heard, now that the broker is in the cluster. What is begun is ended with the stack, and the
    listener itself after the broker: clients are told where to go on while its segments move."""
    from seaweedmq.kafka.handlers import Handlers

    rooms = Handlers(local)
    stack.push_async_callback(rooms.close)
    await gateway.start(rooms.all, local.memory.in_flight_bytes)
