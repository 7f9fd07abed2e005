"""Brokers whose etcd and storage do not belong together, at their start and while they run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.admission import STORAGE
from seaweedmq.broker.leader.marker_keeper import KEEP_INTERVAL_S
from seaweedmq.codec.paths import CLUSTER_DOCUMENT
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.cluster import identity_from_json, identity_to_json, marker_from_document
from seaweedmq.errors import Unavailable
from seaweedmq.model.cluster import ClusterIdentity, StorageMarker
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import CreateTopic, DescribeTopic, ListTopics, SealSegment
from seaweedmq.model.segment import SegmentId
from seaweedmq.model.topic import TopicName, TopicSpec
from seaweedmq.ports import Changes, Delete, Put, Snapshot
from tests.broker.testbed import NAME, Faults, Host, Testbed, values
from tests.broker.upkeep.test_maintenance import QUICK
from tests.doubles.memory_meta import Backup
from tests.doubles.memory_store import MemorySegmentStore, StorageOp
from tests.sim.machines.meta import SimMetaStore

OTHER = TopicName("test", "other")
MARKER_KEPT_S = 3.0
"""A little longer than the leader takes to raise the marker."""
DISCOVERED_S = 3.0
"""A little longer than a broker takes to notice that its etcd has been replaced."""


def marker(testbed: Testbed) -> StorageMarker:
    return marker_from_document(bytes(testbed.store.files[CLUSTER_DOCUMENT].data))


def identity(testbed: Testbed) -> ClusterIdentity:
    entry = testbed.etcd.server.get(keys.CLUSTER)
    assert entry is not None
    return identity_from_json(entry.value)


def begin(testbed: Testbed, store: MemorySegmentStore | None = None) -> tuple[Host, "asyncio.Task[Any]"]:
    host = testbed.host(store=store)
    return host, testbed.network.spawn(host.owner, host.broker.start())


async def serves(host: Host) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Unavailable):
                await host.api.call(ListTopics())
                return
            await asyncio.sleep(0.1)


async def refusal(host: Host) -> str:
    with pytest.raises(Unavailable) as caught:
        await host.api.call(ListTopics())
    return str(caught.value)


async def test_a_new_cluster_marks_etcd_and_storage_and_adopts_the_data_of_an_older_build(testbed: Testbed) -> None:
    host = await testbed.single()
    assert identity(testbed) == marker(testbed).identity
    await (await host.publisher()).store(frames=3)
    await asyncio.sleep(MARKER_KEPT_S)
    seen = testbed.etcd.server.get(keys.CLUSTER_SEEN)
    assert seen is not None
    assert marker(testbed).etcd_revision == seen.mod_revision == testbed.etcd.server.revision
    await host.stop()
    del testbed.store.files[CLUSTER_DOCUMENT]
    testbed.etcd.server.transact([], [Delete(keys.CLUSTER)])
    host = await testbed.start()
    assert identity(testbed) == marker(testbed).identity
    assert await (await host.subscriber()).until(3) == values(1, 3)


async def test_a_creation_that_was_interrupted_is_completed(testbed: Testbed) -> None:
    await testbed.store.create_marker(StorageMarker(cluster_id="c-half", format=1, generation=0, etcd_revision=1))
    await testbed.cluster(1)
    assert identity(testbed).cluster_id == "c-half"


@pytest.mark.parametrize("is_mounted", [False, True])
async def test_a_broker_whose_storage_is_not_mounted_or_foreign_waits(testbed: Testbed, is_mounted: bool) -> None:
    first, second = await testbed.several(2)
    away = MemorySegmentStore(testbed.wall_us)
    sentences = ("storage memory has no cluster.json, and etcd has a cluster",)
    if is_mounted:
        await away.create_marker(StorageMarker(cluster_id="c-other", format=1, generation=0, etcd_revision=1))
        mine = identity(testbed).cluster_id
        sentences = (
            f"storage memory belongs to cluster c-other, and etcd to cluster {mine}",
            "correct --storage or --etcd",
        )
    files = dict(away.files)
    third, starting = begin(testbed, away)
    await asyncio.sleep(20)
    reason = await refusal(third)
    assert all(sentence in reason for sentence in sentences)
    assert "does not serve" in str(await third.publish_stream().failure())
    assert not starting.done()
    assert not third.broker.readiness.is_ready
    assert len(first.inspect.view.brokers) == 2, "it is not registered"
    assert away.files == files, "nothing is created, not even in the folder beneath a mount"
    away.files = testbed.store.files
    await starting
    await testbed.until(lambda: len(second.inspect.view.brokers) == 3)
    assert third.broker.readiness.is_ready
    assert await third.api.call(ListTopics())


async def test_who_starts_as_the_marker_rises_is_admitted(testbed: Testbed, caplog: pytest.LogCaptureFixture) -> None:
    (first,) = await testbed.cluster(1)
    faults = Faults()
    third, starting = begin(testbed, MemorySegmentStore(testbed.wall_us, faults, files=testbed.store.files))
    held = faults.hold(StorageOp.MARKER)
    before = marker(testbed).etcd_revision
    await testbed.topic(first)
    await testbed.until(lambda: marker(testbed).etcd_revision > before)
    held.set()
    await starting
    assert await third.api.call(ListTopics())
    assert not [record for record in caplog.records if "rejected" in record.getMessage()]


@pytest.mark.parametrize("words", ["etcd is empty", "restored from an older backup"])
async def test_a_broker_waits_until_etcd_is_recovered(testbed: Testbed, words: str) -> None:
    host = await testbed.single()
    backup = Backup() if words == "etcd is empty" else testbed.etcd.server.save()
    await testbed.topic(host, OTHER)
    await (await host.publisher()).store(frames=3)
    await asyncio.sleep(MARKER_KEPT_S)
    await host.stop()
    whole = testbed.etcd.server.save()
    testbed.etcd.run(testbed.etcd.server.restore, backup)
    files = set(testbed.store.files)
    host, starting = begin(testbed)
    await asyncio.sleep(20)
    reason = await refusal(host)
    assert words in reason
    assert "`seaweedmq cluster recover --storage memory --etcd ENDPOINTS`" in reason
    with pytest.raises(Unavailable, match=words):
        await host.api.call(CreateTopic(TopicSpec(name=TopicName("test", "third"))))
    assert not starting.done()
    assert set(testbed.store.files) == files
    testbed.etcd.run(testbed.etcd.server.restore, whole)
    await starting
    assert await (await host.subscriber()).until(3) == values(1, 3)


@pytest.mark.parametrize("is_empty", [True, False])
async def test_an_etcd_that_goes_back_halts_the_brokers_that_run(testbed: Testbed, is_empty: bool) -> None:
    hosts = await testbed.several(2)
    backup = Backup() if is_empty else testbed.etcd.server.save()
    await hosts[0].api.call(SealSegment(NAME, 0))
    primary = await testbed.primary(hosts[0], segment=1)
    publisher = await primary.publisher(segment=1)
    await publisher.store(frames=3)
    await asyncio.sleep(MARKER_KEPT_S)
    whole = testbed.etcd.server.save()
    testbed.etcd.run(testbed.etcd.server.restore, backup)
    await asyncio.sleep(DISCOVERED_S)
    assert await publisher.stream.failure() is not None
    for host in hosts:
        assert "does not serve" in await refusal(host)
        assert not host.has_failed
        assert not host.inspect.segments
    before = {file.path for segment in (0, 1) for file in testbed.files(FileKind.LOG, segment=segment)}
    await asyncio.sleep(30)
    after = {file.path for segment in (0, 1) for file in testbed.files(FileKind.LOG, segment=segment)}
    assert after == before
    testbed.etcd.run(testbed.etcd.server.restore, whole)
    for host in hosts:
        await serves(host)
    await testbed.until(lambda: not hosts[0].inspect.view.open_of(NAME).get(1))
    description = await hosts[0].api.call(DescribeTopic(NAME))
    assert [s.end_offset for s in description.segments if s.id == 1] == [3]


async def test_an_etcd_of_another_cluster_halts_a_broker_and_a_recovery_under_it_is_followed(testbed: Testbed) -> None:
    """A recovery writes the same metadata, at other revisions, into an etcd that has a higher generation."""
    host = await testbed.single()
    await (await host.publisher()).store(frames=3)
    await asyncio.sleep(MARKER_KEPT_S)
    mine = identity(testbed)
    put_identity(testbed, ClusterIdentity(cluster_id="c-other", generation=0))
    await asyncio.sleep(DISCOVERED_S)
    assert "c-other" in await refusal(host)
    put_identity(testbed, mine)
    await serves(host)
    kept = [entry for entry in testbed.etcd.server.list(keys.ROOT).entries if not entry.lease]
    testbed.etcd.run(testbed.etcd.server.restore, Backup())
    await asyncio.sleep(DISCOVERED_S)
    for entry in kept:
        if entry.key != keys.CLUSTER:
            testbed.etcd.server.transact([], [Put(entry.key, entry.value)])
    put_identity(testbed, ClusterIdentity(cluster_id=mine.cluster_id, generation=1))
    await serves(host)
    await testbed.until(lambda: host.inspect.view.open_of(NAME).get(1))
    await asyncio.sleep(MARKER_KEPT_S)
    assert marker(testbed).position == (1, testbed.etcd.server.revision)
    assert await (await host.subscriber()).until(3) == values(1, 3)


async def test_a_broker_registers_again_once_its_view_is_of_the_recovered_cluster(testbed: Testbed) -> None:
    """It may lead at once: with metadata from before the recovery it would drop what groups committed since."""
    host = await testbed.single()
    await asyncio.sleep(MARKER_KEPT_S)
    mine = identity(testbed)
    testbed.etcd.run(testbed.etcd.server.restore, Backup())
    await asyncio.sleep(DISCOVERED_S)
    listing = SimMetaStore.list

    async def slow_list(self: SimMetaStore, prefix: str) -> Snapshot:
        await asyncio.sleep(DISCOVERED_S if prefix == keys.ROOT else 0)
        return await listing(self, prefix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimMetaStore, "list", slow_list)
        put_identity(testbed, ClusterIdentity(cluster_id=mine.cluster_id, generation=1))
        await testbed.until(lambda: testbed.etcd.server.list(keys.BROKERS).entries)
        found = host.inspect.view.cluster
        assert found is not None
        assert found.generation == 1
    await serves(host)


def put_identity(testbed: Testbed, found: ClusterIdentity) -> None:
    testbed.etcd.server.transact([], [Put(keys.CLUSTER, identity_to_json(found))])


async def test_a_storage_that_loses_its_marker_takes_nothing_until_it_is_back(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    for host in hosts:
        host.broker.watch_storage()
    mounted = dict(testbed.store.files)
    testbed.store.files.clear()
    await publisher.send()
    await asyncio.sleep(60)
    assert not publisher.stream.replies, "nothing is acknowledged"
    assert not testbed.store.files, "nothing is created beneath the mount"
    for host in hosts:
        assert "has no cluster.json, so it is not mounted" in host.broker.readiness.reasons[STORAGE]
        assert not host.has_failed
    testbed.store.files.update(mounted)
    await asyncio.sleep(10)
    assert all(host.broker.readiness.is_ready for host in hosts)
    again = await primary.publisher()
    assert again.ready.next_sequence == 4, "what was sent meanwhile is written once the storage is back"
    await again.store()
    assert await (await primary.subscriber()).until(5) == values(1, 5)


async def test_a_storage_that_is_away_for_long_is_not_taken_for_an_empty_one(testbed: Testbed) -> None:
    settings = replace(QUICK, segment_retention_s=15.0, cache_age_s=5.0)
    hosts = await testbed.several(2, settings, retention_s=7 * 86_400.0)
    await (await (await testbed.primary(hosts[0])).publisher()).store(frames=5)
    await hosts[0].api.call(SealSegment(NAME, 0))
    await testbed.until(lambda: testbed.files(FileKind.TABLE))
    await asyncio.sleep(2 * settings.segment_retention_s)
    mounted, testbed.store.files = testbed.store.files, {}
    await hosts[0].api.call(SealSegment(NAME, 1))
    await asyncio.sleep(5 * settings.segment_retention_s)
    assert not testbed.store.files, "nothing is created beneath the mount"
    tables = [path for path in mounted if "/table/" in path]
    testbed.store.files = mounted
    await asyncio.sleep(settings.segment_retention_s)
    assert tables == [path for path in testbed.store.files if "/table/" in path]
    assert hosts[0].inspect.view.segment(SegmentId(NAME, 0)) is not None, "the segment is not pruned"
    assert await (await hosts[0].subscriber()).until(5) == values(1, 5)


async def test_a_broker_that_starts_on_a_read_only_storage_says_so_and_serves_later(testbed: Testbed) -> None:
    (first,) = await testbed.cluster(1)
    await testbed.topic(first)
    faults = Faults()
    faults.failing[StorageOp.CHECK] = "Read-only file system"
    host, starting = begin(testbed, MemorySegmentStore(testbed.wall_us, faults, files=testbed.store.files))
    await asyncio.sleep(60)
    assert not starting.done()
    assert "Read-only file system" in await refusal(host)
    faults.failing.clear()
    await starting
    await serves(host)


SLOW_S = 0.2


async def test_a_new_leader_raises_the_marker_at_once(testbed: Testbed) -> None:
    """The first changes may follow a long time without a leader, and the marker must cover them before a restore."""
    watch = SimMetaStore.watch

    async def slow_watch(self: SimMetaStore, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        async for changes in watch(self, prefix, from_revision):
            await asyncio.sleep(SLOW_S)
            yield changes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimMetaStore, "watch", slow_watch)
        hosts = await testbed.cluster(2)
        testbed.leader().kill()
        await testbed.until(lambda: any(h.lives and h.inspect.leads for h in hosts))
        lock = testbed.etcd.server.get(keys.LEADER)
        assert lock is not None
        await asyncio.sleep(2 * SLOW_S)
        assert 2 * SLOW_S < KEEP_INTERVAL_S / 2
        marker = await testbed.store.read_marker()
    assert marker is not None
    assert marker.etcd_revision > lock.create_revision
