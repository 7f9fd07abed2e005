"""Recreated topics: neither brokers nor clients confuse a deleted topic with its later namesake."""

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from seaweedmq.broker.leader.repairer import Repairer
from seaweedmq.broker.segment.log_file import create_log_file
from seaweedmq.codec.frame import HEADER_BYTES, stamp
from seaweedmq.core.lineage.repair import Repair
from seaweedmq.errors import NotFound
from seaweedmq.model.description import ALL, TopicDescription
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import (
    AlterTopic,
    DeleteTopic,
    DescribeTopic,
    Fence,
    LocalStats,
    MoveSegment,
    ReportSuspicions,
    Seal,
    SealSegment,
    WriteOut,
)
from seaweedmq.model.messages.publish import PublishOpen
from seaweedmq.model.messages.replication import SegmentRef
from seaweedmq.model.messages.subscribe import EARLIEST, SubscribeOpen
from seaweedmq.model.topic import Durability, TopicChange, TopicName
from tests.broker.testbed import CONFIG, NAME, Host, Streaming, Testbed, frame, values
from tests.doubles.memory_store import StorageOp
from tests.sim.machines.network import machine_of

OTHER = TopicName("test", "other")
AGAIN = "topic test/topic was deleted, and created again: open a new publisher or subscriber"


async def create_again(testbed: Testbed, host: Host, **settings: Any) -> TopicDescription:
    await host.api.call(DeleteTopic(NAME))
    description = await testbed.topic(host, **settings)
    uid = description.topic.uid
    views = [host.inspect.view for host in testbed.hosts if host.lives]
    await testbed.until(lambda: all(NAME in view.topics and view.topics[NAME].uid == uid for view in views))
    return description


# --- brokers ----------------------------------------------------------------------------------------------------------


async def test_a_replica_of_the_earlier_one_is_not_written_into_the_later_one(testbed: Testbed) -> None:
    hosts = await testbed.several(3, replicas=2, durability=Durability.REPLICATED)
    primary = await testbed.primary(hosts[0])
    old = primary.inspect.view.segments[NAME][0]
    follower = next(h for h in hosts if h.broker.id == old.replicas[1])
    other = next(h for h in hosts if h not in (primary, follower))
    while True:  # a topic whose close keeps the follower busy
        await testbed.topic(hosts[0], name=OTHER)
        if await testbed.primary(hosts[0], name=OTHER) is follower:
            break
        await other.api.call(DeleteTopic(OTHER))
    testbed.faults.paths = str(OTHER)
    gate = testbed.faults.hold(StorageOp.SYNC)
    await (await follower.publisher(name=OTHER)).send()
    await (await primary.publisher()).store(frames=5)
    await other.api.call(DeleteTopic(OTHER))
    await asyncio.sleep(0.1)
    while True:  # the same replicas as the earlier topic
        again = await create_again(testbed, other, replicas=2, durability=Durability.REPLICATED)
        if again.segments[0].replicas == old.replicas:
            break
    primary.kill()
    gate.set()
    testbed.faults.held.clear()
    await testbed.until(lambda: not other.inspect.view.segments[NAME][0].is_open)
    assert other.inspect.view.segments[NAME][0].end_offset == 0
    reader = await other.subscriber()
    await reader.ending()
    assert reader.values == []


async def test_brokers_refuse_each_other_what_is_about_the_earlier_one(testbed: Testbed) -> None:
    hosts = await testbed.several(3, replicas=2)
    old = testbed.ref(hosts[0].inspect.view.segments[NAME][0])
    await create_again(testbed, hosts[0], replicas=2)
    segment = hosts[0].inspect.view.segments[NAME][0]
    primary, follower = (next(h for h in hosts if h.broker.id == r) for r in segment.replicas)
    await testbed.until(lambda: (NAME, 0) in primary.inspect.segments)
    with pytest.raises(NotFound, match="not its primary"):
        await primary.api.call(Seal(old))
    late = SegmentRef(topic=NAME, topic_uid=old.topic_uid, segment=0, epoch=2)
    with pytest.raises(NotFound, match="not a follower of this segment"):
        await follower.api.call(Fence(late))
    with pytest.raises(NotFound, match="no replica of this segment"):
        await follower.api.call(WriteOut(late, 0))
    with pytest.raises(NotFound, match="already sealed, or an earlier epoch"):
        await testbed.leader().broker.api.call(
            ReportSuspicions(refs=(old,), suspect=segment.replicas[1], reason="it is slow")
        )
    assert await primary.api.call(LocalStats(NAME, old.topic_uid)) == ()
    assert len(await primary.api.call(LocalStats(NAME, testbed.ref(segment).topic_uid))) == 1
    await (await primary.publisher()).store(frames=3)


