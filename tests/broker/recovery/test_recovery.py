"""Recovery of a lost or restored etcd from the storage, and brokers that continue with it."""

from dataclasses import replace

import pytest

from seaweedmq.broker.recovery.plan import EtcdCondition
from seaweedmq.codec import keys
from seaweedmq.errors import InvalidArgument, StaleMetadata, Unavailable
from seaweedmq.model.calls import AlterTopic, AwaitedTopic, AwaitTopics, DescribeTopic, RaiseLowWatermark, SplitSegment
from seaweedmq.model.description import ALL
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import TopicChange
from seaweedmq.ports import Compare, Delete, Put
from seaweedmq.storage.store.memory import StorageOp
from tests.broker.bed import CONFIG, NAME, Bed, story
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
from tests.sim.machines.loop import Owner


async def filled(bed: Bed) -> None:
    """A topic that was split, with records in its first segment and in one of the others."""
    hosts = await bed.cluster(2)
    await bed.topic(hosts[0], replicas=2)
    primary = await bed.primary(hosts[0])
    publishing = await primary.publisher()
    await publishing.store(3)
    await hosts[0].api.call(SplitSegment(NAME, 0))
    primary = await bed.primary(hosts[0], segment=1)
    publishing = await primary.publisher(segment=1)
    await publishing.store(2)
    await until_documented(bed, hosts[0])
    await mark(bed)


@story
async def test_a_lost_etcd_is_rebuilt_as_it_was(bed: Bed) -> None:
    await filled(bed)
    before = dict(bed.leader().inspect.view.segments[NAME])
    topic = bed.leader().inspect.view.topics[NAME]
    await stop_all(bed, kill=True)
    lose_etcd(bed)
    plan = await recover(bed, apply=False)
    assert plan.state is EtcdCondition.LOST
    assert stored(bed) == {}, "a plan changes nothing"
    await recover(bed)
    (host,) = await bed.cluster(1)
    await bed.until(lambda: NAME in host.inspect.view.topics)
    after = host.inspect.view.segments[NAME]
    found = host.inspect.view.topics[NAME]
    assert found.uid == topic.uid
    assert plain(after[0]) == plain(before[0])
    assert found.next_segment > topic.next_segment
    description = await host.api.call(DescribeTopic(NAME, ALL))
    assert {s.id for s in description.segments} >= {0, 1, 2}


@story
async def test_a_second_recovery_has_nothing_to_do(bed: Bed) -> None:
    await filled(bed)
    await stop_all(bed)
    lose_etcd(bed)
    first = await recover(bed)
    assert first.changes
    assert not first.problems
    second = await recover(bed)
    assert second.state is EtcdCondition.IN_STEP
    assert second.changes == ()


class Killed(Exception):
    """The process is gone."""


class Mortal:
    """A metadata store of a process that is killed after so many writes."""

    def __init__(self, bed: Bed, writes: int) -> None:
        self._inner = bed.etcd.client(Owner("recovery"))
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
async def test_a_recovery_may_be_killed_after_any_write(bed: Bed) -> None:
    await filled(bed)
    await stop_all(bed)
    marker = bed.store.files["cluster.json"]
    lose_etcd(bed)
    await recover(bed)
    expected = stored(bed)
    writes = 0
    while True:
        bed.store.files["cluster.json"] = marker
        lose_etcd(bed)
        with pytest.raises(Killed):
            await recover(bed, meta=Mortal(bed, writes))  # type: ignore[arg-type]
        plan = await recover(bed)
        assert stored(bed) == expected
        if plan.state is EtcdCondition.IN_STEP:
            break
        writes += 1
    assert writes > 2


@story
async def test_an_etcd_restored_from_before_a_split(bed: Bed) -> None:
    hosts = await bed.cluster(2)
    await bed.topic(hosts[0])
    primary = await bed.primary(hosts[0])
    publishing = await primary.publisher()
    await publishing.store(3)
    await mark(bed)
    backup, revision = copied(bed), bed.etcd.server.revision
    await hosts[0].api.call(SplitSegment(NAME, 0))
    primary = await bed.primary(hosts[0], segment=1)
    publishing = await primary.publisher(segment=1)
    await publishing.store(2)
    await until_documented(bed, hosts[0])
    await mark(bed)
    before = dict(hosts[0].inspect.view.segments[NAME])
    await stop_all(bed)
    restore_etcd(bed, backup, revision)
    plan = await recover(bed)
    assert plan.state is EtcdCondition.BEHIND
    (host,) = await bed.cluster(1)
    await bed.until(lambda: len(host.inspect.view.segments_of(NAME)) >= 3)
    after = host.inspect.view.segments[NAME]
    assert plain(after[0]) == plain(before[0])


