"""Membership of a broker: it joins the cluster, rejoins under a new id after a lost lease, and leaves."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

from seaweedmq.broker.incarnation import Incarnation
from seaweedmq.coordination.session import Session
from seaweedmq.errors import AlreadyExists, LeaseEnded, SeaweedMQError
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.ports import Environment
from seaweedmq.runtime.log_once import OnceLogger
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)
T = TypeVar("T")
VERSION = version("seaweedmq")
REGISTRATION = "registration"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses at which other processes dial a broker."""

    address: str
    """Address for clients and brokers."""
    kafka_address: str = ""
    """Address for Kafka clients; "" for none."""


class Membership:
    """The membership of one broker across its incarnations.

    One task begins and ends each incarnation, except the first, which :meth:`join` opens. Nothing is written for an
    incarnation that is over: the next one, if any, registers new facts such as the drain.
    """

    def __init__(
        self,
        *,
        env: Environment,
        lease_ttl_s: float,
        endpoints: Endpoints,
        make_session: Callable[[], Session],
        admit: Callable[[], Awaitable[str]],
        make_incarnation: Callable[[BrokerInfo, Session], Incarnation],
        changed: Callable[[], None],
        drop: Callable[[Incarnation], Awaitable[None]],
    ) -> None:
        """Create the membership.

        ``admit`` returns a new broker id once the broker may register. ``changed`` is called when an incarnation begins
        or is over, and ``drop`` before the end of one whose lease is lost.
        """
        self.incarnation: Incarnation | None = None
        """Present incarnation, or the last one, which may be over."""
        self.draining = False
        """Whether the next registrations are draining."""
        self.retiring = False
        """Whether the broker does not rejoin after the present incarnation."""
        self._env = env
        self._ttl_s = lease_ttl_s
        self._endpoints = endpoints
        self._make_session = make_session
        self._admit = admit
        self._make_incarnation = make_incarnation
        self._changed = changed
        self._drop = drop
        self._failures_log = OnceLogger(log)
        self._joining = asyncio.Lock()
        self._retire = asyncio.Event()
        self._leave = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def join_when_possible(self) -> Incarnation:
        """Register as soon as etcd allows it. No deadline. Raises AlreadyExists as :meth:`join`."""
        joining = retrying(
            backoff(self._env.rng, 0.1, self._ttl_s),
            on=lambda error: isinstance(error, SeaweedMQError) and not isinstance(error, AlreadyExists),
            on_retry=self._failures_log.on_retry(REGISTRATION),
        )
        incarnation: Incarnation = await joining(self.join)
        self._failures_log.over(REGISTRATION)
        return incarnation

    async def join(self) -> Incarnation:
        """Register under a new lease and a new id: segments of an earlier id belong to other brokers.

        Raises AlreadyExists if another broker holds the address; other errors if etcd is unreachable or rejects it, or
        etcd and storage do not belong together.
        """
        async with self._joining:
            broker_id = await self._admit()
            session = self._make_session()
            info = BrokerInfo(
                id=broker_id,
                address=self._endpoints.address,
                started_us=self._env.wall_us(),
                pid=os.getpid(),
                version=VERSION,
                draining=self.draining,
                kafka_address=self._endpoints.kafka_address,
            )
            await session.open(info)
            log.info("broker registered: %s at %s", broker_id, self._endpoints.address)
            self.incarnation = self._make_incarnation(info, session)
        self._changed()
        return self.incarnation

    def run_incarnations(
        self,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        first: Incarnation,
        ready: Awaitable[None],
    ) -> None:
        """Stay in the cluster until :meth:`leave`. The duties begin once ``ready`` ends."""
        self._running = spawn(self._run_incarnations(first, ready), "terms")

    async def announce_draining(self) -> None:
        """Register as draining, now or with the next incarnation. Raises Unavailable if the outcome is unknown."""
        self.draining = True
        async with self._joining:
            incarnation = self.incarnation
        if incarnation is None or incarnation.is_over:
            return
        try:
            await incarnation.announce_draining()
        except LeaseEnded as error:
            address = self._endpoints.address
            log.info("drain announcement deferred: %s registers as draining next time: %s", address, error)

    def retire(self) -> None:
        """Do not rejoin any longer, and cancel a rejoin under way."""
        self.draining = self.retiring = True
        self._retire.set()

    async def leave(self) -> None:
        """End the present incarnation permanently. The segments of a lost lease are dropped first."""
        self.retire()
        self._leave.set()
        if self._running is not None:
            await asyncio.wait({self._running})
        if self.incarnation is not None:
            await self.incarnation.end()  # if the task did not: it never started, or failed

    async def _run_incarnations(self, first: Incarnation, ready: Awaitable[None]) -> None:
        await self._unless(self._leave, ready)
        incarnation: Incarnation | None = first
        while incarnation is not None:
            incarnation.begin()
            await self._unless(self._leave, incarnation.session.lost.wait())
            if incarnation.session.lost.is_set():
                await self._drop(incarnation)
            await incarnation.end()
            self._changed()
            incarnation = await self._rejoin()
        await self._leave.wait()

    async def _rejoin(self) -> Incarnation | None:
        """Return a new incarnation; None if the broker retires. Another holder of its own address is waited for."""
        rejoining = retrying(backoff(self._env.rng, 0.1, self._ttl_s), on=AlreadyExists)
        return await self._unless(self._retire, rejoining(self.join_when_possible))

    async def _unless(self, event: asyncio.Event, work: Awaitable[T]) -> T | None:
        """Return the result of ``work``; cancel it and return None if the event comes first."""
        doing, coming = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({doing, coming}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            coming.cancel()
            if not doing.done():
                doing.cancel()
            await asyncio.wait({doing, coming})
        return None if doing.cancelled() else doing.result()
