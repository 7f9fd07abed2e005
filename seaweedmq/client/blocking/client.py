"""The synchronous client, for threads."""

from collections.abc import Sequence
from typing import Any, Literal, overload

from seaweedmq.client import client as aio_client
from seaweedmq.client.blocking.admin import Admin
from seaweedmq.client.blocking.background import Background
from seaweedmq.client.blocking.derive import BlockingContext
from seaweedmq.client.blocking.publisher import Publisher
from seaweedmq.client.blocking.subscriber import GroupSubscriber, Subscriber
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.options import MAX_UNACKED
from seaweedmq.client.publish import publisher as aio_publisher
from seaweedmq.client.start import StartAt
from seaweedmq.client.subscribe.options import OnMissing
from seaweedmq.errors import Closed
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Dialer, Environment


class Client(BlockingContext):
    """A connection to a cluster, made by ``seaweedmq.connect``. Any number of threads may use it.

    ``with``, :meth:`close` and the end of the interpreter close it. A forked child process cannot use it. ``admin`` is
    the administration of the cluster.
    """

    def __init__(self, bootstrap: str | Sequence[str], dialer: Dialer, env: Environment, config: ClientConfig) -> None:
        self._background = Background(self.close, self._on_fork)
        self._publishers: list[aio_publisher.Publisher] = []
        try:
            self._core = self._background.run(
                aio_client.Client.connect(bootstrap, dialer, env, config, self._background.loop.call_soon_threadsafe)
            )
        except BaseException:
            self._background.stop()
            raise
        self._closed = False
        self.admin = Admin(self._core.admin, self._background)

    def publisher(
        self,
        topic: str | TopicName,
        *,
        linger_s: float | None = None,
        batch_bytes: int | None = None,
        buffer_bytes_max: int | None = None,
        delivery_timeout_s: float | None = None,
    ) -> Publisher:
        """Open a publisher to one topic.

        Args:
            topic: The topic, ``namespace/name``.
            linger_s: See :class:`ClientConfig`, also for the options below. Default: the client's value.
            batch_bytes: See there.
            buffer_bytes_max: See there.
            delivery_timeout_s: See there.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If the name or an option is invalid.
        """
        opening = self._core.publisher(
            topic,
            linger_s=linger_s,
            batch_bytes=batch_bytes,
            buffer_bytes_max=buffer_bytes_max,
            delivery_timeout_s=delivery_timeout_s,
        )
        core = self._background.run(_opened(opening))
        self._publishers = [known for known in self._publishers if not known.is_closed] + [core]
        return Publisher(core, self._background)

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: None = None,
        start: StartAt = "latest",
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> Subscriber: ...

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: str,
        start: StartAt = "latest",
        member: str | None = None,
        auto_ack: bool = False,
        max_deliveries: int | None = None,
        dead_letter: str | TopicName | None = None,
        max_unacked: int = MAX_UNACKED,
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> GroupSubscriber: ...

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: str | None,
        start: StartAt = "latest",
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> Subscriber | GroupSubscriber: ...

    def subscriber(
        self, topic: str | TopicName, *, group: str | None = None, **options: Any
    ) -> Subscriber | GroupSubscriber:
        """Open a subscriber to one topic.

        Args:
            topic: The topic, ``namespace/name``.
            group: The group to join. It divides the segments among its members and stores acknowledged offsets.
                Without a group the subscriber reads the whole topic itself.
            **options: The options below.

        Options of every subscriber:

        - ``start``: ``"earliest"`` reads all records that retention has not removed, ``"latest"`` (the default) those
          committed from now on. An int reads every record at or above that offset, in every segment. A datetime with a
          time zone reads, in every segment, the first record with at least that timestamp and all that follow it. A
          group that read the topic before continues at its committed offsets.
        - ``limit``: The number of records after which iteration ends. Default: unlimited.
        - ``stop_at``: ``"latest"`` ends iteration when all records committed at the time of opening were delivered;
          with a group, when its members have acknowledged them.
        - ``timeout``: The time without records after which iteration ends, in seconds. Default: unlimited.
        - ``columns``: The columns of the batches. Default: all.
        - ``on_missing``: ``"fail"`` (the default) raises ``DataLoss`` where records are lost, which neither retention
          nor a low watermark removed. ``"skip"`` continues after them, with a warning and an entry in ``skipped``.

        Options with a group:

        - ``member``: The member's name, 1 to 100 of ``A-Z a-z 0-9 . _ -``. Default: a random name. A later member of
          the same name fences the earlier one.
        - ``auto_ack``: Whether the request for the next records acknowledges the previous ones. Default: False.
        - ``max_deliveries``: The number of deliveries after which a record goes to ``dead_letter``. Default: unlimited.
        - ``dead_letter``: The dead-letter topic, which is created if it does not exist. Default:
          ``<topic>.<group>.dead-letter``.
        - ``max_unacked``: The limit of unacknowledged records, above which delivery waits. Default: 100,000.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If a name or an option is invalid, or an option needs a group.
            TypeError: If an option does not exist.
            Unavailable: If no broker answers within ``admin_timeout_s``.
            ResourceExhausted: If ``groups_max``, ``group_members_max`` or the leader's memory for groups is reached.
        """
        opened = self._background.run(_opened(self._core.subscriber(topic, group=group, **options)))
        kind = Subscriber if group is None else GroupSubscriber
        return kind(opened, self._background)

    def close(self) -> None:
        """Close all publishers and subscribers, then the connections. Idempotent.

        Publishers deliver the records that were sent.

        Raises:
            SeaweedMQError: If a delivery failed and no earlier call reported it: the first such failure. Everything
                is closed nevertheless.
            InvalidArgument: If a callback or a coroutine handler calls it, whose thread would wait for itself.
        """
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
