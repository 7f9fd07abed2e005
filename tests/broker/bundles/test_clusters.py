"""Clusters of brokers whose records go to an object store: failovers, and leases in doubt."""

import asyncio
import random
from typing import Any

import pytest

from seaweedmq.broker.bundles.replica_objects import ReplicaObjects
from seaweedmq.codec.object_keys import parse_bundle_key, parse_log_object
from seaweedmq.model.topic import Durability
from tests.broker.testbed import NAME, TTL_S, Host, Testbed, values
from tests.doubles.bundled_store import BundledStore
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects, ObjectAnswer, ObjectOp, ObjectRequest
from tests.sim.machines.objects import SimObjectStore


class Cluster:
    """Brokers of a test bed that share one bucket."""

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.objects = SimObjectStore(MemoryBucket(testbed.wall_us), random.Random(3))
        self.storage = BundledStore(testbed.store, self.objects.bucket)
        self.hanging: set[str] = set()
        """Brokers whose requests get no answer."""

    async def start(self) -> Host:
        name = f"broker-{len(self.testbed.hosts)}"
        client = self.objects.client(name)
        answered = client._carry  # noqa: SLF001 - the carrier of the simulated store

        async def carry(request: ObjectRequest) -> ObjectAnswer:
            if name in self.hanging:
                await asyncio.Event().wait()
            return await answered(request)

        return await self.testbed.start(store=self.storage.view(MemoryObjects(self.objects.bucket, name, carry)))

    async def several(self, count: int, **settings: Any) -> list[Host]:
        hosts = [await self.start() for _ in range(count)]
        await self.testbed.until(
            lambda: all(len(h.inspect.view.brokers) == count and h.inspect.view.leader for h in hosts)
        )
        await self.testbed.topic(hosts[0], **settings)
        return hosts

    def entries(self, broker_id: str) -> list[int]:
        keys = [parse_bundle_key(key) for key in self.objects.bucket.stored]
        return sorted(key[1] for key in keys if key is not None and key[0] == broker_id)

    def creates(self) -> int:
        return self.objects.bucket.applied[ObjectOp.CREATE]

    def logs(self) -> list[tuple[int, int, int, str]]:
        names = [name for key in self.objects.bucket.stored if (name := parse_log_object(key)) is not None]
        return sorted((name.segment, name.base_offset, name.end_offset, name.writer) for name in names)


async def read_all(host: Host, count: int, segment: int = 0) -> list[bytes]:
    reader = await host.subscriber()
    return (await reader.until(count))[:count]


async def test_one_broker_acknowledges_from_the_store_and_reads(testbed: Testbed) -> None:
    cluster = Cluster(testbed)
    (host,) = await cluster.several(1)
    publisher = await host.publisher()
    for _ in range(20):
        await publisher.store()
    assert cluster.creates() >= 20
    assert not [path for path in testbed.store.files if path.endswith(".log")], "no record is on a directory"
    assert await read_all(host, 20) == values(1, 20)


async def test_a_broker_that_leaves_seals_its_segments_into_log_objects(testbed: Testbed) -> None:
    cluster = Cluster(testbed)
    first, second = await cluster.several(2, replicas=1)
    primary = await testbed.primary(first)
    publisher = await primary.publisher()
    await publisher.store(frames=5)
    await primary.stop()
    other = second if primary is first else first
    await testbed.until(lambda: other.inspect.segments)
    assert cluster.logs() == [(0, 0, 5, primary.broker.id)] or cluster.logs()[0][:3] == (0, 0, 5)
    assert await read_all(other, 5) == values(1, 5)


async def test_stored_records_of_a_killed_broker_are_recovered_from_its_bundles(testbed: Testbed) -> None:
    cluster = Cluster(testbed)
    first, second = await cluster.several(2, replicas=1)
    primary = await testbed.primary(first)
    publisher = await primary.publisher()
    for _ in range(7):
        await publisher.store()
    dead = primary.broker.id
    primary.kill()
    other = second if primary is first else first
    await testbed.until(lambda: other.inspect.segments)
    assert cluster.logs() == [(0, 0, 7, other.broker.id)]
    assert await read_all(other, 7) == values(1, 7)
    await testbed.until(lambda: len(cluster.entries(dead)) == 1)
    assert cluster.entries(dead) == [8], "only the fence is left"


