"""Recovery killed at any of its calls, recovery beside registered brokers, and the plan that it reports."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from seaweedmq.broker.recovery.ends import end_offsets
from seaweedmq.broker.recovery.plan import EtcdCondition, Plan
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_to_json
from seaweedmq.errors import Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.messages.calls import SplitSegment
from seaweedmq.ports import Put
from tests.broker.recovery.lost_etcd import (
    copied,
    lose_etcd,
    mark,
    recover,
    restore_etcd,
    stop_all,
    stored,
    until_documented,
)
from tests.broker.testbed import NAME, Testbed, story
from tests.sim.machines.loop import Owner, OwnerState

CALLS_MAX = 500
LEASE_S = 5.0


async def filled(testbed: Testbed) -> None:
    """Create a topic whose last segments have no document, and whose first segment no document shows as sealed."""
    hosts = await testbed.several(2, replicas=2)
    publishing = await (await testbed.primary(hosts[0])).publisher()
    await publishing.store(3)
    await until_documented(testbed, hosts[0])
    await hosts[0].api.call(SplitSegment(NAME, 0))
    publishing = await (await testbed.primary(hosts[0], segment=1)).publisher(segment=1)
    await publishing.store(2)
    await mark(testbed)
    await stop_all(testbed, kill=True)


class Process:
    """The calls of one process to etcd and the storage, which is killed before or right after one of them."""

    def __init__(self, calls: int, *, is_made: bool) -> None:
        self.owner = Owner("recovery")
        self._left = calls
        self._is_made = is_made

    async def call(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left == -1:
            if self._is_made:
                await method(*arguments, **more)
            self.owner.state = OwnerState.DEAD
            await asyncio.sleep(0)
        return await method(*arguments, **more)


class Mortal:
    """One port of such a process."""

    def __init__(self, process: Process, inner: object) -> None:
        self._process = process
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*arguments: Any, **more: Any) -> Any:
            return await self._process.call(method, *arguments, **more)

        return call


@story
@pytest.mark.parametrize("is_made", [True, False])
async def test_a_recovery_that_is_killed_at_any_call_is_completed_by_the_next(testbed: Testbed, is_made: bool) -> None:
    await filled(testbed)
    files = dict(testbed.store.files)
    lose_etcd(testbed)
    assert not (await recover(testbed)).problems
    expected = stored(testbed)
    calls = 0
    while True:
        testbed.store.files.clear()
        testbed.store.files.update(files)
        lose_etcd(testbed)
        process = Process(calls, is_made=is_made)
        owner = process.owner
        meta: Any = Mortal(process, testbed.etcd.client(owner))
        store: Any = Mortal(process, testbed.store)
        run = testbed.network.spawn(owner, recover(testbed, meta=meta, store=store), owner.name)
        await testbed.until(lambda run=run, owner=owner: run.done() or owner.state is OwnerState.DEAD)
        if run.done():
            break
        again = await recover(testbed)
        assert not again.problems
        assert stored(testbed) == expected, f"killed at call {calls}"
        assert (await recover(testbed)).state is EtcdCondition.IN_STEP
        calls += 1
    assert 20 < calls < CALLS_MAX


@story
async def test_registrations_of_a_backup_end_with_their_leases(testbed: Testbed) -> None:
    await filled(testbed)
    lose_etcd(testbed)
    meta = testbed.etcd.client(Owner("a backup"))
    lease = await meta.grant_lease(LEASE_S)
    await meta.transact([], [Put(keys.broker_key("b1"), broker("b1"), lease)])
    plan = await recover(testbed, apply=False)
    assert plan.brokers == ("b1 at 10.0.0.1:17777",)
    await recover(testbed)
    assert (await recover(testbed)).state is EtcdCondition.IN_STEP


@story
async def test_a_broker_that_stays_registered_is_named_and_nothing_is_written(testbed: Testbed) -> None:
    await filled(testbed)
    lose_etcd(testbed)
    meta = testbed.etcd.client(Owner("a broker of an older build"))
    lease = await meta.grant_lease(LEASE_S)
    await meta.transact([], [Put(keys.broker_key("b1"), broker("b1"), lease)])

    async def renew() -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            await meta.renew_lease(lease)

    renewing = asyncio.create_task(renew())
    with pytest.raises(Unavailable, match=r"b1 at 10\.0\.0\.1:17777; stop all brokers that serve"):
        await recover(testbed)
    renewing.cancel()
    assert stored(testbed) == {}


@story
async def test_the_plan_has_topics_segments_and_end_offsets_before_anything_is_written(testbed: Testbed) -> None:
    await filled(testbed)
    lose_etcd(testbed)
    reported: list[Plan] = []

    async def planned(plan: Plan) -> None:
        assert stored(testbed) == {}
        reported.append(plan)

    plan = await recover(testbed, planned=planned)
    assert reported == [plan]
    (topic,) = plan.topics
    assert topic.topic.name == NAME
    assert topic.is_changed
    ends = await end_offsets(testbed.store, topic)
    assert (ends[0], ends[1]) == (3, 5)
    assert ends[2] == 3


@story
async def test_a_backup_whose_revision_has_grown_again_is_still_behind(testbed: Testbed) -> None:
    """Expired leases and brokers of other clusters raise the revision of a restored etcd beyond the marker's."""
    hosts = await testbed.several(1)
    await mark(testbed)
    backup, revision = copied(testbed), testbed.etcd.server.revision
    publishing = await (await testbed.primary(hosts[0])).publisher()
    await publishing.store(3)
    await hosts[0].api.call(SplitSegment(NAME, 0))
    await until_documented(testbed, hosts[0])
    await testbed.until(
        lambda: b'"etcd_revision": %d' % revision not in bytes(testbed.store.files["cluster.json"].data)
    )
    await stop_all(testbed)
    restore_etcd(testbed, backup, revision)
    while testbed.etcd.server.revision < revision + 1_000:
        testbed.etcd.server.transact([], [Put("/others", b"%d" % testbed.etcd.server.revision)])
    assert (await recover(testbed)).state is EtcdCondition.BEHIND


def broker(broker_id: str) -> bytes:
    """Return a registration."""
    return broker_to_json(BrokerInfo(id=broker_id, address="10.0.0.1:17777", started_us=0, pid=1, version="1"))
