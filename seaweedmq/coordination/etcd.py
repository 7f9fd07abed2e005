"""The metadata store on etcd. Only this module and ``etcd_watch`` know etcd's protocol.

It uses the stubs of aetcd. aetcd's own client has no deadline on streams, hides compaction, and reconnects by itself
with pauses of up to two minutes. So connections are managed here: one at a time, and the next endpoint as soon as one
does not answer. A call that may have been applied is repeated only if that is harmless.
"""

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aetcd import rpc

from seaweedmq.coordination.etcd_answers import meaning_of
from seaweedmq.coordination.etcd_watch import changes_of, key_text, open_watch, prefix_range
from seaweedmq.coordination.limits import check_transaction
from seaweedmq.errors import InvalidArgument, LeaseEnded, OutOfRange, SeaweedMQError, Unavailable
from seaweedmq.ports import Changes, Compare, Delete, Entry, Put, Snapshot
from seaweedmq.runtime.retrying import after_attempts, backoff, retrying

_log = logging.getLogger(__name__)

LIST_PAGE_KEYS = 2_000
"""Keys of one page, which keeps each answer far below the message limit."""
ATTEMPTS_MIN = 3
LEASE_TTL_MIN_S = 1

_CHANNEL_OPTIONS = (
    # Pings find a peer that vanished. Not below 5 s: etcd's default --grpc-keepalive-min-time disconnects clients that
    # ping more often. Deadlines detect failures faster: those of each call, and of the probes on each watch.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A new channel must be a new connection, not share the dead one that it replaces.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)

_T = TypeVar("_T")


class _Connection:
    """A channel to one endpoint, and etcd's services on it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.channel: Any = rpc.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
        self.kv: Any = rpc.KVStub(self.channel)
        self.lease: Any = rpc.LeaseStub(self.channel)
        self.watch: Any = rpc.WatchStub(self.channel)


class EtcdMetaStore:
    """A MetaStore on one or more etcd endpoints, ``"host:port,host:port"`` (else InvalidArgument), for one event loop.

    ``timeout_s`` bounds one attempt. Reads, renewals and revocations are retried on the other endpoints, each at least
    once.
    """

    def __init__(self, endpoints: str, *, timeout_s: float = 2.0, rng: random.Random) -> None:
        self._endpoints = parse_endpoints(endpoints)
        self._timeout_s = timeout_s
        self._rng = rng
        self._at = self._rng.randrange(len(self._endpoints))
        self._current: _Connection | None = None
        self._watches: set[asyncio.Event] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def get(self, key: str) -> Entry | None:
        """See ``ports.MetaStore``."""
        request = rpc.RangeRequest(key=key.encode())
        response = await self._repeatable(lambda c: _whole(c.kv.Range(request, timeout=self._timeout_s)))
        return _entry(response.kvs[0]) if response.kvs else None

    async def list(self, prefix: str) -> Snapshot:
        """See ``ports.MetaStore``."""
        for _ in range(ATTEMPTS_MIN):
            try:
                return await self._list_pages(prefix)
            except OutOfRange:
                _log.info("etcd listing interrupted by compaction: %r; retrying", prefix)
        raise Unavailable(f"etcd was compacted {ATTEMPTS_MIN} times under a listing of {prefix!r}: retry")

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """See ``ports.MetaStore``."""
        check_transaction(compares, then)
        request = rpc.TxnRequest(
            compare=[part for compare in compares for part in _compares(compare)],
            success=[_change(change) for change in then],
        )
        response = await self._once(lambda c: _whole(c.kv.Txn(request, timeout=self._timeout_s)))
        return int(response.header.revision) if response.succeeded else None

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        """See ``ports.MetaStore``."""
        connection = self._connect()
        closed = asyncio.Event()
        self._watches.add(closed)
        try:
            async with open_watch(connection.watch, prefix, from_revision, self._timeout_s, closed) as responses:
                async for response in responses:
                    for changes in changes_of(response):
                        yield changes
        except rpc.AioRpcError as error:
            raise self._failed(connection, error) from error
        except Unavailable:
            self._move_on(connection)
            raise
        except SeaweedMQError:
            raise
        except Exception as error:
            raise self._unreadable(connection, error) from error
        finally:
            self._watches.discard(closed)

    async def grant_lease(self, ttl_s: float) -> int:
        """See ``ports.MetaStore``. The TTL is rounded up to whole seconds."""
        if not 0 < ttl_s < math.inf:
            raise InvalidArgument(f"lease TTL {ttl_s} s is not positive and finite: use another one")
        # A repetition leaves an unused lease that ends by itself.
        request = rpc.LeaseGrantRequest(TTL=max(LEASE_TTL_MIN_S, math.ceil(ttl_s)))

        async def grant(connection: _Connection) -> int:
            response = await connection.lease.LeaseGrant(request, timeout=self._timeout_s)
            if not response.ID:
                raise ValueError(f"a lease without an id: {response.error or 'no reason given'}")
            return int(response.ID)

        return await self._repeatable(grant)

    async def renew_lease(self, lease: int) -> float:
        """See ``ports.MetaStore``."""
        request = rpc.LeaseKeepAliveRequest(ID=lease)

        async def renew(connection: _Connection) -> float:
            call = connection.lease.LeaseKeepAlive([request], timeout=self._timeout_s)
            response = await call.read()
            if not isinstance(response, rpc.LeaseKeepAliveResponse):
                raise Unavailable(f"etcd at {connection.endpoint} ended a lease renewal without an answer: retry")
            call.cancel()
            return float(response.TTL)

        try:
            return await self._repeatable(renew)
        except LeaseEnded:
            return 0.0

    async def revoke_lease(self, lease: int) -> None:
        """See ``ports.MetaStore``."""
        request = rpc.LeaseRevokeRequest(ID=lease)
        try:
            await self._repeatable(lambda c: c.lease.LeaseRevoke(request, timeout=self._timeout_s))
        except LeaseEnded:
            return  # already gone, as requested

    async def compact(self, revision: int) -> None:
        """Drop history below ``revision``. For tests and maintenance: etcd compacts by itself."""
        request = rpc.CompactionRequest(revision=revision, physical=True)
        await self._once(lambda c: c.kv.Compact(request, timeout=self._timeout_s))

    async def close(self) -> None:
        """See ``ports.MetaStore``."""
        self._closed = True
        for closed in self._watches:
            closed.set()
        if self._current is not None:
            self._retire(self._current)
            self._current = None
        if self._closing:
            await asyncio.wait(self._closing, timeout=2 * self._timeout_s)

    def _connect(self) -> _Connection:
        if self._closed:
            raise Unavailable("the connection to etcd was closed: open a new one")
        if self._current is None:
            self._current = _Connection(self._endpoints[self._at])
        return self._current

    def _move_on(self, connection: _Connection) -> None:
        """Use the next endpoint from now on, unless another call already switched."""
        if self._current is connection:
            self._at = (self._at + 1) % len(self._endpoints)
            self._current = None
            self._retire(connection)

    def _retire(self, connection: _Connection) -> None:
        # Closing cancels calls that still run on it, which asyncio would take for a cancellation of the waiting task.
        # So the channel stays open until the deadlines of all its calls have passed; watches detect the change by
        # themselves.
        task = asyncio.create_task(connection.channel.close(grace=1.5 * self._timeout_s))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _once(self, send: Callable[[_Connection], Awaitable[Any]]) -> Any:
        """Send a request that must not be applied twice; retry only if it surely did not leave this machine."""
        return await self._attempt(send, lambda error: isinstance(error, _NeverSent))

    async def _repeatable(self, send: Callable[[_Connection], Awaitable[_T]]) -> _T:
        """Send a request that may be applied twice."""
        return await self._attempt(send, lambda error: isinstance(error, Unavailable))

    async def _attempt(
        self, send: Callable[[_Connection], Awaitable[_T]], is_worth_another: Callable[[BaseException], bool]
    ) -> _T:
        attempts = retrying(
            backoff(self._rng, 0.05, 0.2),
            on=is_worth_another,
            stop=after_attempts(max(ATTEMPTS_MIN, len(self._endpoints))),
        )
        return await attempts(self._send, send)

    async def _send(self, send: Callable[[_Connection], Awaitable[_T]]) -> _T:
        connection = self._connect()
        try:
            return await send(connection)
        except rpc.AioRpcError as error:
            raise self._failed(connection, error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # A process that was frozen closes a retired channel before it handles the deadlines of the calls on it.
            raise Unavailable(
                f"the connection to etcd at {connection.endpoint} was closed during a call: retry"
            ) from error
        except SeaweedMQError:
            raise
        except Exception as error:
            raise self._unreadable(connection, error) from error

    def _failed(self, connection: _Connection, error: Any) -> SeaweedMQError:
        """Return the error that an RPC error means to callers; leave the connection if it is at fault."""
        code, details = error.code(), error.details() or ""
        where = f"etcd at {connection.endpoint}"
        meaning = meaning_of(code.name, details)
        if meaning.leaves_endpoint:
            self._move_on(connection)
        if "failed to connect" in details.lower():
            return _NeverSent(f"{where} cannot be reached: check that it runs and that the address is right")
        if code is rpc.StatusCode.DEADLINE_EXCEEDED:
            return Unavailable(f"{where} did not answer within {self._timeout_s} s: retry")
        return meaning.kind(f"{where} rejected the call ({code.name.lower()}: {details}): {meaning.remedy}")

    def _unreadable(self, connection: _Connection, error: Exception) -> SeaweedMQError:
        """Return the error of an answer that etcd never gives, or of a failure in its client; leave the connection."""
        self._move_on(connection)
        return Unavailable(
            f"etcd at {connection.endpoint} gave an unreadable answer ({type(error).__name__}: {error}): "
            "check what listens there; retry"
        )

    async def _list_pages(self, prefix: str) -> Snapshot:
        start, end = prefix_range(prefix)
        entries: list[Entry] = []
        revision = 0
        while True:
            request = rpc.RangeRequest(key=start, range_end=end, limit=LIST_PAGE_KEYS, revision=revision)
            page = await self._read_page(request)
            revision = revision or int(page.header.revision)  # all pages have the revision of the first one
            entries += [_entry(kv) for kv in page.kvs]
            if not page.more:
                return Snapshot(revision, tuple(entries))
            start = page.kvs[-1].key + b"\0"

    async def _read_page(self, request: Any) -> Any:
        async def read(connection: _Connection) -> Any:
            page = await _whole(connection.kv.Range(request, timeout=self._timeout_s))
            if page.more and not page.kvs:
                raise ValueError("a page without keys before the last one")
            return page

        return await self._repeatable(read)


class _NeverSent(Unavailable):
    """The error of a connection that was never established, so that the request was certainly not applied."""


def parse_endpoints(text: str) -> tuple[str, ...]:
    """Return the endpoints of ``"h:p,h:p"``, without a leading ``http://``; InvalidArgument if not host:port."""
    endpoints = tuple(part.strip().removeprefix("http://").rstrip("/") for part in text.split(","))
    for endpoint in endpoints:
        host, colon, port = endpoint.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise InvalidArgument(f"etcd endpoint {endpoint[:200]!r} is not HOST:PORT: write it like 127.0.0.1:2379")
    return endpoints


async def _whole(answering: Awaitable[Any]) -> Any:
    """Return a response of the key-value service, or raise ValueError if it has no revision.

    It is not etcd's then: if empty, it would mean that the cluster has no topics.
    """
    response = await answering
    if response.header.revision < 1:
        raise ValueError("a response without a revision")
    return response


def _entry(kv: Any) -> Entry:
    return Entry(key_text(kv.key), kv.value, int(kv.create_revision), int(kv.mod_revision), int(kv.lease))


def _compares(compare: Compare) -> Sequence[Any]:
    key, equal = compare.key.encode(), rpc.Compare.EQUAL
    wanted = {
        rpc.Compare.CREATE: {"create_revision": compare.create_revision},
        rpc.Compare.MOD: {"mod_revision": compare.mod_revision},
        rpc.Compare.LEASE: {"lease": compare.lease},
    }
    return [
        rpc.Compare(target=target, result=equal, key=key, **field)
        for target, field in wanted.items()
        if None not in field.values()
    ]


def _change(change: Put | Delete) -> Any:
    if isinstance(change, Put):
        return rpc.RequestOp(
            request_put=rpc.PutRequest(key=change.key.encode(), value=change.value, lease=change.lease)
        )
    start, end = prefix_range(change.key) if change.prefix else (change.key.encode(), b"")
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=start, range_end=end))
