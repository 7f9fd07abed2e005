"""SeaweedMQ: a message broker cluster that keeps every topic as ordinary files.

::

    with seaweedmq.connect("127.0.0.1:17777") as client:
        client.admin.create_topic("shop/orders", segments=4)
        with client.publisher("shop/orders") as publisher:
            receipt = publisher.send(b"value", key=b"key").result()
        with client.subscriber("shop/orders", start="earliest", stop_at="latest") as subscriber:
            for message in subscriber:
                ...

``seaweedmq.aio`` has the same API for asyncio. Names are loaded on first use, so that brokers and Spark workers, which
import parts of the package, do not load the client.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seaweedmq import aio, errors
    from seaweedmq.client.blocking.admin import Admin
    from seaweedmq.client.blocking.client import Client
    from seaweedmq.client.blocking.publisher import Publisher
    from seaweedmq.client.blocking.subscriber import GroupSubscriber, Subscriber
    from seaweedmq.client.config import ClientConfig
    from seaweedmq.client.publish.receipts import OffsetRange, Receipt, TableReceipt
    from seaweedmq.client.subscribe.messages import Message
    from seaweedmq.ports import Dialer, Environment

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Client",
    "ClientConfig",
    "GroupSubscriber",
    "Message",
    "OffsetRange",
    "Publisher",
    "Receipt",
    "Subscriber",
    "TableReceipt",
    "aio",
    "connect",
    "errors",
]

_HOME = {
    "Admin": "seaweedmq.client.blocking.admin",
    "Client": "seaweedmq.client.blocking.client",
    "GroupSubscriber": "seaweedmq.client.blocking.subscriber",
    "Publisher": "seaweedmq.client.blocking.publisher",
    "Subscriber": "seaweedmq.client.blocking.subscriber",
    "ClientConfig": "seaweedmq.client.config",
    "Message": "seaweedmq.client.subscribe.messages",
    "OffsetRange": "seaweedmq.client.publish.receipts",
    "Receipt": "seaweedmq.client.publish.receipts",
    "TableReceipt": "seaweedmq.client.publish.receipts",
}


def connect(
    bootstrap: "str | Sequence[str]" = "127.0.0.1:17777",
    *,
    config: "ClientConfig | None" = None,
    storage: "str | None" = None,
    dialer: "Dialer | None" = None,
    env: "Environment | None" = None,
) -> "Client":
    """Connect to a cluster through any of its brokers.

    Args:
        bootstrap: ``host:port[,host:port]`` or a sequence of ``host:port``, tried in random order.
        config: Limits and timeouts of the client; the defaults of :class:`ClientConfig` if None.
        storage: URI of the cluster's storage, if this process can read it: payloads by reference are then read from
            it, else through the brokers.
        dialer: The network; gRPC if None. Tests pass their own.
        env: The clocks and the randomness; the system's if None. Tests pass their own.

    Raises:
        InvalidArgument: If an address is not ``host:port``, or the storage is not supported.
        Unavailable: If no broker answers within ``connect_timeout_s``, or all addresses refuse connections for
            ``connect_refused_s``. The message names every address with its error.
    """
    from seaweedmq import aio
    from seaweedmq.client.blocking.client import Client
    from seaweedmq.client.config import ClientConfig

    return Client(
        bootstrap,
        dialer or aio.grpc_dialer(),
        env or aio.system_environment(),
        config or ClientConfig(),
        aio.storage_blobs(storage),
    )


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("aio", "errors"):
        return import_module(f"seaweedmq.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'seaweedmq' has no attribute {name!r}")
