"""A broker's membership: it joins the cluster, comes back as somebody new when its lease is lost, and leaves."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from importlib.metadata import version
from typing import Any, TypeVar

from seaweedmq.broker.incarnation import Incarnation
from seaweedmq.coordination.session import Session, Standby
from seaweedmq.errors import AlreadyExists, Deposed, SeaweedMQError
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.ports import Environment, MetaStore
from seaweedmq.runtime.log_once import OnceLogger
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)
T = TypeVar("T")
VERSION = version("seaweedmq")
REGISTRATION = "registration"


class Membership:
    """One task begins and ends every term but the first, which :meth:`join` opens. A term that is over is never
    written about again: what is new (being drained) is said by the next one, if there is one."""

    def __init__(
        self,
        *,
        meta: MetaStore,
        env: Environment,
        lease_ttl_s: float,
        standby: Standby | None,
        address: str,
        kafka_address: str,
        admit: Callable[[], Awaitable[None]],
        make_incarnation: Callable[[BrokerInfo, Session], Incarnation],
        changed: Callable[[], None],
        drop: Callable[[Incarnation], Awaitable[None]],
    ) -> None:
        """``admit`` returns once the broker may register. ``standby`` renews leases that the event loop does not.
        ``changed`` is called when a term begins or is over, ``drop`` before one ends whose lease is lost."""
        self.incarnation: Incarnation | None = None
        """The present one, or the last: it may be over."""
        self.draining = False
        """Register as draining from now on."""
        self.retiring = False
        """Comes back no more once the present term is over."""
        self._meta = meta
        self._env = env
        self._ttl_s = lease_ttl_s
        self._standby = standby
        self._address = address
        self._kafka_address = kafka_address
        self._admit = admit
        self._make_incarnation = make_incarnation
        self._changed = changed
        self._drop = drop
        self._complaints = OnceLogger(log)
        self._joining = asyncio.Lock()
        self._retire = asyncio.Event()
        self._leave = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def join_when_possible(self) -> Incarnation:
        """Register as soon as etcd lets it, however long that takes. AlreadyExists: another broker has the address."""
        joining = retrying(
            backoff(self._env.rng, 0.1, self._ttl_s),
            on=lambda error: isinstance(error, SeaweedMQError) and not isinstance(error, AlreadyExists),
            told=self._complaints.told(REGISTRATION),
        )
        incarnation: Incarnation = await joining(self.join)
        self._complaints.over(REGISTRATION)
        return incarnation

    async def join(self) -> Incarnation:
        """Register under a new lease and a new id: whatever an earlier id owned is somebody else's business now.

        Raises:
            AlreadyExists: another broker holds the address.
            SeaweedMQError: etcd cannot be reached, or refuses; or etcd and storage do not belong together.
        """
        async with self._joining:
            await self._admit()
            broker_id = f"b-{self._env.rng.getrandbits(32):08x}"
            session = Session(self._meta, self._ttl_s, self._env.rng, self._env.boot_s, self._standby)
            info = BrokerInfo(
                id=broker_id,
                address=self._address,
                started_us=self._env.wall_us(),
                pid=os.getpid(),
                version=VERSION,
                draining=self.draining,
                kafka_address=self._kafka_address,
            )
            await session.open(info)
            log.info("broker %s at %s", broker_id, self._address)
            self.incarnation = self._make_incarnation(info, session)
        self._changed()
        return self.incarnation

    def stay(
        self,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        first: Incarnation,
        ready: Awaitable[None],
    ) -> None:
        """Stay in the cluster until :meth:`leave`. Duties begin once it is ``ready``."""
        self._running = spawn(self._stay(first, ready), "terms")

    async def announce_draining(self) -> None:
        """Register as draining, now or when the broker is back. Unavailable: etcd may or may not know it."""
        self.draining = True
        async with self._joining:
            incarnation = self.incarnation
        if incarnation is None or incarnation.is_over:
            return
        try:
            await incarnation.announce_draining()
        except Deposed as error:
            log.info("the next registration says that %s is draining: %s", self._address, error)

    def retire(self) -> None:
        """Come back no more. What is under way to come back is given up."""
        self.draining = self.retiring = True
        self._retire.set()

    async def leave(self) -> None:
        """End the present term, for good. What a lost lease has begun to drop is dropped first."""
        self.retire()
        self._leave.set()
        if self._running is not None:
            await asyncio.wait({self._running})
        if self.incarnation is not None:
            await self.incarnation.end()  # unless it was: there was never a task, or it has failed

    async def _stay(self, first: Incarnation, ready: Awaitable[None]) -> None:
        await self._unless(self._leave, ready)
        incarnation: Incarnation | None = first
        while incarnation is not None:
            incarnation.begin()
            await self._unless(self._leave, incarnation.session.lost.wait())
            if incarnation.session.lost.is_set():
                await self._drop(incarnation)
            await incarnation.end()
            self._changed()
            incarnation = await self._come_back()
        await self._leave.wait()

    async def _come_back(self) -> Incarnation | None:
        """A new term; None: the broker retires. The address was its own, so another holder is waited for."""
        rejoining = retrying(backoff(self._env.rng, 0.1, self._ttl_s), on=AlreadyExists)
        return await self._unless(self._retire, rejoining(self.join_when_possible))

    async def _unless(self, event: asyncio.Event, work: Awaitable[T]) -> T | None:
        """What ``work`` returns; None, and it is cancelled, if the event comes first."""
        doing, coming = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({doing, coming}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            coming.cancel()
            if not doing.done():
                doing.cancel()
            await asyncio.wait({doing, coming})
        return None if doing.cancelled() else doing.result()
