"""The asyncio client: one connection to a cluster, from which publishers, subscribers and administration come."""

import asyncio
import os
import warnings
import weakref
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, overload

from seaweedmq.client.admin.admin import Admin, topic_name
from seaweedmq.client.closing import Closing
from seaweedmq.client.cluster.cluster import Cluster, parse_bootstrap
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.options import MAX_UNACKED, GroupOptions
from seaweedmq.client.group.subscriber import GroupSubscriber
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.client.start import StartAt
from seaweedmq.client.subscribe.options import OnMissing, ReadOptions
from seaweedmq.client.subscribe.range_reader import RangeReader
from seaweedmq.client.subscribe.subscriber import Subscriber
from seaweedmq.client.subscribe.topic_reader import TopicReader
from seaweedmq.errors import Closed, InvalidArgument
from seaweedmq.model.messages.subscribe import Start
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Dialer, Environment
from seaweedmq.runtime.process.forking import leave_alone_in_children


class _Closing(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T", bound=_Closing)
S = TypeVar("S", Subscriber, GroupSubscriber, RangeReader)
U = TypeVar("U", Publisher, Subscriber, GroupSubscriber, RangeReader)
_OPTIONS = frozenset(field.name for field in fields(ReadOptions))
_GROUP_ONLY = frozenset(field.name for field in fields(GroupOptions)) - {"group"}


def _check_options(group: str | None, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that no subscriber has, InvalidArgument for one that needs a group."""
    for name in options.keys() - _OPTIONS - _GROUP_ONLY:
        raise TypeError(f"Client.subscriber() got an unexpected keyword argument {name!r}")
    for name in _GROUP_ONLY & options.keys() if group is None else ():
        raise InvalidArgument(f"{name}= needs a group: give group= too, or leave it out")


class Opening(Generic[T]):
    """Something that is opened by ``await`` and used until its ``close()``, or by ``async with``."""

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


class Client:
    """Made by ``connect``. Safe for any number of tasks of one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        config: ClientConfig,
        post: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """``post`` runs a function in the loop soon; records may come from threads only if it may be called there."""
        self._closing = Closing()
        self._process = os.getpid()
        self._cluster = cluster
        self._config = config
        self._post = post or asyncio.get_running_loop().call_soon
        self._open: dict[Publisher | TopicReader, None] = {}
        self._forget = partial(_forget, weakref.ref(self))
        """Called by each of these when it is closed. Weak, so that a client that its owner drops is seen to be."""
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
    ) -> "Client":
        """Raises Unavailable when no bootstrap broker answers, InvalidArgument for an address that is none."""
        try:
            cluster = Cluster(parse_bootstrap(bootstrap), dialer, env, config)
            await cluster.connect()
        except BaseException:
            await dialer.close()
            raise
        return cls(cluster, config, post)

    def publisher(
        self,
        topic: str | TopicName,
        *,
        linger_s: float | None = None,
        batch_bytes: int | None = None,
        buffer_bytes_max: int | None = None,
        delivery_timeout_s: float | None = None,
    ) -> Opening[Publisher]:
        """A publisher to one topic; the options are those of :class:`ClientConfig`. Opening it raises NotFound."""
        given = {
            "linger_s": linger_s,
            "batch_bytes": batch_bytes,
            "buffer_bytes_max": buffer_bytes_max,
            "delivery_timeout_s": delivery_timeout_s,
        }
        config = replace(self._config, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
        name = topic_name(topic)

        async def open_publisher() -> Publisher:
            self._check_open()
            publisher = Publisher(self._cluster, name, config, self._post, self._forget)
            await publisher.start()
            return await self._keep(publisher)

        return Opening(open_publisher)

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
    ) -> Opening[Subscriber]: ...

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
    ) -> Opening[GroupSubscriber]: ...

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
    ) -> Opening[Subscriber] | Opening[GroupSubscriber]: ...

    def subscriber(
        self, topic: str | TopicName, *, group: str | None = None, **options: Any
    ) -> Opening[Subscriber] | Opening[GroupSubscriber]:
        """A subscriber to one topic; see :class:`Subscriber` and, with a group, :class:`GroupSubscriber` for the
        options. Opening it raises NotFound.
        """
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
        """Read stretches of single segments: segment -> where to start, and the offset to end at, which is committed.

        For those that share out a topic among them, like Spark; see :class:`RangeReader`. Opening it raises NotFound.
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
        """To be closed with the client. Raises Closed if it was closed meanwhile."""
        if self._closing.has_begun:
            await opened.close()
            self._check_open()
        self._open[opened] = None
        return opened

    async def close(self) -> None:
        """Close every publisher, which delivers what was sent, and subscriber, then the connections. Idempotent; a call
        that is cancelled leaves closing under way, and the next awaits the same.

        Raises:
            SeaweedMQError: If a delivery failed and was not reported yet, by an earlier call either: the first such
                failure. Everything is closed nevertheless.
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closing.has_begun:
            raise Closed("the client is closed: connect again")


def _forget(client: "weakref.ref[Client]", each: Publisher | TopicReader) -> None:
    alive = client()
    if alive is not None:
        alive._open.pop(each, None)  # noqa: SLF001 - a function, so that it holds only a weak reference
