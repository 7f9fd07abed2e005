"""The client's view of the cluster: which brokers to ask, and what they said last."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from seaweedmq.client.config import ClientConfig
from seaweedmq.client.retry import deadline, is_retryable, retrying
from seaweedmq.errors import Closed, DeadlineExceeded, InvalidArgument, Refused, SeaweedMQError, Unavailable
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.protocol import TopicDescription
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName, created_again
from seaweedmq.ports import BrokerApi, Dialer, Environment

T = TypeVar("T")

AVOID_S = 5.0
"""How long a broker that did not answer is asked last: a frozen one costs every call some seconds."""
AVOIDED_ANSWER_S = 0.5
"""How long such a broker's first answer on a stream is waited for, doubled with every further failure: its segments
probably move elsewhere meanwhile."""
REFUSED, NO_ANSWER = "connection refused", "no answer"
"""Reasons that are told in our own words; brokers' errors tell theirs, and what to do."""


def parse_bootstrap(bootstrap: str | Sequence[str]) -> tuple[str, ...]:
    """``host:port[,host:port]`` or a sequence of ``host:port`` as a tuple.

    Raises:
        InvalidArgument: empty, or an entry is not ``host:port``.
    """
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = tuple(entry.strip() for entry in entries if entry.strip())
    if not addresses:
        raise InvalidArgument("no bootstrap broker given: write HOST:PORT[,HOST:PORT], such as 127.0.0.1:17777")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise InvalidArgument(f"bootstrap broker {address!r} is not HOST:PORT: write it like 127.0.0.1:17777")
    return addresses


