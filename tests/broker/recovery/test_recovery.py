"""Recovery of a lost or restored etcd from the storage, and brokers that continue with it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.recovery.ends import end_offsets
from seaweedmq.broker.recovery.plan import EtcdCondition, Plan
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_to_json
from seaweedmq.errors import InvalidArgument, StaleMetadata, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.description import ALL, AwaitedTopic
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import AlterTopic, AwaitTopics, DescribeTopic, RaiseLowWatermark, SplitSegment
from seaweedmq.model.topic import TopicChange
from seaweedmq.ports import Put
from tests.broker.recovery.lost_etcd import (
    copied,
    lose_etcd,
    mark,
    plain,
    recover,
    restore_etcd,
    stop_all,
    stored,
    until_documented,
)
from tests.broker.testbed import CONFIG, NAME, Testbed
from tests.doubles.memory_store import StorageOp
from tests.sim.machines.loop import Owner, OwnerState


async def split(testbed: Testbed) -> None:
    """Create a split topic, with records in its first segment and in one of the others."""
    hosts = await testbed.several(2, replicas=2)
    primary = await testbed.primary(hosts[0])
    await (await primary.publisher()).store(3)
    await hosts[0].api.call(SplitSegment(NAME, 0))
    primary = await testbed.primary(hosts[0], segment=1)
    await (await primary.publisher(segment=1)).store(2)
    await until_documented(testbed, hosts[0])
    await mark(testbed)


async def test_a_lost_etcd_is_rebuilt_as_it_was(testbed: Testbed) -> None:
    await split(testbed)
    before = dict(testbed.leader().inspect.view.segments[NAME])
    topic = testbed.leader().inspect.view.topics[NAME]
    await stop_all(testbed, kill=True)
    lose_etcd(testbed)
    plan = await recover(testbed, apply=False)
    assert plan.state is EtcdCondition.LOST
    assert stored(testbed) == {}, "a plan changes nothing"
    await recover(testbed)
    (host,) = await testbed.cluster(1)
    await testbed.until(lambda: NAME in host.inspect.view.topics)
    after = host.inspect.view.segments[NAME]
    found = host.inspect.view.topics[NAME]
    assert found.uid == topic.uid
    assert plain(after[0]) == plain(before[0])
    assert found.next_segment > topic.next_segment
    description = await host.api.call(DescribeTopic(NAME, ALL))
    assert {s.id for s in description.segments} >= {0, 1, 2}


@pytest.mark.parametrize("grown", [0, 1_000])
async def test_an_etcd_restored_from_before_a_split(testbed: Testbed, grown: int) -> None:
    """Expired leases and brokers of other clusters may raise the revision of a restored etcd beyond the marker's."""
    hosts = await testbed.several(2)
    primary = await testbed.primary(hosts[0])
    await (await primary.publisher()).store(3)
    await mark(testbed)
    backup, revision = copied(testbed), testbed.etcd.server.revision
    await hosts[0].api.call(SplitSegment(NAME, 0))
    primary = await testbed.primary(hosts[0], segment=1)
    await (await primary.publisher(segment=1)).store(2)
    await until_documented(testbed, hosts[0])
    await mark(testbed)
    before = dict(hosts[0].inspect.view.segments[NAME])
    await stop_all(testbed)
    restore_etcd(testbed, backup, revision)
    while testbed.etcd.server.revision < revision + grown:
        testbed.etcd.server.transact([], [Put("/others", b"%d" % testbed.etcd.server.revision)])
    plan = await recover(testbed)
    assert plan.state is EtcdCondition.BEHIND
    (host,) = await testbed.cluster(1)
    await testbed.until(lambda: len(host.inspect.view.segments_of(NAME)) >= 3)
    after = host.inspect.view.segments[NAME]
    assert plain(after[0]) == plain(before[0])


