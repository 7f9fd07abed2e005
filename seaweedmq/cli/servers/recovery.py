"""Assembly of a recovery of etcd from the storage."""

import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from seaweedmq.broker.recovery.cluster import is_recovery_due, recover_cluster
from seaweedmq.broker.recovery.ends import end_offsets
from seaweedmq.broker.recovery.plan import Plan
from seaweedmq.cli.output import note
from seaweedmq.cli.plans import plan_notes
from seaweedmq.cli.servers.etcd import wait_for_etcd
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.errors import Conflict
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import DirectoryStore
from seaweedmq.storage.store.files import open_directory_store

CALL_TIMEOUT_S = 5.0
"""Timeout in seconds of one etcd call: a listing may be large."""

Ends = Mapping[TopicName, Mapping[int, int | str]]
"""End offsets by topic and segment, or the reason why one is missing."""


async def run_recovery(
    storage: str,
    etcd: str,
    etcd_timeout_s: float,
    *,
    apply: bool,
    planned: Callable[[Plan, Ends], None],
    lease_ttl_s: float,
) -> Plan:
    """Plan a recovery, report the plan to ``planned``, and carry it out if ``apply`` is set and it has no problems."""
    async with _opened(storage, etcd, etcd_timeout_s) as (store, meta, rng):
        return await recover_cluster(
            store,
            meta,
            apply=apply,
            rng=rng,
            wall_us=lambda: time.time_ns() // 1000,
            planned=_with_ends(store, planned),
            lease_ttl_s=lease_ttl_s,
        )


async def recover_local(storage: str, etcd: str, etcd_timeout_s: float, *, is_own: bool, lease_ttl_s: float) -> None:
    """Recover the etcd of a local cluster if that is due; Conflict if it has problems, or etcd is not the cluster's.

    An etcd that the cluster runs itself belongs to the storage, so a recovery loses nothing: the storage is the newer
    of the two. One that the user named may be the wrong one, and is left to the user.
    """
    async with _opened(storage, etcd, etcd_timeout_s) as (store, meta, _):
        if not await is_recovery_due(store, meta):
            return
    if not is_own:
        raise Conflict(
            f"etcd at {etcd} is empty or older than storage {storage}: correct --etcd, or rebuild etcd with "
            f"`seaweedmq cluster recover --storage {storage} --etcd {etcd}`"
        )

    def report(plan: Plan, ends: Ends) -> None:
        for line in plan_notes(plan, ends):
            note(line)

    note(f"etcd has lost data that storage {storage} still has: recovering etcd from the storage")
    plan = await run_recovery(storage, etcd, etcd_timeout_s, apply=True, planned=report, lease_ttl_s=lease_ttl_s)
    if plan.problems:
        raise Conflict(
            f"etcd cannot be recovered from storage {storage}, nothing was changed: {'; '.join(plan.problems)}"
        )
    note(f"etcd recovered: cluster {plan.cluster_id}, generation {plan.generation}")


@contextlib.asynccontextmanager
async def _opened(
    storage: str, etcd: str, etcd_timeout_s: float
) -> AsyncIterator[tuple[DirectoryStore, EtcdMetaStore, random.Random]]:
    """Yield the storage, and etcd once it answers."""
    async with contextlib.AsyncExitStack() as stack:
        rng = random.Random(secrets.randbits(64))
        store = open_directory_store(storage)
        stack.push_async_callback(store.close)
        await store.read_marker()  # a missing folder fails before the wait for etcd
        meta = EtcdMetaStore(etcd, timeout_s=CALL_TIMEOUT_S, rng=rng)
        stack.push_async_callback(meta.close)
        await wait_for_etcd(meta, etcd, etcd_timeout_s, rng)
        yield store, meta, rng


def _with_ends(store: DirectoryStore, planned: Callable[[Plan, Ends], None]) -> Callable[[Plan], Awaitable[None]]:
    async def report(plan: Plan) -> None:
        planned(plan, {topic.topic.name: await end_offsets(store, topic) for topic in plan.topics})

    return report