class Cluster:
    """Asks any broker that answers, in random order, and remembers where brokers are."""

    def __init__(self, bootstrap: Sequence[str], dialer: Dialer, env: Environment, config: ClientConfig) -> None:
        self._bootstrap = tuple(bootstrap)
        self._live: tuple[str, ...] = ()
        self._avoided: dict[str, tuple[float, int]] = {}
        """Address -> loop time until which it is asked last, and how often it failed since it was asked first."""
        self._dialer = dialer
        self.env = env
        self.config = config
        self._closed = False

    async def connect(self) -> ClusterStatus:
        """Find one broker that answers for the cluster.

        Raises:
            Unavailable: none did within ``connect_timeout_s``, or within ``connect_refused_s`` if nobody listens at any
                of them; names every address and why.
        """
        config = self.config
        status = await self.call(
            "connect to the cluster",
            lambda api: api.cluster_status(),
            config.connect_timeout_s,
            refused_s=min(config.connect_refused_s, config.connect_timeout_s),
        )
        self._live = tuple(broker.info.address for broker in status.brokers)
        return status

    async def call(
        self,
        what: str,
        request: Callable[[BrokerApi], Awaitable[T]],
        timeout_s: float | None = None,
        *,
        refused_s: float | None = None,
    ) -> T:
        """Make the request at one broker after another until one answers, yes or no.

        Raises:
            Unavailable: none answered in ``timeout_s`` (default ``admin_timeout_s``), or all refused the connection for
                ``refused_s``; names every address and why.
            SeaweedMQError: the refusal of a broker, if repeating the request would not help.
        """
        if timeout_s is None:
            timeout_s = self.config.admin_timeout_s
        began = asyncio.get_running_loop().time()
        reasons: dict[str, str] = {}
        is_late, is_hopeless = deadline(timeout_s), deadline(timeout_s if refused_s is None else refused_s)

        def stop() -> bool:
            return is_late() or (is_hopeless() and set(reasons.values()) == {REFUSED})

        try:
            async with asyncio.timeout(timeout_s):
                async for attempt in retrying(self.config, self.env.rng, stop):
                    with attempt:
                        return await self._round(what, request, reasons)
        except (Unavailable, TimeoutError) as error:
            elapsed_s = min(timeout_s, asyncio.get_running_loop().time() - began)
            raise Unavailable(f"could not {what} within {elapsed_s:.3g} s, {_tried(reasons)}") from error
        raise AssertionError("retrying ended without a result")

    async def _round(self, what: str, request: Callable[[BrokerApi], Awaitable[T]], reasons: dict[str, str]) -> T:
        refusal: SeaweedMQError | None = None
        for address in self.addresses():
            try:
                with self.reaching(address):
                    async with asyncio.timeout(self.config.rpc_timeout_s):
                        return await request(self.dial(address))
            except TimeoutError:
                reasons[address] = f"{NO_ANSWER} within {self.config.rpc_timeout_s:g} s"
            except Refused:
                reasons[address] = REFUSED
            except SeaweedMQError as error:
                if not is_retryable(error):
                    raise
                reasons[address] = str(error)
                if not isinstance(error, (Unavailable, DeadlineExceeded)):
                    refusal = error
        if refusal is not None:
            raise refusal
        raise Unavailable(f"could not {what}: no broker answered")

    @contextmanager
    def reaching(self, address: str) -> Iterator[None]:
        """If the block finds that the broker is out of reach, others are asked first for a while."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except (Unavailable, DeadlineExceeded, TimeoutError):
            now = asyncio.get_running_loop().time()
            self._avoided = {a: entry for a, entry in self._avoided.items() if entry[0] > now}
            until, failures = self._avoided.get(address, (began, 0))
            if until - AVOID_S <= began:  # else this is one failure that several noticed
                failures += 1
            self._avoided[address] = now + AVOID_S, failures
            raise

    def answer_timeout_s(self, address: str) -> float:
        """How long to wait for the first answer on a stream."""
        if not self._is_avoided(address):
            return self.config.rpc_timeout_s
        return min(self.config.rpc_timeout_s, AVOIDED_ANSWER_S * 2.0 ** min(self._avoided[address][1] - 1, 30))

    def addresses(self) -> list[str]:
        """Every address worth trying: live brokers in random order, then the other bootstrap brokers likewise, then
        those that did not answer lately."""
        live = list(self._live)
        others = [address for address in self._bootstrap if address not in self._live]
        self.env.rng.shuffle(live)
        self.env.rng.shuffle(others)
        return sorted(live + others, key=self._is_avoided)

    def _is_avoided(self, address: str) -> bool:
        return address in self._avoided and self._avoided[address][0] > asyncio.get_running_loop().time()

    def dial(self, address: str) -> BrokerApi:
        """Raises Closed after :meth:`close`."""
        if self._closed:
            raise Closed("the client is closed: connect again")
        return self._dialer.dial(address)

    async def describe(self, name: TopicName, timeout_s: float | None = None, uid: int = 0) -> TopicDescription:
        """The topic as the cluster knows it now.

        Raises:
            NotFound: no such topic, or another one has the name than the one with this uid, if it is not 0.
        """
        description = await self.call(f"describe {name}", lambda api: api.describe_topic(name, uid), timeout_s)
        if description.addresses:
            self._live = tuple(description.addresses.values())
        return description

    def address_of(self, description: TopicDescription, segment: Segment) -> str:
        """Where to reach a segment: an open one at its primary, a sealed one anywhere.

        Raises:
            Unavailable: its primary is not alive, or no broker is.
        """
        if segment.is_open:
            address = description.addresses.get(segment.primary)
            if address is None:
                raise Unavailable(
                    f"the primary of {segment}, broker {segment.primary}, is gone: its segment moves soon"
                )
            return address
        if not description.addresses:
            raise Unavailable(f"no live broker is known to serve {segment}")
        known = sorted(description.addresses.values())
        return self.env.rng.choice([a for a in known if not self._is_avoided(a)] or known)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        if not self._closed:
            self._closed = True
            await self._dialer.close()


def _tried(reasons: Mapping[str, str]) -> str:
    """Who was asked, what came of it, and what to do, said once: errors of brokers say it themselves."""
    if not reasons:
        return "no answer yet: check that brokers run there"
    tried = "tried " + "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
    is_silent = any(reason == REFUSED or reason.startswith(NO_ANSWER) for reason in reasons.values())
    return f"{tried}. Check that brokers run there" if is_silent else tried


class TopicView:
    """The last description of one topic. Calls for a new one at the same time share one answer."""

    def __init__(self, cluster: Cluster, name: TopicName, on_change: Callable[[TopicDescription], None]) -> None:
        self._cluster = cluster
        self._name = name
        self._on_change = on_change
        self._description: TopicDescription | None = None
        self._refreshing: asyncio.Task[TopicDescription] | None = None

    async def description(self, refresh: bool) -> TopicDescription:
        """What is known of the topic, or with ``refresh`` what a broker says now. Raises NotFound, also if the topic
        was deleted and created again."""
        if not refresh and self._description is not None:
            return self._description
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(_retrieve)
        return await asyncio.shield(self._refreshing)

    async def _refresh(self) -> TopicDescription:
        uid = self._description.topic.uid if self._description is not None else 0
        description = await self._cluster.describe(self._name, self._cluster.config.rpc_timeout_s, uid)
        self.know(description)
        return self._description or description

    def know(self, description: TopicDescription) -> None:
        """Take in a description, unless it comes from a broker whose view lags: segments never go away, so one that has
        fewer is older, and a publisher that believed it would begin to number a segment's records anew.

        Raises:
            NotFound: it is of another topic of the same name: who opened the earlier one has not asked for this.
        """
        known, told = self._description, description.topic
        if known is not None and known.topic.uid != told.uid:
            raise created_again(self._name)
        if known is not None and told.next_segment < known.topic.next_segment:
            return
        self._description = description
        self._on_change(description)

    def segment(self, number: int) -> Segment:
        """Requires that it was described."""
        if self._description is not None:
            for segment in self._description.segments:
                if segment.id == number:
                    return segment
        raise AssertionError(f"segment {number} of {self._name} was never described")

    def close(self) -> None:
        """Ask no more."""
        if self._refreshing is not None:
            self._refreshing.cancel()


def _retrieve(done: "asyncio.Task[TopicDescription]") -> None:
    """Look at its error, or asyncio complains of it when everybody who waited is gone."""
    if not done.cancelled():
        done.exception()
