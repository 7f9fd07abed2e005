"""Recovery of a lost or restored etcd from the storage, and brokers that continue with it."""

from dataclasses import replace

import pytest

from seaweedmq.broker.recovery.plan import EtcdCondition
from seaweedmq.codec.state import keys
from seaweedmq.errors import InvalidArgument, StaleMetadata, Unavailable
from seaweedmq.model.description import ALL, AwaitedTopic
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import AlterTopic, AwaitTopics, DescribeTopic, RaiseLowWatermark, SplitSegment
from seaweedmq.model.topic import TopicChange
from seaweedmq.ports import Compare, Delete, Put
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
from tests.broker.testbed import CONFIG, NAME, Testbed, story
from tests.doubles.memory_store import StorageOp
from tests.sim.machines.loop import Owner


async def filled(testbed: Testbed) -> None:
    """Create a split topic, with records in its first segment and in one of the others."""
    hosts = await testbed.several(2, replicas=2)
    primary = await testbed.primary(hosts[0])
    publishing = await primary.publisher()
    await publishing.store(3)
    await hosts[0].api.call(SplitSegment(NAME, 0))
    primary = await testbed.primary(hosts[0], segment=1)
    publishing = await primary.publisher(segment=1)
    await publishing.store(2)
    await until_documented(testbed, hosts[0])
    await mark(testbed)


@story
async def test_a_lost_etcd_is_rebuilt_as_it_was(testbed: Testbed) -> None:
    await filled(testbed)
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


@story
async def test_a_second_recovery_has_nothing_to_do(testbed: Testbed) -> None:
    await filled(testbed)
    await stop_all(testbed)
    lose_etcd(testbed)
    first = await recover(testbed)
    assert first.changes
    assert not first.problems
    second = await recover(testbed)
    assert second.state is EtcdCondition.IN_STEP
    assert second.changes == ()


class Killed(Exception):
    """Raised in place of a call of the killed process."""


class Mortal:
    """A metadata store of a process that is killed after a given number of writes."""

    def __init__(self, testbed: Testbed, writes: int) -> None:
        self._inner = testbed.etcd.client(Owner("recovery"))
        self._left = writes

    async def transact(self, compares: list[Compare], then: list[Put | Delete]) -> int | None:
        if not self._left:
            raise Killed
        self._left -= 1
        return await self._inner.transact(compares, then)

    async def revoke_lease(self, lease: int) -> None:
        raise Killed

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


@story
async def test_a_recovery_may_be_killed_after_any_write(testbed: Testbed) -> None:
    await filled(testbed)
    await stop_all(testbed)
    marker = testbed.store.files["cluster.json"]
    lose_etcd(testbed)
    await recover(testbed)
    expected = stored(testbed)
    writes = 0
    while True:
        testbed.store.files["cluster.json"] = marker
        lose_etcd(testbed)
        with pytest.raises(Killed):
            await recover(testbed, meta=Mortal(testbed, writes))  # type: ignore[arg-type]
        plan = await recover(testbed)
        assert stored(testbed) == expected
        if plan.state is EtcdCondition.IN_STEP:
            break
        writes += 1
    assert writes > 2


@story
async def test_an_etcd_restored_from_before_a_split(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    primary = await testbed.primary(hosts[0])
    publishing = await primary.publisher()
    await publishing.store(3)
    await mark(testbed)
    backup, revision = copied(testbed), testbed.etcd.server.revision
    await hosts[0].api.call(SplitSegment(NAME, 0))
    primary = await testbed.primary(hosts[0], segment=1)
    publishing = await primary.publisher(segment=1)
    await publishing.store(2)
    await until_documented(testbed, hosts[0])
    await mark(testbed)
    before = dict(hosts[0].inspect.view.segments[NAME])
    await stop_all(testbed)
    restore_etcd(testbed, backup, revision)
    plan = await recover(testbed)
    assert plan.state is EtcdCondition.BEHIND
    (host,) = await testbed.cluster(1)
    await testbed.until(lambda: len(host.inspect.view.segments_of(NAME)) >= 3)
    after = host.inspect.view.segments[NAME]
    assert plain(after[0]) == plain(before[0])


@story
async def test_clients_believe_descriptions_of_a_recovered_etcd_though_it_counts_anew(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    await (await (await testbed.primary(hosts[0])).publisher()).store(3)
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


@story
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


@story
async def test_producers_of_a_sealed_segment_outlive_its_log_files(testbed: Testbed) -> None:
    hosts = await testbed.several(
        2, replace(CONFIG, log_grace_s=4.0, log_roll_age_s=2.0, maintenance_interval_s=1.0), replicas=2
    )
    await (await (await testbed.primary(hosts[0])).publisher()).store(3)
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


@story
async def test_a_storage_without_a_cluster_is_refused(testbed: Testbed) -> None:
    with pytest.raises(InvalidArgument, match=r"no cluster\.json and no topics"):
        await recover(testbed)


@story
async def test_registered_brokers_are_refused(testbed: Testbed) -> None:
    await filled(testbed)
    await stop_all(testbed)
    lose_etcd(testbed)
    meta = testbed.etcd.client(Owner("a broker that knows no markers"))
    lease = await meta.grant_lease(60)
    await meta.transact([], [Put(keys.broker_key("b1"), b"{}", lease)])
    with pytest.raises(Unavailable, match="stop all brokers"):
        await recover(testbed)
    await meta.revoke_lease(lease)


@story
async def test_brokers_find_etcd_and_marker_in_step_after_a_recovery(testbed: Testbed) -> None:
    await filled(testbed)
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
