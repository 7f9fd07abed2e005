"""The asyncio API of SeaweedMQ: the same names as ``seaweedmq``, with ``await``.

::

    async with seaweedmq.aio.connect("127.0.0.1:17777") as client:
        await client.admin.create_topic("shop/orders", segments=4)
        async with client.publisher("shop/orders") as publisher:
            receipt = await (await publisher.send(b"value", key=b"key"))
        async with client.subscriber("shop/orders", start="earliest", stop_at="latest") as subscriber:
            async for message in subscriber:
                ...

It runs on any event loop; ``uvloop.run(main())`` runs it on the one that the synchronous API uses.
"""

from collections.abc import Sequence

from seaweedmq import errors
from seaweedmq.client.admin.admin import Admin
from seaweedmq.client.client import Client, Opening
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.defaults import grpc_dialer, system_environment
from seaweedmq.client.group.subscriber import GroupSubscriber
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.client.publish.receipts import OffsetRange, Receipt, TableReceipt
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.client.subscribe.subscriber import Subscriber
from seaweedmq.ports import Dialer, Environment

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
    "connect",
    "errors",
]


def connect(
    bootstrap: str | Sequence[str] = "127.0.0.1:17777",
    *,
    config: ClientConfig | None = None,
    dialer: Dialer | None = None,
    env: Environment | None = None,
) -> Opening[Client]:
    """Connect to a cluster through any of its brokers; ``await`` the result, or use it in ``async with``.

    Arguments and errors are those of :func:`seaweedmq.connect`.
    """

    async def open_client() -> Client:
        return await Client.connect(
            bootstrap, dialer or grpc_dialer(), env or system_environment(), config or ClientConfig()
        )

    return Opening(open_client)