@pytest.mark.parametrize("durability", Durability)
async def test_a_follower_continues_after_its_primary_was_killed(testbed: Testbed, durability: Durability) -> None:
    cluster = Cluster(testbed)
    hosts = await cluster.several(2, replicas=2, durability=durability)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    for _ in range(5):
        await publisher.store()
    primary.kill()
    other = next(h for h in hosts if h is not primary)
    dead = primary.broker.id
    await testbed.until(lambda: any(s.segment.id for s in other.inspect.segments.values()))
    assert await read_all(other, 5) == values(1, 5)
    await testbed.until(lambda: len(cluster.entries(dead)) <= 1)


async def test_replicated_records_are_acknowledged_from_memory_and_bundled_within_a_second(testbed: Testbed) -> None:
    cluster = Cluster(testbed)
    hosts = await cluster.several(2, replicas=2, durability=Durability.REPLICATED)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    before = cluster.creates()
    for _ in range(20):
        await publisher.store()
    assert cluster.creates() == before
    log = primary.inspect.segments[NAME, 0].log
    await testbed.until(lambda: log.flushed == 20, 1.5)
    assert cluster.creates() <= before + 2


@pytest.mark.parametrize("is_mute", [True, False])
async def test_when_all_leases_end_the_follower_has_bundled_what_its_primary_could_not(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch, is_mute: bool
) -> None:
    """The primary's store hangs, so memory alone holds what it acknowledged until the margin of its lease begins."""
    if is_mute:
        monkeypatch.setattr(ReplicaObjects, "hurry", lambda _: None)
    cluster = Cluster(testbed)
    hosts = await cluster.several(2, replicas=2, durability=Durability.REPLICATED)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    await testbed.until(lambda: primary.inspect.segments[NAME, 0].log.flushed == 3)
    cluster.hanging.add(f"broker-{hosts.index(primary)}")
    testbed.etcd.server.stop()
    log = primary.inspect.segments[NAME, 0].log
    while primary.session.alive():
        await publisher.send()
        await asyncio.sleep(0.05)
    acknowledged = log.committed
    assert log.flushed == 3
    assert 10 < acknowledged < log.end, "memory was enough, and then no longer"
    for host in hosts:
        host.kill()
    testbed.etcd.server.start()
    late = await cluster.start()
    await testbed.until(lambda: late.inspect.segments)
    end = late.inspect.view.segments[NAME][0].end_offset
    assert end is not None
    if is_mute:
        assert end == 3, "this test can tell a follower that bundles nothing"
    else:
        assert end >= acknowledged
        assert await read_all(late, acknowledged) == values(1, acknowledged)


async def test_a_frozen_primary_that_wakes_up_after_its_fence_acknowledges_nothing(testbed: Testbed) -> None:
    cluster = Cluster(testbed)
    first, second = await cluster.several(2, replicas=1)
    primary = await testbed.primary(first)
    other = second if primary is first else first
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    segment = primary.inspect.segments[NAME, 0]
    before = primary.broker.id
    await publisher.send(2)
    primary.freeze()
    await testbed.until(lambda: other.inspect.segments, 20 * TTL_S)
    end = testbed.leader().inspect.view.segments[NAME][0].end_offset
    primary.thaw()
    await testbed.until(lambda: primary.broker.id not in ("", before), 20 * TTL_S)
    assert segment.log.committed <= end
    assert segment.is_closed
    assert await read_all(other, 3) == values(1, 3)


@pytest.mark.parametrize("seed", range(5))
async def test_failovers_with_late_doubled_and_lost_requests(testbed: Testbed, seed: int) -> None:
    cluster = Cluster(testbed)
    cluster.objects.rng.seed(seed)
    hosts = await cluster.several(3, replicas=1 + seed % 2)
    faults = cluster.objects.faults
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    faults.lost_share, faults.unanswered_share, faults.late_share, faults.twice_share = 0.05, 0.05, 0.05, 0.2
    faults.late_s_max = 5.0
    for _ in range(30):
        await publisher.store()
    primary.kill()
    faults.calm()
    other = next(h for h in hosts if h is not primary)
    await testbed.until(lambda: any(s.segment.id for h in hosts if h.lives for s in h.inspect.segments.values()), 60)
    assert await read_all(other, 30) == values(1, 30)
