"""The asyncio client: a connection to a cluster that opens publishers and subscribers."""

import asyncio
import os
import warnings
import weakref
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from seaweedmq.client.admin.admin import Admin
from seaweedmq.client.admin.arguments import topic_name
from seaweedmq.client.closing import Closing, ClosingContext
from seaweedmq.client.cluster.cluster import Cluster, parse_bootstrap
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.options import GroupOptions
from seaweedmq.client.group.subscriber import GroupSubscriber
from seaweedmq.client.opener import Opener
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.client.subscribe.options import OnMissing, ReadOptions
from seaweedmq.client.subscribe.range_reader import RangeReader
from seaweedmq.client.subscribe.subscriber import Subscriber
from seaweedmq.client.subscribe.topic_reader import TopicReader
from seaweedmq.errors import Closed, InvalidArgument
from seaweedmq.model.messages.subscribe import Start
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlobReader, Dialer, Environment
from seaweedmq.runtime.process.forking import leave_alone_in_children

T = TypeVar("T", bound=ClosingContext)
S = TypeVar("S", Subscriber, GroupSubscriber, RangeReader)
U = TypeVar("U", Publisher, Subscriber, GroupSubscriber, RangeReader)
_OPTIONS = frozenset(field.name for field in fields(ReadOptions))
_GROUP_ONLY = frozenset(field.name for field in fields(GroupOptions)) - {"group"}


