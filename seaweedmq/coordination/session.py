"""A broker's session in the metadata store: one lease, and its registrations."""

import asyncio
import logging
import random
from collections.abc import Callable

from tenacity import AsyncRetrying

from seaweedmq.codec.state.keys import KAFKA_ADDRESSES, address_key, broker_key, kafka_address_key, left_key
from seaweedmq.codec.state.metadata import broker_to_json
from seaweedmq.coordination.standby import LeaseStandby
from seaweedmq.coordination.waiting import until_deleted
from seaweedmq.errors import AlreadyExists, LeaseEnded, SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.ports import Compare, Entry, MetaStore, Put, loop_s
from seaweedmq.runtime.retrying import after_attempts, backoff, retrying
from seaweedmq.runtime.signal import Signal

_log = logging.getLogger(__name__)

ADDRESS_WAIT_EXTRA_S = 4.0
"""Delay with which etcd may end a lease, beyond the TTL. It counts whole seconds and checks twice a second. An etcd
that was killed gives every lease its TTL again, and the time of an election, a second, on top."""
ADDRESS_WAITS_MAX = 3
"""Limit of such waits in all: a wait restarts when etcd was unreachable meanwhile."""
REGISTER_ATTEMPTS = 3
CLOSE_TIMEOUT_S = 2.0
DEPARTURE_TTL_S = 3600.0
"""Time that a departed broker is remembered, in seconds. Later, its segments wait as if it had died."""


