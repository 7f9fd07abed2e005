"""Calls to any broker of a cluster, with retries and the known addresses of its brokers."""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from seaweedmq.client.cluster.topic_updates import TopicUpdates
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.retry import pauses, retrying
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.errors import (
    Closed,
    ConnectionRefused,
    DeadlineExceeded,
    InvalidArgument,
    SeaweedMQError,
    Unavailable,
    Unsupported,
)
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.description import ALL, IDS_MAX, SegmentSelection, TopicDescription, UpdatedTopics
from seaweedmq.model.messages.calls import AwaitTopics, Call, DescribeTopic, GetClusterStatus
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName, topic_recreated
from seaweedmq.ports import BlobReader, BrokerApi, Dialer, Environment
from seaweedmq.runtime.process.forking import inherited
from seaweedmq.runtime.retrying import deadline, is_retryable

T = TypeVar("T")

AVOID_S = 5.0
"""Time for which a broker that did not answer is queried last: a frozen one costs every call some seconds."""
AVOIDED_ANSWER_S = 0.5
"""Deadline of such a broker's first reply on a stream, doubled with every further failure: its segments probably move
elsewhere meanwhile."""
AWAITED_ANSWER_S = 2.0
"""Time that a broker may take to report no change, beyond the wait that the call asks for."""
CONNECT_PAUSE_S_MAX = 0.2
"""Limit of the pause between two rounds over all brokers while a client connects: starting brokers are found early."""
REFUSED, NO_ANSWER = "connection refused", "no answer"
"""Reasons that the client words. Brokers' errors word their own, with the remedy."""


def parse_bootstrap(bootstrap: str | Sequence[str]) -> tuple[str, ...]:
    """Parse ``host:port[,host:port]`` or a sequence of ``host:port``, at least one."""
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = tuple(entry.strip() for entry in entries if entry.strip())
    if not addresses:
        raise InvalidArgument("no bootstrap broker is given: write HOST:PORT[,HOST:PORT], such as 127.0.0.1:17777")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise InvalidArgument(f"bootstrap broker {address!r} is not HOST:PORT: write it like 127.0.0.1:17777")
    return addresses


