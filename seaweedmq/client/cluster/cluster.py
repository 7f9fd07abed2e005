"""The client's view of the cluster: which brokers to ask, and what they said last."""

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
from seaweedmq.model.description import ALL, IDS_MAX, SegmentSelection, TopicDescription
from seaweedmq.model.messages.calls import AwaitTopics, Call, DescribeTopic, GetClusterStatus, UpdatedTopics
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName, topic_recreated
from seaweedmq.ports import BrokerApi, Dialer, Environment
from seaweedmq.runtime.process.forking import inherited
from seaweedmq.runtime.retrying import deadline, is_retryable

T = TypeVar("T")

AVOID_S = 5.0
"""How long a broker that did not answer is asked last: a frozen one costs every call some seconds."""
AVOIDED_ANSWER_S = 0.5
"""How long such a broker's first answer on a stream is waited for, doubled with every further failure: its segments
probably move elsewhere meanwhile."""
AWAITED_ANSWER_S = 2.0
"""How long a broker may take to say that nothing has changed, beyond the time it was told to wait."""
CONNECT_PAUSE_S_MAX = 0.2
"""Between two rounds of a client that connects: brokers that start just now are found once they listen."""
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
        self.news = TopicUpdates(self._await_topics, env.rng)
        """What brokers tell of topics that somebody waits for."""
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """That in which it was connected."""
        self._process = os.getpid()

    def check_loop(self) -> None:
        """Check that the event loop is that of the connections: in another one, waiting might not end.

        Raises:
            InvalidArgument: If it is another.
            Closed: If this is a child of the process that has the connections.
        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            if self._process != os.getpid():
                raise Closed(inherited(self._process))
            raise InvalidArgument(
                "the client belongs to the event loop in which it was connected, and this is another: connect in this "
                "one, or use one asyncio.run for both; with pytest-asyncio, the same loop_scope"
            )

    def described(self) -> str:
        """The addresses it was given, for messages."""
        return ",".join(self._bootstrap)

    async def connect(self) -> ClusterStatus:
        """Find one broker that answers for the cluster.

        Raises:
            Unavailable: none did within ``connect_timeout_s``, or within ``connect_refused_s`` if nobody listens at any
                of them; names every address and why.
        """
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
        """Make the call at one broker after another until one answers: see :meth:`ask`."""
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
        """Ask one broker after another until one answers, yes or no, with pauses up to the client's ``backoff_s_max``
        or ``pause_s_max``.

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
                try:  # the rule, without machinery for what is not
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
        """Return the broker at an address.

        Raises:
            Closed: If it was closed.
            InvalidArgument, Closed: See :meth:`check_loop`.
        """
        self.check_loop()
        if self._closed:
            raise Closed("the client is closed: connect again")
        return self._dialer.dial(address)

    async def describe(
        self, name: TopicName, which: SegmentSelection = ALL, timeout_s: float | None = None, uid: int = 0
    ) -> TopicDescription:
        """The topic as the cluster knows it now, with all segments that are asked for.

        Raises:
            NotFound: no such topic, or another one has the name than the one with this uid, if it is not 0.
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
        """A description with what was too much for one answer, as of the first answer: of later changes none is in it,
        but that segments may be missing that were pruned meanwhile.

        Raises:
            NotFound: the topic was deleted meanwhile, be it that another one has its name now.
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
        """Of one broker, which is avoided for a while if it does not answer in time, which raises Unavailable."""
        address = self.addresses()[0]
        try:
            with self.reaching(address):
                async with asyncio.timeout(call.patience_s + AWAITED_ANSWER_S):
                    told = await self.dial(address).call(call)
        except TimeoutError:
            raise Unavailable(f"broker {address} does not tell of changes of topics") from None
        for description in told.changed:
            self._live = tuple(description.addresses.values()) or self._live
        return told

    def address_of(self, description: TopicDescription, segment: Segment) -> str:
        """Where to reach a segment: an open one at its primary, a sealed one anywhere.

        Raises:
            Unavailable: its primary is not alive, or no broker is.
            Corrupt: If it cannot be recovered; names the file.
        """
        check_recoverable(segment)
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
            await self.news.close()
            await self._dialer.close()


def _tried(reasons: Mapping[str, str]) -> str:
    """Who was asked, what came of it, and what to do, said once: errors of brokers say it themselves."""
    if not reasons:
        return "no answer yet: check that brokers run there"
    tried = "tried " + "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
    is_silent = any(reason == REFUSED or reason.startswith(NO_ANSWER) for reason in reasons.values())
    return f"{tried}. Check that brokers run there" if is_silent else tried


async def _page(first: TopicDescription, which: SegmentSelection, api: BrokerApi) -> TopicDescription:
    """More of a description.

    Raises:
        NotFound: the topic was deleted, also if another one has its name now.
        Unavailable: the broker's view is older than what was there at the first answer.
    """
    name, uid = first.topic.name, first.topic.uid
    page = await api.call(DescribeTopic(name, which, uid))
    if page.topic.uid != uid:
        raise topic_recreated(name)
    if page.revision < first.revision:
        raise Unavailable(f"the broker lags behind what was said of {name} a moment ago")
    return page