class Session:
    """A lease that is renewed every half TTL until it is lost or closed. It can be opened once.

    The lease surely lives for ``remaining_s``: a renewal counts from its sending, because etcd counts from its arrival.
    The store's timeout must be at most a quarter of the TTL, so that a silent endpoint costs one renewal. ``clock_s``
    counts the time for which the machine is suspended, as etcd does: see ``ports.Environment.boot_s``.
    """

    def __init__(
        self,
        store: MetaStore,
        ttl_s: float,
        rng: random.Random,
        clock_s: Callable[[], float] = loop_s,
        standby: LeaseStandby | None = None,
    ) -> None:
        """Create the session; ``rng`` is for the backoff's jitter, ``standby`` renews when the event loop does not."""
        self.lease = 0
        self.ttl_s = ttl_s
        self.deadline_s = 0.0
        """Time until which the lease surely lives, by ``clock_s``."""
        self.renewed_s = 0.0
        """Time at which the event loop sent its last renewal, by ``clock_s``."""
        self.lost = asyncio.Event()
        """Event set when etcd reports that the lease is gone. An unreachable etcd does not set it."""
        self.changed = Signal()
        """Signal of each renewal, and of the loss of the lease."""
        self._store = store
        self._rng = rng
        self._clock_s = clock_s
        self._standby = standby
        self._opened_at = 0.0
        self._keeping: asyncio.Task[None] | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds for which the lease surely lives from now; 0 or less if that is uncertain."""
        return self.deadline_s - self._clock_s()

    def alive(self) -> bool:
        """Whether the lease surely lives now."""
        return self.lease != 0 and not self.lost.is_set() and self._clock_s() < self.deadline_s

    def extend(self, deadline_s: float) -> None:
        """Record, from any thread, that the lease surely lives until then."""
        self.deadline_s = max(self.deadline_s, deadline_s)

    async def open(self, info: BrokerInfo) -> None:
        """Take a lease, keep it alive, and register the broker and its addresses under it.

        If another broker holds an address, wait for the end of its lease. The wait is up to TTL + 4 s since etcd was
        last unreachable, and at most three times as long. Raises AlreadyExists if a living broker holds an address;
        Unavailable if the store is unreachable, or so slow that the lease ended meanwhile; and the store's rejection of
        the registration, such as ResourceExhausted for lack of space.
        """
        assert not self.lease, "a session is opened once: make a new one"
        await self._attempts()(self._grant)
        self._keeping = asyncio.create_task(self._keep_alive(), name=f"lease of {info.id}")
        self._keeping.add_done_callback(self._on_keeping_ended)
        if self._standby is not None:
            self._standby.guard(self)
        try:
            await self._register(info)
        except LeaseEnded as error:
            await self.close()
            raise Unavailable(f"the lease of {info.id} ended before it was registered, etcd is slow: retry") from error
        except BaseException:
            await self.close()
            raise

    async def await_expired_leases(self) -> None:
        """Return once every lease that ended before this one began has also ended by its holder's clock.

        Etcd ends a lease after its holder's clock did, unless it lost its table of leases. If it loses that later, this
        lease is gone as well, and the broker's actions under it have no effect. All brokers must have the same TTL.
        """
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._opened_at + self.ttl_s - loop.time()))

    async def leave(self, broker_id: str) -> None:
        """Record, best effort, that this broker no longer acknowledges records: none need wait for its lease."""
        if not self.lease:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                lease = await self._store.grant_lease(DEPARTURE_TTL_S)
                await self._store.transact([], [Put(left_key(broker_id), b"", lease)])
        except (TimeoutError, SeaweedMQError) as error:
            _log.warning(
                "departure record failed: broker %s: its segments may wait for %.1f s: %s", broker_id, self.ttl_s, error
            )

    async def update(self, info: BrokerInfo) -> None:
        """Replace the registration under the lease; raise LeaseEnded if there is none: it is not restored.

        Raises Unavailable if the outcome is unknown.
        """
        key, lease = broker_key(info.id), self.lease
        registered = Compare(key, lease=lease)
        if not lease or await self._store.transact([registered], [Put(key, broker_to_json(info), lease)]) is None:
            raise LeaseEnded(f"the lease of broker {info.id} has ended: register again under a new one")

    async def close(self) -> None:
        """Stop renewing and end the lease, so that others need not wait for it; best effort, within 2 s."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        lease, self.lease = self.lease, 0
        if not lease or self.lost.is_set():
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._store.revoke_lease(lease)
        except (TimeoutError, SeaweedMQError) as error:
            _log.warning("lease revocation failed: it ends by itself within %.1f s: %s", self.ttl_s, error)

    async def _register(self, info: BrokerInfo) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self.ttl_s + ADDRESS_WAIT_EXTRA_S
        began = loop.time()
        give_up_at = began + wait_s
        while True:
            holder = await self._try_register(info)
            if holder is None:
                return
            try:
                async with asyncio.timeout_at(give_up_at):
                    await until_deleted(self._store, holder.key, holder.mod_revision)
            except TimeoutError as error:
                raise _address_held(info, holder) from error
            except SeaweedMQError as error:
                _log.info("address watch ended: %s: %s; retrying", holder.key, error)
                await asyncio.sleep(self._rng.uniform(0.05, 0.2))
                # A restarted etcd restarts leases as well; an etcd that keeps failing must not extend the wait forever.
                give_up_at = min(loop.time() + wait_s, began + ADDRESS_WAITS_MAX * wait_s)

    async def _try_register(self, info: BrokerInfo) -> Entry | None:
        """Write all keys, retrying after a lost answer; return None, or the holder of an address."""
        return await self._attempts()(self._register_once, info)

    def _attempts(self) -> AsyncRetrying:
        pause_s = backoff(self._rng, 0.05, self.ttl_s / 4)
        return retrying(pause_s, on=Unavailable, stop=after_attempts(REGISTER_ATTEMPTS))

    async def _grant(self) -> None:
        self.renewed_s = self._clock_s()
        self.lease = await self._store.grant_lease(self.ttl_s)
        self.deadline_s = self.renewed_s + self.ttl_s
        self._opened_at = asyncio.get_running_loop().time()

    async def _register_once(self, info: BrokerInfo) -> Entry | None:
        address, *others = addresses = _address_keys(info)
        puts = [Put(broker_key(info.id), broker_to_json(info), self.lease)]
        puts += [Put(key, info.id.encode(), self.lease) for key in addresses]
        revisions = dict.fromkeys(others, 0)  # Read only if wrong: brokers share this address only by mistake.
        keys = [address]
        while True:
            for key in keys:
                held = await self._store.get(key)
                if held is not None and held.lease and held.value != info.id.encode():
                    return held
                # This id in the key is from an attempt whose answer was lost: write it again, under this lease. A key
                # without a lease has no holder.
                revisions[key] = held.mod_revision if held else 0
            seen = [Compare(key, mod_revision=revision) for key, revision in revisions.items()]
            if await self._store.transact(seen, puts) is not None:
                return None
            keys = addresses

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        next_renewal = loop.time() + self.ttl_s / 2
        pause_s = backoff(self._rng, self.ttl_s / 16, self.ttl_s / 4)
        while True:
            await asyncio.sleep(next_renewal - loop.time())
            # no limit: a live broker must find out whether its lease lives
            renewal = retrying(pause_s, on=SeaweedMQError)
            next_renewal = await renewal(self._renew) + self.ttl_s / 2
            if self.lost.is_set():
                return

    async def _renew(self) -> float:
        """Renew once; return when the renewal was sent, by the loop's clock."""
        sent, sent_s = asyncio.get_running_loop().time(), self._clock_s()
        lasts_s = await self._store.renew_lease(self.lease)
        if lasts_s > 0:
            self.renewed_s = sent_s
            self.extend(sent_s + lasts_s)
        else:
            _log.error("lease ended by etcd: %x: not renewed in time, or revoked", self.lease)
            self.lost.set()
        self.changed.fire()
        return sent

    def _on_keeping_ended(self, task: "asyncio.Task[None]") -> None:
        """Treat a lease without renewal as lost: a new registration is better than an endless wait."""
        if task is self._keeping and not self.lost.is_set():
            error = None if task.cancelled() else task.exception()
            _log.critical("lease renewal stopped: %x: %s", self.lease, error or "cancelled")
            self.lost.set()
            self.changed.fire()


def _address_keys(info: BrokerInfo) -> list[str]:
    """Return the keys that one broker holds: its address identifies it to clients, another one to Kafka clients."""
    keys = [address_key(info.address)]
    return [*keys, kafka_address_key(info.kafka_address)] if info.kafka_address else keys


def _address_held(info: BrokerInfo, holder: Entry) -> AlreadyExists:
    other = holder.value.decode(errors="replace")
    if holder.key.startswith(KAFKA_ADDRESSES):
        return AlreadyExists(
            f"address {info.kafka_address} for Kafka clients is held by the running broker {other}: give each broker a "
            "--kafka-advertise of its own that clients can dial, or stop the other one"
        )
    return AlreadyExists(
        f"address {info.address} is held by the running broker {other}: stop it, or listen on another port"
    )
