"""Etcd as simulated processes see it: behind a slow network, sometimes unreachable, and with its writes checked.

The real in-memory server runs outside all processes, so that the timers of its leases outlive the brokers that
requested them. The network may lose a request before it is applied, or its answer afterwards.
"""

import asyncio
import contextvars
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from seaweedmq.codec.state import keys
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.ports import Changes, Compare, Delete, Entry, Put, Snapshot
from tests.doubles.memory_meta import Backup, MemoryMetaServer
from tests.sim.machines.etcd_errors import EtcdErrors, MetaCall
from tests.sim.machines.loop import Owner, SimLoop
from tests.sim.machines.network import machine_of

REQUEST_TIMEOUT_S = 2.0


class SimEtcd:
    """The etcd server, and the faults that the nemesis sets."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.errors: list[EtcdErrors] = []
        """Error answers that calls receive now."""
        self.server = MemoryMetaServer()
        self.latency_s_max = 0.003
        self.lost_share = 0.0
        """Share of requests that are lost in either direction."""
        self.lost_s_max = 0.0
        """Longest time in seconds until a lost request is noticed; leases may end meanwhile."""
        self.leases_lost_s = -math.inf
        """Time at which it last lost all leases."""
        self.on_restored: Callable[[], None] = lambda: None
        self.unguarded: list[str] = []
        """Metadata writes that did not compare the leader's lock: a deposed leader could have made them."""
        self._context = contextvars.Context()

    def client(self, owner: Owner) -> "SimMetaStore":
        return SimMetaStore(self, owner)

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run ``call`` as the server: the timers it starts belong to no process."""
        return self._context.run(call, *args)

    @property
    def is_well(self) -> bool:
        return self.server.is_running and not self.server.is_frozen and not self.lost_share and not self.errors

    def has_lease(self, lease: int) -> bool:
        """Whether the lease has not ended, regardless of its holder's view."""
        return self.server.has_lease(lease)

    def lose_leases(self) -> None:
        """End all leases; their holders do not notice until the leases would have ended by their clocks."""
        self.leases_lost_s = self.loop.time()
        self.run(self.server.lose_leases)

    def restore(self, backup: Backup) -> None:
        """Restore a backup, or lose all data."""
        self.run(self.server.restore, backup)
        self.on_restored()

    def latency_s(self) -> float:
        return self.rng.uniform(0.0001, self.latency_s_max)

    def error(
        self, owner: Owner, call: MetaCall, changes: Sequence[Put | Delete], *, is_applied: bool
    ) -> SeaweedMQError | None:
        for errors in self.errors:
            if errors.is_applied is is_applied:
                error = errors.error(call, changes, machine_of(owner))
                if error is not None:
                    return error
        return None

    def note_transaction(self, owner: Owner, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> None:
        """Check that every write of the leader compares the creation revision of its lock."""
        guarded = any(c.key == keys.LEADER and c.create_revision for c in compares)
        touched = [w.key for w in then if w.key.startswith((keys.TOPICS, keys.SEGMENTS, keys.GROUPS_ROOT))]
        if touched and not guarded:
            self.unguarded.append(f"{owner.name} wrote {touched[0]} without comparing {keys.LEADER}")


class SimMetaStore:
    """A process's view of etcd; a ``ports.MetaStore``."""

    def __init__(self, etcd: SimEtcd, owner: Owner) -> None:
        self._etcd = etcd
        self._server = etcd.server
        self._owner = owner
        self.is_cut_off = False
        """Whether the nemesis drops every packet between this process and etcd."""
        self.hears = asyncio.Event()
        """Cleared by the nemesis: etcd answers requests and the lease is renewed, but the watch is silent, so that the
        process acts on stale metadata."""
        self.hears.set()
        self.hears_metadata = asyncio.Event()
        """The same for the watch of all metadata alone; the leader's lock has a separate watch."""
        self.hears_metadata.set()

    async def get(self, key: str) -> Entry | None:
        found: Entry | None = await self._call(MetaCall.GET, self._server.get, key)
        return found

    async def list(self, prefix: str) -> Snapshot:
        found: Snapshot = await self._call(MetaCall.LIST, self._server.list, prefix)
        return found

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        self._etcd.note_transaction(self._owner, compares, then)
        revision: int | None = await self._call(MetaCall.TRANSACT, self._server.transact, compares, then, changes=then)
        return revision

    async def grant_lease(self, ttl_s: float) -> int:
        lease: int = await self._call(MetaCall.GRANT, self._server.grant, ttl_s)
        return lease

    async def renew_lease(self, lease: int) -> float:
        ttl_s: float = await self._call(MetaCall.RENEW, self._server.renew, lease)
        return ttl_s

    async def revoke_lease(self, lease: int) -> None:
        await self._call(MetaCall.REVOKE, self._server.revoke, lease)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        await self._request()
        next_revision = from_revision
        while True:
            pulse = self._server.pulse
            self._check(MetaCall.WATCH)
            if not self._is_answering():
                await self._wait_until_answering()
                continue
            for changes in self._server.changes_since(next_revision):
                next_revision = changes.revision + 1
                below = _below(prefix, changes)
                if below is not None:
                    await self._news_arrive(prefix)
                    yield below
            await pulse.wait()

    async def close(self) -> None:
        """Do nothing: each call makes its own connection."""

    def _is_answering(self) -> bool:
        return self._server.is_running and not self._server.is_frozen and not self.is_cut_off

    async def _news_arrive(self, prefix: str) -> None:
        await asyncio.sleep(self._etcd.latency_s())
        await self.hears.wait()
        if prefix == keys.ROOT:
            await self.hears_metadata.wait()

    async def _request(self) -> None:
        """Travel to the server.

        Raises:
            Unavailable: If the server rejects it, at once; if nothing answers, at the deadline."""
        await asyncio.sleep(self._etcd.latency_s())
        if not self._is_answering():
            await self._wait_until_answering()

    async def _wait_until_answering(self) -> None:
        deadline_s = self._etcd.loop.time() + REQUEST_TIMEOUT_S
        while not self._is_answering():
            if not self._server.is_running and not self.is_cut_off:
                raise Unavailable("etcd refused the connection")
            if self._etcd.loop.time() >= deadline_s:
                raise Unavailable(f"etcd did not answer within {REQUEST_TIMEOUT_S} s")
            await asyncio.sleep(0.05)

    async def _in_vain(self) -> None:
        """Wait until the connection breaks or the deadline passes."""
        if self._etcd.lost_s_max and self._etcd.rng.random() < 0.5:
            await asyncio.sleep(self._etcd.rng.uniform(0, self._etcd.lost_s_max))

    def _check(self, call: MetaCall, changes: Sequence[Put | Delete] = (), *, is_applied: bool = False) -> None:
        """Raise the error that etcd answers now, if any."""
        error = self._etcd.error(self._owner, call, changes, is_applied=is_applied)
        if error is not None:
            raise error

    async def _call(
        self, call: MetaCall, method: Callable[..., Any], *args: Any, changes: Sequence[Put | Delete] = ()
    ) -> Any:
        await self._request()
        self._check(call, changes)
        lost = self._etcd.rng.random()
        if lost < self._etcd.lost_share / 2:
            await self._in_vain()
            raise Unavailable("the request to etcd was lost")
        answer = self._etcd.run(method, *args)
        self._check(call, changes, is_applied=True)
        if lost < self._etcd.lost_share:
            await self._in_vain()
            raise Unavailable("the answer of etcd was lost: it may have happened")
        await asyncio.sleep(self._etcd.latency_s())
        if not self._is_answering():
            raise Unavailable("the connection to etcd was lost: it may have happened")
        return answer


def _below(prefix: str, changes: Changes) -> Changes | None:
    puts = tuple(entry for entry in changes.puts if entry.key.startswith(prefix))
    deletes = tuple(key for key in changes.deletes if key.startswith(prefix))
    return Changes(changes.revision, puts, deletes) if puts or deletes else None