async def test_clients_believe_descriptions_of_a_recovered_etcd_though_it_counts_anew(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    await testbed.publish(frames=3)
    for change in range(30):
        await hosts[0].api.call(AlterTopic(NAME, TopicChange(retention_s=1e6 + change)))
    before = await hosts[0].api.call(DescribeTopic(NAME))
    await until_documented(testbed, hosts[0])
    await mark(testbed)
    awaited = AwaitedTopic(name=NAME, topic_uid=before.topic.uid, above=before.revision)
    await stop_all(testbed)
    lose_etcd(testbed)
    await recover(testbed)
    (host,) = await testbed.cluster(1)
    await testbed.until(lambda: NAME in host.inspect.view.topics)
    assert testbed.etcd.server.revision < before.revision
    told = await host.api.call(AwaitTopics((awaited,), 1.0))
    after = await host.api.call(DescribeTopic(NAME))
    assert [d.topic.uid for d in told.changed] == [before.topic.uid]
    assert after.revision > before.revision
    changed = AlterTopic(NAME, TopicChange(retention_s=5e5), before.topic.uid, after.revision)
    assert (await host.api.call(changed)).revision > after.revision
    with pytest.raises(StaleMetadata):
        await host.api.call(AlterTopic(NAME, TopicChange(retention_s=6e5), before.topic.uid, before.revision))


async def test_records_that_were_deleted_stay_deleted(testbed: Testbed) -> None:
    host = await testbed.single(partitions=1)
    await (await host.publisher()).store(3)
    await until_documented(testbed, host)
    await mark(testbed)
    await host.api.call(RaiseLowWatermark(NAME, {0: 2}))
    host.kill()
    lose_etcd(testbed)
    await recover(testbed)
    (host,) = await testbed.cluster(1)
    await testbed.until(lambda: NAME in host.inspect.view.topics)
    assert host.inspect.view.topics[NAME].low_watermarks == (2,)


async def test_producers_of_a_sealed_segment_outlive_its_log_files(testbed: Testbed) -> None:
    hosts = await testbed.several(
        2, replace(CONFIG, log_grace_s=4.0, log_roll_age_s=2.0, maintenance_interval_s=1.0), replicas=2
    )
    await testbed.publish(frames=3)
    await hosts[0].api.call(SplitSegment(NAME, 0))
    await testbed.until(lambda: testbed.files(FileKind.TABLE) != [])
    testbed.faults.failing[StorageOp.PUT] = "no space left on device"
    await testbed.until(lambda: not [log for log in testbed.files(FileKind.LOG) if log.segment == 0])
    testbed.faults.failing.clear()
    await testbed.until(lambda: "topics/test/topic/producers-00000000.json" in testbed.store.files)
    await until_documented(testbed, hosts[0])
    await mark(testbed)
    before = hosts[0].inspect.view.segments[NAME][0]
    assert [s.next_sequence for s in before.sequences] == [3]
    await stop_all(testbed)
    lose_etcd(testbed)
    await recover(testbed)
    (host,) = await testbed.cluster(1)
    await testbed.until(lambda: NAME in host.inspect.view.topics)
    assert host.inspect.view.segments[NAME][0] == before


async def test_a_storage_without_a_cluster_is_refused(testbed: Testbed) -> None:
    with pytest.raises(InvalidArgument, match=r"no cluster\.json and no topics"):
        await recover(testbed)


async def test_brokers_find_etcd_and_marker_in_step_after_a_recovery(testbed: Testbed) -> None:
    await split(testbed)
    await stop_all(testbed)
    lose_etcd(testbed)
    plan = await recover(testbed)
    marker = await testbed.store.read_marker()
    seen = testbed.etcd.server.get(keys.CLUSTER_SEEN)
    assert marker is not None
    assert seen is not None
    assert (marker.generation, marker.etcd_revision) == (plan.generation, seen.mod_revision)
    backup, revision = copied(testbed), testbed.etcd.server.revision
    await testbed.cluster(1)
    await testbed.until(lambda: _seen(testbed) > revision)
    await stop_all(testbed)
    restore_etcd(testbed, backup, revision)
    again = await recover(testbed, apply=False)
    assert again.state is EtcdCondition.BEHIND, "a backup that was taken right after a recovery is recognized"


def _seen(testbed: Testbed) -> int:
    entry = testbed.etcd.server.get(keys.CLUSTER_SEEN)
    return 0 if entry is None else entry.mod_revision


# --- a recovery that is killed, registered brokers, and the plan


CALLS_MAX = 500
LEASE_S = 5.0


async def filled(testbed: Testbed) -> None:
    """Create a topic whose last segments have no document, and whose first segment no document shows as sealed."""
    hosts = await testbed.several(2, replicas=2)
    await (await (await testbed.primary(hosts[0])).publisher()).store(3)
    await until_documented(testbed, hosts[0])
    await hosts[0].api.call(SplitSegment(NAME, 0))
    await (await (await testbed.primary(hosts[0], segment=1)).publisher(segment=1)).store(2)
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
        last = await recover(testbed)
        assert (last.state, last.changes) == (EtcdCondition.IN_STEP, ()), "nothing is left to do"
        calls += 1
    assert 20 < calls < CALLS_MAX


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


def broker(broker_id: str) -> bytes:
    return broker_to_json(BrokerInfo(id=broker_id, address="10.0.0.1:17777", started_us=0, pid=1, version="1"))
