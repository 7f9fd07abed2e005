"""The metadata store in memory, with etcd's semantics, for the simulation and fast tests.

Many :class:`MemoryMetaStore` clients share one :class:`MemoryMetaServer`. Leases use the event loop's clock, so a
virtual clock drives them as well. The methods under "hooks" inject outages, delays and lost answers.
"""

import asyncio
import bisect
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seaweedmq.coordination.limits import check_transaction
from seaweedmq.errors import InvalidArgument, LeaseEnded, OutOfRange, Unavailable
from seaweedmq.ports import Changes, Compare, Delete, Entry, Put, Snapshot

HISTORY_REVISIONS_MAX = 100_000
"""Revisions retained for watches. Beyond it the older half is compacted, as by etcd's auto-compaction."""
ELECTION_TIMEOUT_S = 1.0
"""Election timeout that a new leader adds to every lease, in seconds: etcd's default."""


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    deadline: float
    timer: asyncio.TimerHandle
    keys: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Backup:
    """The data of a server at one revision."""

    revision: int = 1
    entries: Mapping[str, Entry] = field(default_factory=dict)
    ttls_s: Mapping[int, float] = field(default_factory=dict)
    """TTL of each lease, in seconds."""


class MemoryMetaServer:
    """The keys, history and leases of one simulated etcd. Clients connect to it; it is not a MetaStore itself."""

    def __init__(self) -> None:
        self.revision = 1
        """Revision of the last change; it begins at 1, as in etcd."""
        self.compacted_revision = 0
        self._entries: dict[str, Entry] = {}
        self._sorted_keys: list[str] = []
        self._lease_of: dict[str, int] = {}
        self._history: list[Changes] = []
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0
        self.is_running = True
        self.is_frozen = False
        self.pulse = asyncio.Event()
        """Event set at the next change of data or reachability; read it before the state that it guards."""

    # --- hooks ---
    def stop(self) -> None:
        """Stop as if killed: calls and watches fail until :meth:`start`. Data is retained."""
        self.is_running = False
        self.wake()

    def start(self) -> None:
        """Serve again. Leases get their whole TTL and an election timeout, as from a new etcd leader."""
        self.is_running = True
        for lease in list(self._leases):
            self._renew(lease, ELECTION_TIMEOUT_S)
        self.wake()

    def freeze(self) -> None:
        """Stop as by SIGSTOP: nothing is answered and no lease ends until :meth:`thaw`."""
        self.is_frozen = True
        self.wake()

    def thaw(self) -> None:
        """Resume. Leases whose time passed meanwhile end now."""
        self.is_frozen = False
        now = asyncio.get_running_loop().time()
        for lease, held in list(self._leases.items()):
            if held.deadline <= now:
                self._expire(lease)
        self.wake()

    def compact(self, revision: int) -> None:
        """Drop history below ``revision``."""
        if not self.compacted_revision < revision <= self.revision:
            raise InvalidArgument(
                f"cannot compact at revision {revision}: choose from {self.compacted_revision + 1} to {self.revision}"
            )
        self.compacted_revision = revision
        del self._history[: bisect.bisect_left(self._history, revision, key=lambda changes: changes.revision)]
        self.wake()

    def expire_lease(self, lease: int) -> None:
        """End a lease at once, as if its time had passed."""
        self.revoke(lease)

    def lose_leases(self) -> None:
        """End all leases at once, as if a restore lost the table of leases."""
        for lease in list(self._leases):
            self.revoke(lease)

    def save(self) -> Backup:
        """Return a backup, like ``etcdctl snapshot save``."""
        ttls_s = {lease: held.ttl_s for lease, held in self._leases.items()}
        return Backup(self.revision, dict(self._entries), ttls_s)

    def restore(self, backup: Backup) -> None:
        """Replace all data by a backup; an empty one is the loss of all data. Watches end, and leases restart."""
        for held in self._leases.values():
            held.timer.cancel()
        self.revision = self.compacted_revision = backup.revision
        self._entries = dict(backup.entries)
        self._sorted_keys = sorted(self._entries)
        self._lease_of.clear()
        self._history.clear()
        self._leases.clear()
        now = asyncio.get_running_loop().time()
        for lease, ttl_s in backup.ttls_s.items():
            self._leases[lease] = _Lease(ttl_s, now + ttl_s, self._timer(lease, now + ttl_s))
        for entry in backup.entries.values():
            self._bind(entry.key, entry.lease)
        self.wake()

    # --- calls of clients ---
    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def list(self, prefix: str) -> Snapshot:
        return Snapshot(self.revision, tuple(self._entries[key] for key in self._keys_below(prefix)))

    def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        check_transaction(compares, then)
        if not all(self._holds(compare) for compare in compares):
            return None
        for change in then:
            if isinstance(change, Put) and change.lease and change.lease not in self._leases:
                raise LeaseEnded(f"lease {change.lease:x} is gone: register again under a new lease")
        puts: list[Entry] = []
        deletes: list[str] = []
        for change in then:
            if isinstance(change, Put):
                puts.append(self._entry(change))
                self._bind(change.key, change.lease)
            else:
                deletes += self._keys_below(change.key) if change.prefix else [change.key]
        return self._apply(puts, deletes)

    def changes_since(self, revision: int) -> Sequence[Changes]:
        """Return all changes at and after ``revision``, oldest first."""
        if revision < self.compacted_revision:
            raise OutOfRange(
                f"revision {revision} is compacted, the oldest available is {self.compacted_revision}: list again"
            )
        if revision > self.revision + 1:
            raise OutOfRange(
                f"etcd is at revision {self.revision}, before {revision}: its data was restored; list again"
            )
        at = bisect.bisect_left(self._history, revision, key=lambda changes: changes.revision)
        return self._history[at:]

    def has_lease(self, lease: int) -> bool:
        return lease in self._leases

    def grant(self, ttl_s: float) -> int:
        if not 0 < ttl_s < math.inf:
            raise InvalidArgument(f"lease TTL {ttl_s} s is not positive and finite: use another one")
        self._last_lease += 1
        deadline = asyncio.get_running_loop().time() + ttl_s
        self._leases[self._last_lease] = _Lease(ttl_s, deadline, self._timer(self._last_lease, deadline))
        return self._last_lease

    def renew(self, lease: int) -> float:
        return self._renew(lease) if lease in self._leases else 0.0

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys in one revision. No error if it is gone."""
        ended = self._leases.pop(lease, None)
        if ended is not None:
            ended.timer.cancel()
            self._apply([], sorted(ended.keys))

    # --- internals ---
    def _renew(self, lease: int, extra_s: float = 0.0) -> float:
        held = self._leases[lease]
        held.timer.cancel()
        held.deadline = asyncio.get_running_loop().time() + held.ttl_s + extra_s
        held.timer = self._timer(lease, held.deadline)
        return held.ttl_s

    def _timer(self, lease: int, deadline: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(deadline, self._expire, lease)

    def _expire(self, lease: int) -> None:
        if self.is_running and not self.is_frozen:  # a stopped server ends nothing; start() and thaw() check the leases
            self.revoke(lease)

    def _holds(self, compare: Compare) -> bool:
        entry = self._entries.get(compare.key)
        created = entry.create_revision if entry else 0
        modified = entry.mod_revision if entry else 0
        lease = entry.lease if entry else 0
        return (
            compare.create_revision in (None, created)
            and compare.mod_revision in (None, modified)
            and compare.lease in (None, lease)
        )

    def _entry(self, put: Put) -> Entry:
        old = self._entries.get(put.key)
        created = old.create_revision if old else self.revision + 1
        return Entry(put.key, put.value, created, self.revision + 1, put.lease)

    def _bind(self, key: str, lease: int) -> None:
        old = self._lease_of.pop(key, 0)
        if old in self._leases:
            self._leases[old].keys.discard(key)
        if lease:
            self._lease_of[key] = lease
            self._leases[lease].keys.add(key)

    def _apply(self, puts: Sequence[Entry], deletes: Sequence[str]) -> int:
        deleted = tuple(dict.fromkeys(key for key in deletes if key in self._entries))
        if not puts and not deleted:
            return self.revision  # as in etcd: without a change there is no new revision
        for key in deleted:
            del self._entries[key]
            del self._sorted_keys[bisect.bisect_left(self._sorted_keys, key)]
            self._bind(key, 0)
        for entry in puts:
            if entry.key not in self._entries:
                bisect.insort(self._sorted_keys, entry.key)
            self._entries[entry.key] = entry
        self.revision += 1
        self._history.append(Changes(self.revision, tuple(puts), deleted))
        if len(self._history) > HISTORY_REVISIONS_MAX:
            self.compact(self._history[HISTORY_REVISIONS_MAX // 2].revision)
        self.wake()
        return self.revision

    def _keys_below(self, prefix: str) -> Sequence[str]:
        at = bisect.bisect_left(self._sorted_keys, prefix)
        end = at
        while end < len(self._sorted_keys) and self._sorted_keys[end].startswith(prefix):
            end += 1
        return self._sorted_keys[at:end]

    def wake(self) -> None:
        self.pulse.set()
        self.pulse = asyncio.Event()


def _no_delay() -> float:
    return 0.0


class MemoryMetaStore:
    """A client of a :class:`MemoryMetaServer`; a MetaStore.

    ``delay_s`` returns the travel time of each request in seconds; ``timeout_s`` is the deadline of a call.
    """

    def __init__(
        self, server: MemoryMetaServer, *, timeout_s: float = 2.0, delay_s: Callable[[], float] = _no_delay
    ) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._delay_s = delay_s
        self._answers_to_lose = 0
        self._closed = False

    # --- hooks ---
    def lose_answers(self, count: int) -> None:
        """Apply the next ``count`` transactions, but answer them with Unavailable."""
        self._answers_to_lose = count

    # --- MetaStore ---
    async def get(self, key: str) -> Entry | None:
        await self._reach()
        return self._server.get(key)

    async def list(self, prefix: str) -> Snapshot:
        await self._reach()
        return self._server.list(prefix)

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        await self._reach()
        revision = self._server.transact(compares, then)
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            raise Unavailable("etcd's answer to a transaction was lost: its outcome is unknown")
        return revision

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        await self._reach()
        next_revision = from_revision
        while True:
            pulse = self._server.pulse
            if not self._is_reachable():
                await self._reach()
                continue
            for changes in self._server.changes_since(next_revision):
                next_revision = changes.revision + 1
                below = _below(prefix, changes)
                if below is not None:
                    yield below
            await pulse.wait()

    async def grant_lease(self, ttl_s: float) -> int:
        await self._reach()
        return self._server.grant(ttl_s)

    async def renew_lease(self, lease: int) -> float:
        await self._reach()
        return self._server.renew(lease)

    async def revoke_lease(self, lease: int) -> None:
        await self._reach()
        self._server.revoke(lease)

    async def close(self) -> None:
        self._closed = True
        self._server.wake()

    def _is_reachable(self) -> bool:
        return self._server.is_running and not self._server.is_frozen and not self._closed

    async def _reach(self) -> None:
        """Return when the server takes the request."""
        await asyncio.sleep(self._delay_s())
        try:
            async with asyncio.timeout(self._timeout_s):
                while not self._is_reachable():
                    if self._closed:
                        raise Unavailable("the connection to etcd was closed: open a new one")
                    if not self._server.is_running:
                        raise Unavailable("etcd refused the connection: check that it runs")
                    await self._server.pulse.wait()
        except TimeoutError as error:
            raise Unavailable(f"etcd did not answer within {self._timeout_s} s: check that it runs") from error


def _below(prefix: str, changes: Changes) -> Changes | None:
    puts = tuple(entry for entry in changes.puts if entry.key.startswith(prefix))
    deletes = tuple(key for key in changes.deletes if key.startswith(prefix))
    return Changes(changes.revision, puts, deletes) if puts or deletes else None
