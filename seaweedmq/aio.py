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
from seaweedmq.client.group.subscriber import GroupSubscriber
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.client.publish.receipts import OffsetRange, Receipt, TableReceipt
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.client.subscribe.subscriber import Subscriber
from seaweedmq.ports import BlobReader, Dialer, Environment
from seaweedmq.runtime.process.boot_clock import boot_s
from seaweedmq.runtime.process.wall_clock import wall_us

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


def system_environment() -> Environment:
    """Return an environment with the machine's clocks and unseeded randomness."""
    return Environment(wall_us=wall_us, boot_s=boot_s)


def connect(
    bootstrap: str | Sequence[str] = "127.0.0.1:17777",
    *,
    config: ClientConfig | None = None,
    storage: str | None = None,
    dialer: Dialer | None = None,
    env: Environment | None = None,
) -> Opening[Client]:
    """Connect to a cluster through any of its brokers; ``await`` the result, or use it in ``async with``.

    Arguments and errors are those of :func:`seaweedmq.connect`.
    """
    blobs = storage_blobs(storage)

    async def open_client() -> Client:
        return await Client.connect(
            bootstrap, dialer or grpc_dialer(), env or system_environment(), config or ClientConfig(), blobs=blobs
        )

    return Opening(open_client)


def storage_blobs(storage: str | None) -> BlobReader | None:
    """Return the access to the payloads in a storage; None without its URI. InvalidArgument if it is not supported."""
    if storage is None:
        return None
    # Lazy import: most clients read no payload from the storage.
    from seaweedmq.storage.directory_place import DirectoryPlace
    from seaweedmq.storage.payloads import PlaceBlobs

    return PlaceBlobs(DirectoryPlace.parse(storage))


def grpc_dialer() -> Dialer:
    """Return a dialer that connects over the network by gRPC."""
    # Lazy import: a simulation with its own dialer needs no gRPC.
    from seaweedmq.rpc.client import GrpcDialer

    return GrpcDialer()
