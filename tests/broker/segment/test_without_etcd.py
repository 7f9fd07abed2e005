"""Etcd unreachable for longer than the lease: segments with followers continue, unless the storage shows a fence."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.codec.paths import TOPIC_DOCUMENT
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.core.segment.segment_lifecycle import SegmentStage
from seaweedmq.errors import StaleMetadata, StorageFailed, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.publish import PublishAck
from seaweedmq.model.topic import Durability, TopicChange
from tests.broker.testbed import CONFIG, NAME, TTL_S, Host, Publishing, Testbed, values
from tests.doubles.memory_store import StorageOp


async def replicated(
    testbed: Testbed, brokers: int = 3, config: BrokerConfig = CONFIG, **settings: Any
) -> tuple[Host, Host, list[Host]]:
    """Return primary, follower and the other brokers of a topic with two replicas, all of which know it."""
    hosts = await testbed.several(brokers, config, replicas=2, **settings)
    await testbed.until(lambda: all(0 in h.inspect.view.segments.get(NAME, {}) for h in hosts))
    primary, follower = (
        next(h for h in hosts if h.broker.id == r) for r in hosts[0].inspect.view.segments[NAME][0].replicas
    )
    return primary, follower, [h for h in hosts if h not in (primary, follower)]


async def without_lease(testbed: Testbed, host: Host) -> None:
    alive = host.session.alive
    await testbed.until(lambda: not alive())


def acknowledged(publisher: Publishing) -> int:
    """Return the number of acknowledged records that ``acks`` has not taken yet."""
    replies = [r for r in publisher.stream.replies if isinstance(r, PublishAck)]
    return sum(ack.record_count for reply in replies for ack in reply.frames)


async def open_segment(testbed: Testbed, host: Host) -> int:
    view = host.inspect.view

    def settled() -> list[int]:
        found = [s for s in view.segments[NAME].values() if s.is_open and len(s.replicas) == 2]
        return [s.id for s in found if view.brokers.keys() >= set(s.replicas)]

    await testbed.until(settled)
    return settled()[0]


async def store_two(testbed: Testbed, host: Host) -> None:
    number = await open_segment(testbed, host)
    epoch = host.inspect.view.segments[NAME][number].epoch
    publisher = await (await testbed.primary(host, segment=number)).publisher(2, segment=number, segment_epoch=epoch)
    await publisher.store(frames=2)


async def all_values(testbed: Testbed, host: Host) -> list[bytes]:
    """Read along the topic's segments, each of which has one successor at most."""
    got: list[bytes] = []
    last = await open_segment(testbed, host)
    for number in range(last):
        reader = await host.subscriber(segment=number)
        await reader.ending()
        got += reader.values
    reader = await (await testbed.primary(host, segment=last)).subscriber(segment=last)
    return got + await reader.until(reader.ready.high_watermark - reader.ready.start_offset)


@pytest.mark.parametrize("durability", Durability)
async def test_a_segment_with_a_follower_goes_on(testbed: Testbed, durability: Durability) -> None:
    primary, follower, _ = await replicated(testbed, brokers=2, durability=durability)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    before = primary.broker.id, follower.broker.id
    testbed.etcd.server.stop()
    await without_lease(testbed, primary)
    await without_lease(testbed, follower)
    for _ in range(20):
        await publisher.store(frames=2)
        await asyncio.sleep(TTL_S / 4)
    await (await primary.publisher(2)).store(frames=2)
    reader = await primary.subscriber()
    assert await reader.until(45) == values(1, 43) + values(2, 2)
    testbed.etcd.server.start()
    await asyncio.sleep(3 * TTL_S)
    await publisher.store(frames=2)
    assert await reader.until(47) == values(1, 43) + values(2, 2) + values(1, 2, start=43)
    assert (primary.broker.id, follower.broker.id) == before
    assert [s.is_open for s in primary.inspect.view.segments[NAME].values()] == [True]


async def test_who_is_fenced_in_the_storage_acknowledges_nothing_and_loses_nothing(testbed: Testbed) -> None:
    primary, follower, (other,) = await replicated(testbed)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    for host in (primary, follower):
        host.meta.is_cut_off = True
        testbed.network.cut(other.owner.name, host.owner.name)
    while not publisher.stream.ended:
        await publisher.send()
        await asyncio.sleep(0.02)
    assert isinstance(publisher.stream.error, StaleMetadata)
    assert "the leader recovers it from its files" in str(publisher.stream.error)
    kept = 3 + acknowledged(publisher)
    await testbed.until(lambda: 1 in other.inspect.view.segments[NAME])
    end = other.inspect.view.segments[NAME][0].end_offset
    assert end is not None
    assert 3 < kept <= end
    with pytest.raises(StaleMetadata):
        await primary.publisher(3)
    for host in (primary, follower):
        host.meta.is_cut_off = False
    testbed.network.join()
    await testbed.until(lambda: len(other.inspect.view.brokers) == 3)
    await store_two(testbed, other)
    assert await all_values(testbed, other) == values(1, end) + values(2, 2)


