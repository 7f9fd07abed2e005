"""A metadata store that logs rejections once, counts them, and reports them until they end.

A rejection that only makes sense for another call becomes Unavailable: OutOfRange would tell a publisher that its
segment was pruned. etcd may reject one kind of call and answer another: out of space it reads and renews leases, but
takes no puts.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from seaweedmq.codec.state import keys
from seaweedmq.coordination.waiting import end_watch
from seaweedmq.errors import InvalidArgument, LeaseEnded, OutOfRange, SeaweedMQError, Unavailable
from seaweedmq.ports import Changes, Compare, Delete, Entry, MetaStore, Put, Snapshot
from seaweedmq.runtime.log_once import OnceLogger

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

READS, WRITES, RENEWALS = "etcd reads", "etcd writes", "etcd lease renewals"
PROBE_S = 3.0
"""Longest pause between two probes while a kind of call is rejected, in seconds."""
NO_REVISION = 2**62
"""Modification revision that no key has: a transaction that compares it changes nothing."""
NO_LEASE = 2**63 - 1
MISPLACED = (OutOfRange, InvalidArgument, LeaseEnded)
"""Errors that a read, or a call about a lease, cannot mean: it names no revision, breaks no limit and writes no key."""


class ObservedMetaStore:
    """A metadata store that passes every call on to another one. Implements ``ports.MetaStore``."""

    def __init__(self, store: MetaStore, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._failures_log = OnceLogger(_log)
        self._refused = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Reason why etcd rejects calls at present; "" if it answers all."""
        return "; ".join(f"{what}: {reason}" for what, reason in sorted(self._failures_log.lasting().items()))

    async def run(self) -> None:
        """Probe rejected kinds of calls until etcd answers them again: this detects the end without traffic."""
        probes: Mapping[str, Callable[[], Awaitable[object]]] = {
            READS: lambda: self.get(keys.LEADER),
            WRITES: self._put_nothing,
            RENEWALS: lambda: self.renew_lease(NO_LEASE),
        }
        while True:
            await self._refused.wait()
            await asyncio.sleep(self._rng.uniform(PROBE_S / 2, PROBE_S))
            for what in self._failures_log.lasting():
                try:
                    await probes[what]()
                except SeaweedMQError as error:
                    _log.debug("%s: probe: %s", what, error)
            if not self._failures_log.lasting():
                self._refused.clear()

    async def get(self, key: str) -> Entry | None:
        """See ``ports.MetaStore``."""
        return await self._noted(READS, self._store.get(key))

    async def list(self, prefix: str) -> Snapshot:
        """See ``ports.MetaStore``."""
        return await self._noted(READS, self._store.list(prefix))

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """See ``ports.MetaStore``."""
        puts = any(isinstance(op, Put) for op in then)
        answering = self._store.transact(compares, then)
        return await self._noted(WRITES, answering, ends_trouble=puts, misplaced=(OutOfRange,))

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        """See ``ports.MetaStore``."""
        watch = self._store.watch(prefix, from_revision)
        try:
            async for changes in watch:
                yield changes
        except SeaweedMQError as error:
            self._note(READS, error)
            raise
        finally:
            await end_watch(watch)

    async def grant_lease(self, ttl_s: float) -> int:
        """See ``ports.MetaStore``."""
        return await self._noted(WRITES, self._store.grant_lease(ttl_s))

    async def renew_lease(self, lease: int) -> float:
        """See ``ports.MetaStore``."""
        return await self._noted(RENEWALS, self._store.renew_lease(lease))

    async def revoke_lease(self, lease: int) -> None:
        """See ``ports.MetaStore``."""
        await self._noted(RENEWALS, self._store.revoke_lease(lease))

    async def close(self) -> None:
        """See ``ports.MetaStore``."""
        await self._store.close()

    async def _put_nothing(self) -> None:
        """Send a put that etcd checks against its quota, and that changes nothing."""
        await self.transact([Compare(keys.PROBE, mod_revision=NO_REVISION)], [Put(keys.PROBE, b"")])

    async def _noted(
        self,
        what: str,
        answering: Awaitable[_T],
        *,
        ends_trouble: bool = True,
        misplaced: tuple[type[SeaweedMQError], ...] = MISPLACED,
    ) -> _T:
        try:
            answer = await answering
        except SeaweedMQError as error:
            if not isinstance(error, misplaced):
                self._note(what, error)
                raise
            unfit = Unavailable(f"etcd gave an answer that does not fit the call: {error}; retry")
            self._note(what, unfit)
            raise unfit from error
        if ends_trouble:  # out of space, etcd still deletes
            self._failures_log.over(what)
        return answer

    def _note(self, what: str, error: SeaweedMQError) -> None:
        if not isinstance(error, (LeaseEnded, InvalidArgument, OutOfRange)):  # these answer the call
            self._failures_log.add(what, error)
            self._refused.set()