def _check_options(group: str | None, options: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that no subscriber has, InvalidArgument for one that needs a group."""
    for name in options.keys() - _OPTIONS - _GROUP_ONLY:
        raise TypeError(f"Client.subscriber() got an unexpected keyword argument {name!r}")
    for name in _GROUP_ONLY & options.keys() if group is None else ():
        raise InvalidArgument(f"{name}= needs a group: set group= also, or omit it")


class Opening(Generic[T]):
    """A client, publisher or subscriber that ``await`` or ``async with`` opens.

    After ``await`` the caller closes it with ``close()``; ``async with`` closes it at the end of the block.
    """

    def __init__(self, opener: Callable[[], Awaitable[T]]) -> None:
        self._opener = opener
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._opener().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._opener()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


class Client(Opener[Opening[Publisher], Opening[Subscriber], Opening[GroupSubscriber]], ClosingContext):
    """An asyncio client, made by ``seaweedmq.aio.connect``.

    Any number of tasks of one event loop may use it. ``admin`` is the administration of the cluster.
    """

    def __init__(
        self, cluster: Cluster, config: ClientConfig, post: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        """Make a client of a connected cluster.

        ``post`` schedules a function in the loop, by default the running loop's ``call_soon``. Threads may send records
        only if they may call it.
        """
        self._closing = Closing()
        self._process = os.getpid()
        self._cluster = cluster
        self._config = config
        self._post = post or asyncio.get_running_loop().call_soon
        self._open: dict[Publisher | TopicReader, None] = {}
        self._forget = partial(_forget, weakref.ref(self))
        """Callback of each publisher and subscriber when it is closed.

        It holds the client weakly, so that a client without an owner is collected and warns.
        """
        leave_alone_in_children(self)
        self.admin = Admin(cluster)

    @classmethod
    async def connect(
        cls,
        bootstrap: str | Sequence[str],
        dialer: Dialer,
        env: Environment,
        config: ClientConfig,
        post: Callable[[Callable[[], None]], object] | None = None,
        *,
        blobs: BlobReader | None = None,
    ) -> "Client":
        """Connect to a cluster; raises as ``seaweedmq.connect``. ``blobs`` reads payloads from the storage itself."""
        try:
            cluster = Cluster(parse_bootstrap(bootstrap), dialer, env, config)
            cluster.own_blobs = blobs
            await cluster.connect()
        except BaseException:
            await dialer.close()
            raise
        return cls(cluster, config, post)

    def _publisher(self, topic: str | TopicName, options: dict[str, Any]) -> Opening[Publisher]:
        config = replace(self._config, **options)
        name = topic_name(topic)

        async def open_publisher() -> Publisher:
            self._check_open()
            publisher = Publisher(self._cluster, name, config, self._post, self._forget)
            await publisher.start()
            return await self._keep(publisher)

        return Opening(open_publisher)

    def _subscriber(
        self, topic: str | TopicName, group: str | None, options: dict[str, Any]
    ) -> Opening[Subscriber] | Opening[GroupSubscriber]:
        name = topic_name(topic)
        _check_options(group, options)
        reading = {name: options.pop(name) for name in _OPTIONS & options.keys()}
        parts = self._cluster, name, self._config, self._forget
        if group is None:
            return Opening(lambda: self._opened(lambda: Subscriber(*parts, ReadOptions(**reading))))
        if options.get("dead_letter") is not None:
            options["dead_letter"] = topic_name(options["dead_letter"])
        return Opening(
            lambda: self._opened(
                lambda: GroupSubscriber(*parts, ReadOptions(**reading), GroupOptions(group=group, **options))
            )
        )

    def read_ranges(
        self,
        topic: str | TopicName,
        ranges: Mapping[int, tuple[Start, int]],
        *,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> Opening[RangeReader]:
        """Return a reader of offset ranges of single segments; ``await`` or ``async with`` opens it.

        Engines such as Spark use it to divide a topic among workers. See :class:`RangeReader`.

        Args:
            topic: The topic, ``namespace/name``.
            ranges: Segment -> start, and exclusive end offset, which must be committed.
            columns: The columns of the batches. Default: all.
            on_missing: ``"fail"`` raises ``DataLoss`` where records are lost; ``"skip"`` continues after them.

        Opening it raises ``NotFound`` if the topic or a segment does not exist.
        """
        name = topic_name(topic)
        parts = self._cluster, name, self._config, self._forget
        return Opening(lambda: self._opened(lambda: RangeReader(*parts, ranges, columns, on_missing)))

    async def _opened(self, make: Callable[[], S]) -> S:
        self._check_open()
        subscriber = make()
        await subscriber.open()
        return await self._keep(subscriber)

    async def _keep(self, opened: U) -> U:
        """Register ``opened``, so that it is closed with the client; Closed if the client was closed meanwhile."""
        if self._closing.has_begun:
            await opened.close()
            self._check_open()
        self._open[opened] = None
        return opened

    async def close(self) -> None:
        """Close all publishers and subscribers, then the connections. Idempotent.

        Publishers deliver the records that were sent. If the call is cancelled, closing continues in the background
        and the next call awaits it.

        Raises:
            SeaweedMQError: If a delivery failed and no earlier call reported it: the first such failure. Everything
                is closed nevertheless.
            InvalidArgument: In another event loop, or in a callback or a coroutine handler of the synchronous client,
                whose thread would wait for itself.
        """
        if not self._closing.is_reported:
            self._cluster.check_loop()
        await self._closing.once(self._close, "close client")

    async def _close(self) -> None:
        outcomes = await asyncio.gather(*(each.close() for each in list(self._open)), return_exceptions=True)
        await self._cluster.close()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def __del__(self) -> None:
        if not self._closing.has_begun and self._process == os.getpid():
            opened = "".join(f", with its {each.described()}" for each in self._open)
            message = (
                f"client of {self._cluster.described()} was not closed{opened}: await its close(), or use async with"
            )
            warnings.warn(message, ResourceWarning, source=self, stacklevel=2)

    def _check_open(self) -> None:
        if self._closing.has_begun:
            raise Closed("the client is closed: connect again")


def _forget(client: "weakref.ref[Client]", each: Publisher | TopicReader) -> None:
    alive = client()
    if alive is not None:
        alive._open.pop(each, None)  # noqa: SLF001 - a function, so that it holds only a weak reference