async def test_a_storage_that_does_not_answer_is_told_to_publishers_and_then_it_goes_on(testbed: Testbed) -> None:
    primary, _, _ = await replicated(testbed, brokers=2)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    testbed.etcd.server.stop()
    await without_lease(testbed, primary)
    gate = testbed.faults.hold(StorageOp.LOOK)
    await publisher.send()
    with pytest.raises(Unavailable, match="storage has not answered the fence check"):
        await publisher.acks()
    gate.set()
    await testbed.until(lambda: not primary.inspect.segments[NAME, 0].failure)
    publisher = await primary.publisher()
    assert publisher.next == 4
    testbed.faults.failing[StorageOp.LOOK] = "input/output error"
    await publisher.send()
    with pytest.raises(StorageFailed, match="input/output error"):
        await publisher.acks()
    testbed.faults.failing.clear()
    await testbed.until(lambda: not primary.inspect.segments[NAME, 0].failure)
    await (await primary.publisher()).store()
    assert await (await primary.subscriber()).until(6) == values(1, 6)
    publisher = await primary.publisher()
    testbed.faults.hold(StorageOp.LOOK)
    looks = testbed.faults.counts[StorageOp.LOOK]
    await publisher.send()
    await testbed.until(lambda: testbed.faults.counts[StorageOp.LOOK] > looks)
    testbed.etcd.server.start()
    assert await publisher.acks() == [(6, 6)], "a renewed lease needs no fence check"
    testbed.faults.held.clear()


async def test_who_lost_its_follower_says_why_it_stops_until_etcd_is_back(testbed: Testbed) -> None:
    primary, follower, _ = await replicated(testbed)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    testbed.etcd.server.stop()
    await without_lease(testbed, primary)
    await publisher.store(frames=2)
    follower.kill()
    await publisher.send()
    error = await publisher.stream.failure()
    assert isinstance(error, Unavailable)
    assert f"follower {follower.broker.id} cannot be replaced" in str(error)
    with pytest.raises(Unavailable, match="cannot renew its lease because etcd is unreachable"):
        await primary.publisher()
    testbed.etcd.server.start()
    await testbed.until(lambda: 1 in primary.inspect.view.segments[NAME])
    await store_two(testbed, primary)
    kept = await all_values(testbed, primary)
    assert kept[:5] == values(1, 5)
    assert kept[-2:] == values(2, 2)


async def test_all_leases_are_gone_when_etcd_is_back(testbed: Testbed) -> None:
    primary, _, (other,) = await replicated(testbed)
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    leases = [h.session.lease for h in testbed.hosts if h.inspect.incarnation]
    testbed.etcd.server.stop()
    await without_lease(testbed, primary)
    await publisher.store(frames=4)
    old = {h.broker.id for h in testbed.hosts}
    testbed.etcd.server.start()
    for lease in leases:
        testbed.etcd.server.expire_lease(lease)
    await testbed.until(lambda: len(other.inspect.view.brokers) == 3 and not old & set(other.inspect.view.brokers))
    await testbed.until(lambda: 1 in other.inspect.view.segments[NAME])
    await store_two(testbed, other)
    assert await all_values(testbed, other) == values(1, 7) + values(2, 2)
    assert not any(h.has_failed for h in testbed.hosts)


async def test_the_primary_of_a_topic_that_was_deleted_and_made_anew_acknowledges_nothing(testbed: Testbed) -> None:
    primary, _, _ = await replicated(testbed, brokers=2)
    topic = primary.inspect.view.topics[NAME]
    publisher = await primary.publisher()
    await publisher.store(frames=3)
    testbed.etcd.server.stop()
    await without_lease(testbed, primary)
    await publisher.store()
    await testbed.store.delete_topic(NAME, topic.uid, revision=9)
    await publisher.send()
    assert isinstance(await publisher.stream.failure(), StorageFailed)
    await testbed.store.put_documents(
        NAME, {TOPIC_DOCUMENT: topic_document(replace(topic, uid=topic.uid + 1))}, uid=7, revision=1
    )
    await testbed.until(lambda: primary.inspect.segments[NAME, 0].stage is SegmentStage.FENCED)
    with pytest.raises(StaleMetadata):
        await primary.publisher()
    assert primary.inspect.segments[NAME, 0].log.committed == 4


async def thinned(testbed: Testbed, **settings: int) -> tuple[Host, int]:
    """Return the only remaining broker, and its segment without a follower."""
    primary, follower, _ = await replicated(testbed, brokers=2, **settings)
    follower.kill()
    view = primary.inspect.view
    await testbed.until(lambda: any(s.is_open and len(s.replicas) == 1 for s in view.segments[NAME].values()))
    (segment,) = (s.id for s in view.segments[NAME].values() if s.is_open)
    return primary, segment


async def test_what_is_acknowledged_survives_the_machine(testbed: Testbed) -> None:
    primary, number = await thinned(testbed)
    for durability in (Durability.STORED, Durability.REPLICATED):  # it stays so when the topic is altered
        await testbed.network.spawn(
            primary.owner, primary.inspect.leader.topics.alter(NAME, TopicChange(durability=durability), 0)
        )
    publisher = await primary.publisher(segment=number)
    gate = testbed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    assert await publisher.quiet(3.0), "not before it is fsynced"
    gate.set()
    await publisher.acks()
    testbed.faults.held.clear()
    began = testbed.loop.time()
    await publisher.store(frames=20)
    assert testbed.loop.time() - began < 0.5, "and that at once, not within the flush interval"
    writer = primary.broker.id
    primary.kill()
    testbed.store.crash(writer=writer)
    fresh = await testbed.start(address="broker-9:7777")
    await testbed.until(lambda: not fresh.inspect.view.segments[NAME][number].is_open)
    assert fresh.inspect.view.segments[NAME][number].end_offset == 21
