"""A recovery of etcd from the storage, put together from its parts."""

import contextlib
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping

from seaweedmq.broker.recovery.cluster import Plan, recover_cluster
from seaweedmq.broker.recovery.ends import end_offsets
from seaweedmq.cli.servers.etcd import wait_for_etcd
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.store.files import open_store

CALL_TIMEOUT_S = 5.0
"""Time for one call of etcd: a listing may be large."""

Ends = Mapping[TopicName, Mapping[int, int | str]]
"""End offsets by topic and segment, or why there is none."""


async def run_recovery(
    storage: str, etcd: str, etcd_timeout_s: float, *, apply: bool, planned: Callable[[Plan, Ends], None]
) -> Plan:
    """Plan a recovery, report the plan to ``planned``, and carry it out if ``apply`` is set and it has no problems.

    Raises:
        SeaweedMQError: See :func:`recover_cluster`.
    """
    async with contextlib.AsyncExitStack() as stack:
        rng = random.Random(secrets.randbits(64))
        store = open_store(storage)
        stack.push_async_callback(store.close)
        await store.read_marker()  # a missing folder fails before the wait for etcd
        meta = EtcdMetaStore(etcd, timeout_s=CALL_TIMEOUT_S, rng=rng)
        stack.push_async_callback(meta.close)
        await wait_for_etcd(meta, etcd, etcd_timeout_s, rng)
        return await recover_cluster(
            store,
            meta,
            apply=apply,
            rng=rng,
            wall_us=lambda: time.time_ns() // 1000,
            planned=_with_ends(store, planned),
        )


def _with_ends(store: SegmentStore, planned: Callable[[Plan, Ends], None]) -> Callable[[Plan], Awaitable[None]]:
    async def report(plan: Plan) -> None:
        planned(plan, {topic.topic.name: await end_offsets(store, topic) for topic in plan.topics})

    return report
