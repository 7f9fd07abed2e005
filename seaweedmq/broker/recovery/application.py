"""Application of a plan to etcd and the storage, in an order that makes it safe to kill at any step."""

import asyncio
import contextlib
import random
from collections.abc import Sequence

from seaweedmq.broker.recovery.plan import Plan
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.cluster import identity_to_json
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION, TRANSACTION_BYTES_MAX
from seaweedmq.coordination.waiting import until_deleted
from seaweedmq.errors import Conflict, OutOfRange
from seaweedmq.model.cluster import STORAGE_FORMAT, ClusterIdentity, StorageMarker
from seaweedmq.ports import Compare, Delete, MetaStore, Put, SegmentStore

LOCK_TTL_S = 10.0
"""Lease time of the leader's lock in seconds."""
LOCK_WAIT_EXTRA_S = 4.0
"""Time in seconds by which etcd may end a lease late: see ``coordination.session``."""


class Application:
    """One attempt to apply a plan, under the leader's lock."""

    def __init__(self, store: SegmentStore, meta: MetaStore, plan: Plan, rng: random.Random) -> None:
        self._store = store
        self._meta = meta
        self._plan = plan
        self._rng = rng
        self._lock = 0
        """The creation revision of the lock."""

    async def run(self, marker: StorageMarker | None) -> None:
        """Write the plan, the identity, and the storage's marker; None creates one. Raises as ``recover_cluster``."""
        identity = ClusterIdentity(cluster_id=self._plan.cluster_id, generation=self._plan.generation)
        lease = await self._meta.grant_lease(LOCK_TTL_S)
        try:
            await self._take_lock(lease)
            for changes in _transactions(self._plan.changes):
                await self._meta.renew_lease(lease)
                await self._write(changes)
            if marker is None:
                marker = await self._store.create_marker(
                    StorageMarker(cluster_id=identity.cluster_id, format=STORAGE_FORMAT, generation=0, etcd_revision=0)
                )
                if marker.cluster_id != identity.cluster_id:
                    raise Conflict("another recovery created cluster.json at the same time: retry this one")
            value = identity_to_json(identity)
            revision = await self._write([Put(keys.CLUSTER, value), Put(keys.CLUSTER_SEEN, value)])
            await self._store.replace_marker(
                StorageMarker(
                    cluster_id=identity.cluster_id,
                    format=marker.format,
                    generation=identity.generation,
                    etcd_revision=revision,
                )
            )
        finally:
            await self._meta.revoke_lease(lease)

    async def _take_lock(self, lease: int) -> None:
        owner = f"recovery-{self._rng.getrandbits(64):016x}"
        mine = Put(keys.LEADER, owner.encode(), lease)
        revision = await self._meta.transact([Compare(keys.LEADER, create_revision=0)], [mine])
        if revision is None:  # the lock of a killed recovery ends with its lease
            await self._until_free()
            revision = await self._meta.transact([Compare(keys.LEADER, create_revision=0)], [mine])
        if revision is None:
            raise Conflict(f"a leader or another recovery holds {keys.LEADER} in etcd: stop it and retry the recovery")
        self._lock = revision

    async def _until_free(self) -> None:
        lock = await self._meta.get(keys.LEADER)
        if lock is None:
            return
        with contextlib.suppress(TimeoutError, OutOfRange):
            async with asyncio.timeout(LOCK_TTL_S + LOCK_WAIT_EXTRA_S):
                await until_deleted(self._meta, keys.LEADER, lock.mod_revision)

    async def _write(self, changes: Sequence[Put | Delete]) -> int:
        """Write changes if the lock is still held, and return the revision."""
        compares = [Compare(keys.LEADER, create_revision=self._lock)]
        revision = await self._meta.transact(compares, changes)
        if revision is None:
            raise Conflict("recovery lost its lock because etcd is slow or was restarted: retry the recovery")
        return revision


def _transactions(changes: Sequence[Put | Delete]) -> list[list[Put | Delete]]:
    """Return the changes in order, split into transactions of allowed size."""
    found: list[list[Put | Delete]] = []
    size_bytes = 0
    for change in changes:
        added_bytes = len(change.key) + (len(change.value) if isinstance(change, Put) else 0)
        is_full = not found or len(found[-1]) == CHANGES_PER_TRANSACTION
        if is_full or size_bytes + added_bytes > TRANSACTION_BYTES_MAX // 2:
            found.append([])
            size_bytes = 0
        found[-1].append(change)
        size_bytes += added_bytes
    return found