async def test_a_deletion_or_change_that_comes_late_spares_the_later_one(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    old = await testbed.topic(hosts[0])
    new = await create_again(testbed, hosts[0])
    for host in hosts:
        with pytest.raises(NotFound, match="created again"):
            await host.api.call(DeleteTopic(NAME, old.topic.uid))
        with pytest.raises(NotFound, match="created again"):
            await host.api.call(AlterTopic(NAME, TopicChange(retention_s=1.0), old.topic.uid))
        assert (await host.api.call(AlterTopic(NAME, TopicChange(), new.topic.uid))).topic == new.topic
    await hosts[1].api.call(DeleteTopic(NAME, new.topic.uid))


async def test_a_replacement_that_was_decided_for_the_earlier_one_does_not_seal_the_later_one(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    leader = testbed.leader()
    while True:
        await testbed.topic(hosts[0])
        if await testbed.primary(hosts[0]) is not leader:
            break
        await leader.api.call(DeleteTopic(NAME))
    old = leader.inspect.view.segments[NAME][0]
    primary = await testbed.primary(leader)
    await leader.api.call(DeleteTopic(NAME))
    primary.kill()
    await testbed.until(lambda: old.primary not in leader.inspect.view.brokers)
    await testbed.topic(leader)
    late = Repair(segment=old, reason="it was decided before", healthy_replicas=())
    leading = leader.inspect.leader
    repairs = Repairer(metadata=leading.metadata, placement=leading.placement)
    await repairs.carry_out(leading.transitions, late)
    await asyncio.sleep(1.0)
    assert [(s.id, s.is_open) for s in leader.inspect.view.segments[NAME].values()] == [(0, True)]


async def test_who_means_the_earlier_one_is_refused_and_who_names_none_gets_the_later(testbed: Testbed) -> None:
    host = await testbed.start()
    old = (await testbed.topic(host)).topic.uid
    new = (await create_again(testbed, host)).topic.uid
    await testbed.until(lambda: (NAME, 0) in host.inspect.segments)
    publish = PublishOpen(topic=NAME, segment=0, epoch=1, producer_id=1, producer_epoch=0)
    subscribe = SubscribeOpen(topic=NAME, segment=0, start=EARLIEST, credit_bytes=100)
    for call, opening in ((host.api.publish, publish), (host.api.subscribe, subscribe)):
        for uid, is_served in ((old, False), (new, True), (0, True)):
            stream = Streaming(testbed, call)
            await stream.send(replace(opening, topic_uid=uid))
            if is_served:
                assert await stream.receive()
            else:
                with pytest.raises(NotFound, match=AGAIN):
                    await stream.receive()


async def test_a_broker_that_lags_asks_etcd_before_it_says_that_a_topic_was_replaced(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    old = (await testbed.topic(hosts[0])).topic.uid
    leader = testbed.leader()
    lagging = next(h for h in hosts if h is not leader)
    await leader.api.call(MoveSegment(NAME, 0, (leader.broker.id,)))  # a deletion waits for primaries
    await testbed.until(lambda: NAME in lagging.inspect.view.topics)
    lagging.meta.hears_metadata.clear()
    await leader.api.call(DeleteTopic(NAME))
    new = (await testbed.topic(leader)).topic.uid
    assert (await lagging.api.call(DescribeTopic(NAME))).topic.uid == old
    asking = asyncio.create_task(lagging.api.call(DescribeTopic(NAME, ALL, new)))
    await asyncio.sleep(1.0)
    assert not asking.done()
    lagging.meta.hears_metadata.set()
    assert (await asking).topic.uid == new
    with pytest.raises(NotFound, match=AGAIN):
        await lagging.api.call(DescribeTopic(NAME, ALL, old))


async def test_the_name_is_free_once_the_primaries_have_heard_though_who_deleted_it_has_gone(testbed: Testbed) -> None:
    """A primary acknowledges records for the deleted topic until it knows of the deletion, and those would be lost."""
    hosts = await testbed.cluster(2)
    old = (await testbed.topic(hosts[0])).topic.uid
    leader = testbed.leader()
    primary = next(h for h in hosts if h is not leader)
    await leader.api.call(MoveSegment(NAME, 0, (primary.broker.id,)))
    await testbed.until(lambda: bool(primary.inspect.segments))
    primary.meta.hears_metadata.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await leader.api.call(DeleteTopic(NAME))
    creating = asyncio.create_task(testbed.topic(leader))
    await asyncio.sleep(2.0)
    assert [owned.topic.uid for owned in primary.inspect.segments.values()] == [old]
    assert not creating.done()
    primary.meta.hears_metadata.set()
    assert (await creating).topic.uid != old
    assert old not in [owned.topic.uid for owned in primary.inspect.segments.values()]


async def test_the_name_is_not_free_while_a_primary_trusts_a_lease_that_etcd_has_lost(testbed: Testbed) -> None:
    primary, other = await testbed.pair(2)
    await testbed.until(lambda: NAME in other.inspect.view.topics)
    publisher = await primary.publisher()
    primary.meta.is_cut_off = True
    session, gone = primary.session, primary.broker.id
    testbed.etcd.server.lose_leases()
    await testbed.until(lambda: other.inspect.leads and gone not in other.inspect.view.brokers)
    assert session.alive()
    await publisher.store()  # the primary still acknowledges
    await other.api.call(DeleteTopic(NAME))
    await testbed.topic(other)
    assert not session.alive()


async def test_a_conversion_under_way_leaves_no_table_in_the_later_one(testbed: Testbed) -> None:
    host = await testbed.start()
    await testbed.topic(host)
    await (await host.publisher()).store(frames=5)
    await host.api.call(SealSegment(NAME, 0))
    gate = testbed.faults.hold(StorageOp.PUT)
    testbed.faults.paths = "table/"
    await asyncio.sleep(5 * CONFIG.maintenance_interval_s)
    await create_again(testbed, host)
    gate.set()
    testbed.faults.held.clear()
    await asyncio.sleep(10)
    assert testbed.files(FileKind.TABLE) == []
    await (await host.publisher()).store(frames=3)
    assert await (await host.subscriber()).until(3) == values(1, 3)


async def test_files_that_were_written_late_into_its_folder_do_no_harm(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    old = (await testbed.topic(hosts[0], replicas=2)).topic
    await create_again(testbed, hosts[0], replicas=2)
    segment = hosts[0].inspect.view.segments[NAME][0]
    for writer in segment.replicas:  # both had the earlier topic as well
        late = await create_log_file(testbed.store, old, segment, 0, writer, ())
        await late.append([stamp(frame(first=100)[:HEADER_BYTES], 0), frame(first=100)[HEADER_BYTES:]])
    primary = await testbed.primary(hosts[0])
    await (await primary.publisher()).store(frames=5)
    other = next(h for h in hosts if h.broker.id not in segment.replicas)
    writer = primary.broker.id
    primary.kill()
    testbed.store.crash(writer=writer)
    await testbed.until(lambda: not other.inspect.view.segments[NAME][0].is_open)
    assert other.inspect.view.segments[NAME][0].end_offset == 5
    assert await (await other.subscriber()).until(5) == values(1, 5)
    assert not any(host.has_failed for host in testbed.hosts)


# --- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle", [False, True])
async def test_a_publisher_ends_and_leaves_nothing_in_the_later_one(testbed: Testbed, idle: bool) -> None:
    hosts = await testbed.several(2)
    async with await testbed.client() as client:
        publisher, of_tables = await client.publisher(str(NAME)), await client.publisher(str(NAME))
        if not idle:
            await (await publisher.send(b"x"))
        await create_again(testbed, hosts[0])
        for _ in range(2):
            with pytest.raises(NotFound, match=AGAIN):
                await (await publisher.send(b"late"))
        await publisher.close()
        with pytest.raises(NotFound, match=AGAIN):
            await of_tables.send_table(pa.table({"a": [1, 2]}))
        assert (await hosts[0].api.call(DescribeTopic(NAME))).topic.schema is None
        async with client.publisher(str(NAME)) as fresh:
            assert (await (await fresh.send(b"y"))).offset == 0


@pytest.mark.parametrize("away", [False, True])
async def test_subscribers_end_and_a_group_begins_anew(testbed: Testbed, away: bool) -> None:
    hosts = await testbed.several(2)
    async with await testbed.client() as client:
        async with client.publisher(str(NAME)) as publisher:
            for number in range(5):
                await publisher.send(b"%d" % number)
        subscriber = await client.subscriber(str(NAME), group="billing", start="earliest")
        async for message in subscriber:
            message.ack()
            if message.offset == 4:
                break
        plain = await client.subscriber(str(NAME), start="latest")
        got = asyncio.create_task(anext(aiter(plain)))
        await asyncio.sleep(0.5)
        if away:  # the client misses the deletion
            for host in hosts:
                testbed.network.cut("client", machine_of(host.owner))
                testbed.network.cut(machine_of(host.owner), "client")
        await create_again(testbed, hosts[0])
        await asyncio.sleep(10.0)
        testbed.network.join()
        with pytest.raises(NotFound, match="was deleted"):
            await anext(aiter(subscriber))
        await subscriber.close()
        async with client.publisher(str(NAME)) as publisher:
            await publisher.send(b"new")
        with pytest.raises(NotFound, match="was deleted"):
            await got
        await plain.close()
        async with client.subscriber(str(NAME), group="billing", start="earliest") as fresh:
            message = await anext(aiter(fresh))
            assert (message.value, message.offset) == (b"new", 0)
