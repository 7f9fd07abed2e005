"""The synchronous client, for threads."""

from collections.abc import Sequence
from typing import Any

from seaweedmq.client import client as aio_client
from seaweedmq.client.blocking.admin import Admin
from seaweedmq.client.blocking.background import Background
from seaweedmq.client.blocking.derive import BlockingContext, documented_as
from seaweedmq.client.blocking.publisher import Publisher
from seaweedmq.client.blocking.subscriber import GroupSubscriber, Subscriber
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.opener import Opener
from seaweedmq.client.publish import publisher as aio_publisher
from seaweedmq.errors import Closed
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlobReader, Dialer, Environment


class Client(Opener[Publisher, Subscriber, GroupSubscriber], BlockingContext):
    """A connection to a cluster, made by ``seaweedmq.connect``. Any number of threads may use it.

    ``with``, :meth:`close` and the end of the interpreter close it. A forked child process cannot use it. ``admin`` is
    the administration of the cluster.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        dialer: Dialer,
        env: Environment,
        config: ClientConfig,
        blobs: BlobReader | None = None,
    ) -> None:
        """Connect to a cluster; raises as ``seaweedmq.connect``. ``blobs`` reads payloads from the storage itself."""
        self._background = Background(self.close, self._on_fork)
        self._publishers: list[aio_publisher.Publisher] = []
        try:
            self._core = self._background.run(
                aio_client.Client.connect(
                    bootstrap, dialer, env, config, self._background.loop.call_soon_threadsafe, blobs=blobs
                )
            )
        except BaseException:
            self._background.stop()
            raise
        self._closed = False
        self.admin = Admin(self._core.admin, self._background)

    def _publisher(self, topic: str | TopicName, options: dict[str, Any]) -> Publisher:
        core = self._background.run(_opened(self._core.publisher(topic, **options)))
        self._publishers = [known for known in self._publishers if not known.is_closed] + [core]
        return Publisher(core, self._background)

    def _subscriber(
        self, topic: str | TopicName, group: str | None, options: dict[str, Any]
    ) -> Subscriber | GroupSubscriber:
        opened = self._background.run(_opened(self._core.subscriber(topic, group=group, **options)))
        kind = Subscriber if group is None else GroupSubscriber
        return kind(opened, self._background)

    @documented_as(aio_client.Client.close)
    def close(self) -> None:
        """Close all publishers and subscribers, then the connections."""
        if self._closed:
            return
        self._background.check_thread()
        self._closed = True
        try:
            self._background.run(self._core.close())
        finally:
            self._background.stop()

    def _on_fork(self, error: Closed) -> None:
        self._closed = True
        for publisher in self._publishers:
            publisher.buffer.after_fork(error)


async def _opened(opening: aio_client.Opening[Any]) -> Any:
    return await opening
