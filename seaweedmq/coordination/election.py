"""Election of a leader: the shell around ``core.leadership``, which carries out its actions on the metadata store."""

import asyncio
import logging
import random
from collections.abc import Sequence

from seaweedmq.codec.state.keys import LEADER
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.waiting import until_deleted
from seaweedmq.core import leadership
from seaweedmq.errors import Deposed, SeaweedMQError
from seaweedmq.ports import Compare, Delete, MetaStore, Put

_log = logging.getLogger(__name__)

PAUSE_TTLS = (1 / 16, 1 / 4)
"""Shortest and longest pause after etcd did not answer, in lease TTLs."""


class Election:
    """The candidacy of one broker during one session. The broker id must be unique to the session.

    The lock is bound to the session's lease: the session's renewals renew it, and its end frees it.
    """

    def __init__(self, store: MetaStore, session: Session, broker_id: str, rng: random.Random) -> None:
        self._store = store
        self._session = session
        self.broker_id = broker_id
        self._rng = rng
        self._campaign = leadership.Campaign(session.ttl_s)
        self._held: int | None = None
        self._changed = asyncio.Event()

    @property
    def revision(self) -> int | None:
        """Creation revision of the lock while this broker surely leads, else None."""
        return self._held if self._session.alive() else None

    async def await_expired_leases(self) -> None:
        """Run ``Session.await_expired_leases``."""
        await self._session.await_expired_leases()

    async def run(self) -> None:
        """Campaign until cancelled, or the session is lost. Call once."""
        loop = asyncio.get_running_loop()
        try:
            while not isinstance(self._campaign.action, leadership.Stop):
                event = await self._carry_out(self._campaign.action)
                self._campaign.handle(event, loop.time())
                self._set_held(self._campaign.revision)
        finally:
            self.step_down()

    async def wait_leading(self) -> int:
        """Return the lock's revision once this broker leads. No deadline."""
        while True:
            changed = self._changed
            revision = self.revision
            if revision is not None:
                return revision
            # A session that renewed late and lives again fires no event here, hence the check every half TTL.
            await _wait(changed, self._session.ttl_s / 2)

    async def wait_not_leading(self) -> None:
        """Return once this broker does not surely lead: it is deposed, or its lease was not renewed in time."""
        while self.revision is not None:
            await _wait(self._changed, max(0.0, self._session.remaining_s))

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """Run ``MetaStore.transact`` if this broker still holds the lock; return None if a compare failed.

        The result is the revision otherwise. The lease also identifies the lock, since a recovered etcd counts its
        revisions from 1. Raises Deposed if this broker does not lead, or no longer, and Unavailable if the outcome is
        unknown.
        """
        revision = self.revision
        if revision is None:
            raise Deposed(f"broker {self.broker_id} does not lead: ask the leader")
        lease = self._session.lease
        done = await self._store.transact([Compare(LEADER, create_revision=revision, lease=lease), *compares], then)
        if done is None:
            lock = await self._store.get(LEADER)
            if lock is None or (lock.create_revision, lock.lease) != (revision, lease):
                if self._held == revision:
                    self.step_down()
                raise Deposed(f"broker {self.broker_id} was deposed as leader: ask the new one")
        return done

    def step_down(self) -> None:
        """Stop leading at once, and notify the waiting tasks."""
        self._set_held(None)

    def _set_held(self, revision: int | None) -> None:
        if revision == self._held:
            return
        if revision is not None:
            _log.info("leadership gained: broker %s, revision %d", self.broker_id, revision)
        else:
            _log.info("leadership lost: broker %s", self.broker_id)
        self._held = revision
        self._changed.set()
        self._changed = asyncio.Event()

    async def _carry_out(self, action: leadership.Action) -> leadership.Event:
        """Carry the action out until it ends, or the session does."""
        doing = asyncio.create_task(self._outcome(action))
        ending = asyncio.create_task(self._session.lost.wait())
        try:
            await asyncio.wait((doing, ending), return_when=asyncio.FIRST_COMPLETED)
            return leadership.Ended() if ending.done() else doing.result()
        finally:
            for task in (doing, ending):
                task.cancel()
            await asyncio.gather(doing, ending, return_exceptions=True)

    async def _outcome(self, action: leadership.Action) -> leadership.Event:
        try:
            match action:
                case leadership.Ask():
                    return await self._ask()
                case leadership.Watch(revision, until):
                    async with asyncio.timeout_at(until):
                        await until_deleted(self._store, LEADER, revision)
                    return leadership.LockFree()
                case leadership.Pause(until):
                    await asyncio.sleep(until - asyncio.get_running_loop().time())
                    return leadership.Tick()
                case leadership.Stop():
                    raise AssertionError("the campaign is over")
        except TimeoutError:
            return leadership.Tick()
        except SeaweedMQError as error:  # LeaseEnded: the session ends the campaign
            _log.debug("leader lock: %s; retrying", error)
            low, high = PAUSE_TTLS
            return leadership.StoreUnavailable(self._session.ttl_s * self._rng.uniform(low, high))

    async def _ask(self) -> leadership.Event:
        if not self._session.lease:
            return leadership.Ended()  # closed: a lock without a lease would never be freed
        mine = Put(LEADER, self.broker_id.encode(), self._session.lease)
        created = await self._store.transact([Compare(LEADER, create_revision=0)], [mine])
        if created is not None:
            return leadership.LockHeld(created)
        lock = await self._store.get(LEADER)
        if lock is None:
            return leadership.LockFree()
        if not lock.lease:  # a lock without a lease would never be freed
            await self._store.transact([Compare(LEADER, mod_revision=lock.mod_revision)], [Delete(LEADER)])
            return leadership.LockFree()
        # The lock may be this broker's own: an answer was lost, or this is the check after 2.5 x TTL.
        if lock.value == mine.value:
            return leadership.LockHeld(lock.create_revision)
        return leadership.LockHeldByOther(lock.mod_revision)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