@story
async def test_clients_believe_descriptions_of_a_recovered_etcd_though_it_counts_anew(bed: Bed) -> None:
    hosts = await bed.cluster(2)
    await bed.topic(hosts[0])
    await (await (await bed.primary(hosts[0])).publisher()).store(3)
    for change in range(30):
        await hosts[0].api.call(AlterTopic(NAME, TopicChange(retention_s=1e6 + change)))
    before = await hosts[0].api.call(DescribeTopic(NAME))
    await until_documented(bed, hosts[0])
    await mark(bed)
    awaited = AwaitedTopic(name=NAME, topic_uid=before.topic.uid, above=before.revision)
    await stop_all(bed)
    lose_etcd(bed)
    await recover(bed)
    (host,) = await bed.cluster(1)
    await bed.until(lambda: NAME in host.inspect.view.topics)
    assert bed.etcd.server.revision < before.revision
    told = await host.api.call(AwaitTopics((awaited,), 1.0))
    after = await host.api.call(DescribeTopic(NAME))
    assert [d.topic.uid for d in told.changed] == [before.topic.uid]
    assert after.revision > before.revision
    changed = AlterTopic(NAME, TopicChange(retention_s=5e5), before.topic.uid, after.revision)
    assert (await host.api.call(changed)).revision > after.revision
    with pytest.raises(StaleMetadata):
        await host.api.call(AlterTopic(NAME, TopicChange(retention_s=6e5), before.topic.uid, before.revision))


@story
async def test_records_that_were_deleted_stay_deleted(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    await bed.topic(host, partitions=1)
    await (await host.publisher()).store(3)
    await until_documented(bed, host)
    await mark(bed)
    await host.api.call(RaiseLowWatermark(NAME, {0: 2}))
    host.kill()
    lose_etcd(bed)
    await recover(bed)
    (host,) = await bed.cluster(1)
    await bed.until(lambda: NAME in host.inspect.view.topics)
    assert host.inspect.view.topics[NAME].low_watermarks == (2,)


@story
async def test_producers_of_a_sealed_segment_outlive_its_log_files(bed: Bed) -> None:
    hosts = await bed.cluster(2, replace(CONFIG, log_grace_s=4.0, log_roll_age_s=2.0, maintenance_interval_s=1.0))
    await bed.topic(hosts[0], replicas=2)
    await (await (await bed.primary(hosts[0])).publisher()).store(3)
    await hosts[0].api.call(SplitSegment(NAME, 0))
    await bed.until(lambda: bed.files(FileKind.TABLE) != [])
    bed.faults.failing[StorageOp.PUT] = "no space left on device"
    await bed.until(lambda: not [log for log in bed.files(FileKind.LOG) if log.segment == 0])
    bed.faults.failing.clear()
    await bed.until(lambda: "topics/test/topic/producers-00000000.json" in bed.store.files)
    await until_documented(bed, hosts[0])
    await mark(bed)
    before = hosts[0].inspect.view.segments[NAME][0]
    assert [s.next_sequence for s in before.sequences] == [3]
    await stop_all(bed)
    lose_etcd(bed)
    await recover(bed)
    (host,) = await bed.cluster(1)
    await bed.until(lambda: NAME in host.inspect.view.topics)
    assert host.inspect.view.segments[NAME][0] == before


@story
async def test_a_storage_without_a_cluster_is_refused(bed: Bed) -> None:
    with pytest.raises(InvalidArgument, match=r"no cluster\.json and no topics"):
        await recover(bed)


@story
async def test_registered_brokers_are_refused(bed: Bed) -> None:
    await filled(bed)
    await stop_all(bed)
    lose_etcd(bed)
    meta = bed.etcd.client(Owner("a broker that knows no markers"))
    lease = await meta.grant_lease(60)
    await meta.transact([], [Put(keys.broker_key("b1"), b"{}", lease)])
    with pytest.raises(Unavailable, match="stop all brokers"):
        await recover(bed)
    await meta.revoke_lease(lease)


@story
async def test_brokers_find_etcd_and_marker_in_step_after_a_recovery(bed: Bed) -> None:
    await filled(bed)
    await stop_all(bed)
    lose_etcd(bed)
    plan = await recover(bed)
    marker = await bed.store.read_marker()
    seen = bed.etcd.server.get(keys.CLUSTER_SEEN)
    assert marker is not None
    assert seen is not None
    assert (marker.generation, marker.etcd_revision) == (plan.generation, seen.mod_revision)
    backup, revision = copied(bed), bed.etcd.server.revision
    await bed.cluster(1)
    await bed.until(lambda: _seen(bed) > revision)
    await stop_all(bed)
    restore_etcd(bed, backup, revision)
    again = await recover(bed, apply=False)
    assert again.state is EtcdCondition.BEHIND, "a backup that was taken right after a recovery is recognized"


def _seen(bed: Bed) -> int:
    entry = bed.etcd.server.get(keys.CLUSTER_SEEN)
    return 0 if entry is None else entry.mod_revision