class Cluster:
    """Access to the brokers of a cluster: calls any of them in random order and remembers their addresses."""

    def __init__(self, bootstrap: Sequence[str], dialer: Dialer, env: Environment, config: ClientConfig) -> None:
        self._bootstrap = tuple(bootstrap)
        self._live: tuple[str, ...] = ()
        self._avoided: dict[str, tuple[float, int]] = {}
        """Address -> loop time until which it is queried last, and its failures since it was last queried normally."""
        self._dialer = dialer
        self.env = env
        self.config = config
        self.updates = TopicUpdates(self._await_topics, env.rng)
        """Updates of the topics that have subscribers."""
        self.own_blobs: BlobReader | None = None
        """Access of this process to the payloads in the storage itself; None if it has none."""
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop in which the client connected."""
        self._process = os.getpid()

    def check_loop(self) -> None:
        """Check that the running event loop owns the connections: in another one, waiting might not end.

        InvalidArgument is raised in another loop, Closed in a child of the process that owns the connections.
        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            if self._process != os.getpid():
                raise Closed(inherited(self._process))
            raise InvalidArgument(
                "the client belongs to the event loop in which it was connected, and this is another one: connect in "
                "this one, or use one asyncio.run for both; with pytest-asyncio, use the same loop_scope"
            )

    def described(self) -> str:
        """Return the bootstrap addresses, for messages."""
        return ",".join(self._bootstrap)

    async def connect(self) -> ClusterStatus:
        """Find a broker that answers, and return the status of the cluster; raises as ``seaweedmq.connect``."""
        self._loop = asyncio.get_running_loop()
        config = self.config
        status = await self.ask(
            "connect to the cluster",
            lambda api: api.call(GetClusterStatus()),
            config.connect_timeout_s,
            refused_s=min(config.connect_refused_s, config.connect_timeout_s),
            pause_s_max=CONNECT_PAUSE_S_MAX,
        )
        self._live = tuple(broker.info.address for broker in status.brokers)
        return status

    async def call(self, what: str, request: Call[T], timeout_s: float | None = None) -> T:
        """Call one broker after another until one answers: see :meth:`ask`."""
        return await self.ask(what, lambda api: api.call(request), timeout_s)

    async def ask(
        self,
        what: str,
        request: Callable[[BrokerApi], Awaitable[T]],
        timeout_s: float | None = None,
        *,
        refused_s: float | None = None,
        pause_s_max: float = math.inf,
    ) -> T:
        """Query one broker after another until one answers or rejects the request.

        Args:
            what: The operation, for error messages: completes "could not ...".
            request: Makes the call at a broker.
            timeout_s: The deadline. Default: ``admin_timeout_s``.
            refused_s: The deadline while all brokers refuse the connection. Default: ``timeout_s``.
            pause_s_max: The upper limit of a pause, besides ``backoff_s_max``.

        Unavailable is raised if no broker answers before a deadline; it names every address and reason.
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
                try:  # The common case, without the cost of a retry object.
                    return await self._round(what, request, reasons)
                except SeaweedMQError as error:
                    if not is_retryable(error) or stop():
                        raise
                config = replace(self.config, backoff_s_max=min(self.config.backoff_s_max, pause_s_max))
                await asyncio.sleep(pauses(config, self.env.rng)(1))
                async for attempt in retrying(config, self.env.rng, stop):
                    with attempt:
                        return await self._round(what, request, reasons)
        except (Unavailable, TimeoutError) as error:
            elapsed_s = min(timeout_s, asyncio.get_running_loop().time() - began)
            raise Unavailable(f"could not {what} within {elapsed_s:.3g} s, {_tried(reasons)}") from error
        raise AssertionError("retrying ended without a result")

    async def _round(self, what: str, request: Callable[[BrokerApi], Awaitable[T]], reasons: dict[str, str]) -> T:
        refusal: SeaweedMQError | None = None
        unknown: list[Unsupported] = []
        addresses = self.addresses()
        for address in addresses:
            try:
                with self.reaching(address):
                    async with asyncio.timeout(self.config.rpc_timeout_s):
                        return await request(self.dial(address))
            except TimeoutError:
                reasons[address] = f"{NO_ANSWER} within {self.config.rpc_timeout_s:g} s"
            except ConnectionRefused:
                reasons[address] = REFUSED
            except Unsupported as error:
                # Another service may have the address by now, or its broker may be older than the others.
                reasons[address] = str(error)
                unknown.append(error)
            except SeaweedMQError as error:
                if not is_retryable(error):
                    raise
                reasons[address] = str(error)
                if not isinstance(error, (Unavailable, DeadlineExceeded)):
                    refusal = error
        if refusal is not None:
            raise refusal
        if unknown and len(unknown) == len(addresses):
            raise unknown[0]
        raise Unavailable(f"could not {what}: no broker answered")

    @contextmanager
    def reaching(self, address: str) -> Iterator[None]:
        """Query other brokers first for a while if the block finds the broker unreachable."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except (Unavailable, DeadlineExceeded, TimeoutError):
            now = asyncio.get_running_loop().time()
            self._avoided = {a: entry for a, entry in self._avoided.items() if entry[0] > now}
            until, failures = self._avoided.get(address, (began, 0))
            if until - AVOID_S <= began:  # Otherwise several callers noticed the same failure.
                failures += 1
            self._avoided[address] = now + AVOID_S, failures
            raise

    def answer_timeout_s(self, address: str) -> float:
        """Return the deadline of the first reply on a stream, in seconds."""
        if not self._is_avoided(address):
            return self.config.rpc_timeout_s
        return min(self.config.rpc_timeout_s, AVOIDED_ANSWER_S * 2.0 ** min(self._avoided[address][1] - 1, 30))

    def addresses(self) -> list[str]:
        """Return all addresses to try, best first.

        Live brokers come first in random order, then other bootstrap brokers, then brokers that did not answer lately.
        """
        live = list(self._live)
        others = [address for address in self._bootstrap if address not in self._live]
        self.env.rng.shuffle(live)
        self.env.rng.shuffle(others)
        return sorted(live + others, key=self._is_avoided)

    def _is_avoided(self, address: str) -> bool:
        return address in self._avoided and self._avoided[address][0] > asyncio.get_running_loop().time()

    def dial(self, address: str) -> BrokerApi:
        """Return the broker at an address; raises as :meth:`check_loop`."""
        self.check_loop()
        if self._closed:
            raise Closed("the client is closed: connect again")
        return self._dialer.dial(address)

    async def describe(
        self, name: TopicName, which: SegmentSelection = ALL, timeout_s: float | None = None, uid: int = 0
    ) -> TopicDescription:
        """Return the current description of a topic; NotFound if it does not exist or has another ``uid`` (0: any).

        ``timeout_s`` is the deadline of each call, by default ``admin_timeout_s``.
        """
        first = replace(which, ids=which.ids[:IDS_MAX])
        description = await self.call(f"describe {name}", DescribeTopic(name, first, uid), timeout_s)
        rest = [which.ids[at : at + IDS_MAX] for at in range(IDS_MAX, len(which.ids), IDS_MAX)]
        return await self.whole(
            description, [SegmentSelection(open=False, sealed_above=None, ids=ids) for ids in rest], timeout_s
        )

    async def whole(
        self, first: TopicDescription, further: Sequence[SegmentSelection] = (), timeout_s: float | None = None
    ) -> TopicDescription:
        """Complete a description that did not fit one reply, as of the first reply; ``further`` selects more segments.

        It contains no later change, except that segments pruned meanwhile may be missing. NotFound is raised if the
        topic was deleted or recreated meanwhile.
        """
        if first.addresses:
            self._live = tuple(first.addresses.values())
        if first.more_above is None and not further:
            return first
        name, segments = first.topic.name, first.by_id()
        more, pages = first.more_above, list(further)
        while pages or more is not None:
            which = pages.pop() if pages else SegmentSelection(open=False, sealed_above=more)
            page = await self.ask(f"describe {name}", partial(_page, first, which), timeout_s)
            for segment in page.segments:
                if segment.id < first.topic.next_segment:
                    segments.setdefault(segment.id, segment)
            if which.sealed_above is not None:
                more = page.more_above
        ordered = tuple(segments[number] for number in sorted(segments))
        return replace(first, segments=ordered, more_above=None)

    async def _await_topics(self, call: AwaitTopics) -> UpdatedTopics:
        """Await topic updates from one broker; if it does not answer in time, it is avoided for a while."""
        address = self.addresses()[0]
        try:
            with self.reaching(address):
                async with asyncio.timeout(call.patience_s + AWAITED_ANSWER_S):
                    updates = await self.dial(address).call(call)
        except TimeoutError:
            raise Unavailable(f"broker {address} does not report topic changes: retry") from None
        for description in updates.changed:
            self._live = tuple(description.addresses.values()) or self._live
        return updates

    def address_of(self, description: TopicDescription, segment: Segment) -> str:
        """Return the address that serves a segment: its primary if it is open, any broker if it is sealed.

        Unavailable is raised if the primary, or every broker, is unreachable; Corrupt if the segment cannot be
        recovered.
        """
        check_recoverable(segment)
        if segment.is_open:
            address = description.addresses.get(segment.primary)
            if address is None:
                raise Unavailable(
                    f"the primary of {segment}, broker {segment.primary}, is not registered: its segment moves soon"
                )
            return address
        if not description.addresses:
            raise Unavailable(f"no live broker is known to serve {segment}: retry")
        known = sorted(description.addresses.values())
        return self.env.rng.choice([a for a in known if not self._is_avoided(a)] or known)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        if not self._closed:
            self._closed = True
            await self.updates.close()
            await self._dialer.close()


def _tried(reasons: Mapping[str, str]) -> str:
    """Return the addresses that were tried, with reasons, and the remedy unless brokers' errors contain it."""
    if not reasons:
        return "no answer yet: check that brokers run there"
    tried = "tried " + "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
    is_silent = any(reason == REFUSED or reason.startswith(NO_ANSWER) for reason in reasons.values())
    return f"{tried}. Check that brokers run there" if is_silent else tried


async def _page(first: TopicDescription, which: SegmentSelection, api: BrokerApi) -> TopicDescription:
    """Fetch a further page of a description; Unavailable if the broker's view is older than the first page."""
    name, uid = first.topic.name, first.topic.uid
    page = await api.call(DescribeTopic(name, which, uid))
    if page.topic.uid != uid:
        raise topic_recreated(name)
    if page.revision < first.revision:
        raise Unavailable(f"the broker's view of {name} is older than the first page of its description: retry")
    return page
