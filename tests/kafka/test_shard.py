"""Coordinators of Kafka groups on real brokers, in virtual time: their location, contents and end."""

import asyncio
import errno
import os
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from seaweedmq.codec.frame import FLAG_KEY
from seaweedmq.codec.kafka.batch import ENCODING_KAFKA
from seaweedmq.codec.payload.batch import encode_frame
from seaweedmq.core.kafka.groups.classic_events import CommitOffsets
from seaweedmq.core.kafka.groups.shard_state import GroupShard
from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import FileKind
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import ShardRecord
from seaweedmq.model.messages.calls import CreateTopic, DeleteTopic, DrainBroker
from seaweedmq.model.messages.publish import PublishFrames
from seaweedmq.model.topic import TopicSpec
from seaweedmq.shards.shard import Stage
from tests.broker.testbed import TTL_S, Testbed
from tests.doubles.memory_store import StorageOp
from tests.kafka.group_testbed import ASK_AGAIN, KAFKA, OFFSETS_TOPIC, TOPIC, Cluster, Gateway, Member

GROUP = "billing"


def offsets_of(gateway: Gateway, group: str = GROUP) -> dict[int, int]:
    state = gateway.shard(group)._state  # noqa: SLF001
    return {number: value.offset for (_, number), value in state.offsets(group).items()}


async def fetched(gateway: Gateway, group: str = GROUP) -> tuple[int, dict[int, int]]:
    """Return this broker's reply to OffsetFetch: the error code, and offsets by partition."""
    reply = await gateway.ask(API.OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=False)
    return reply.error_code, {p.partition_index: p.committed_offset for t in reply.topics for p in t.partitions}


async def with_commit(testbed: Testbed, brokers: int) -> tuple[Cluster, Member]:
    cluster = await Cluster.of(testbed, brokers)
    member = await Member(cluster).joined()
    await member.commit((0, 5))
    return cluster, member


def primary_of(cluster: Cluster, group: str = GROUP) -> Gateway:
    """Return the broker that leads the group's partition, as the first living broker knows it."""
    (gateway,) = (g for g in cluster.gateways if _leads(g, group))
    return gateway


def _leads(gateway: Gateway, group: str) -> bool:
    try:
        return gateway.host.lives and gateway.shard(group).stage is not Stage.OVER
    except SeaweedMQError:
        return False


# --- what is kept


async def test_what_is_kept_are_record_batches_as_kafka_writes_them(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1)
    await Member(cluster).commit((0, 5))
    partition = primary_of(cluster).shard(GROUP).partition
    (entry,) = partition.open_segment.log.read(0, 1 << 20)
    assert entry.header[5] == ENCODING_KAFKA
    assert bytes(entry.payload[16:17]) == b"\2", "format 2"


async def test_the_internal_topic_is_made_once_with_three_replicas_if_there_are_brokers_for_them(
    testbed: Testbed,
) -> None:
    cluster = await Cluster.of(testbed, 4)
    found = await asyncio.gather(
        *(g.ask(API.FIND_COORDINATOR, 3, key=GROUP, key_type=0) for g in cluster.gateways for _ in range(3))
    )
    assert {reply.error_code for reply in found} == {Code.NONE}
    assert len({reply.node_id for reply in found}) == 1
    topic = testbed.hosts[0].inspect.view.topics[OFFSETS_TOPIC]
    assert (topic.partitions, topic.replicas) == (8, 3)


async def test_requests_that_come_together_share_one_append(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1)
    member = await Member(cluster).joined()
    log = primary_of(cluster).shard(GROUP).partition.open_segment.log
    frames = len(log.read(0, 1 << 30))
    end = log.end
    errors = await asyncio.gather(*(member.commit((0, n), (1, n)) for n in range(200)))
    assert errors == [[Code.NONE, Code.NONE]] * 200
    assert log.end == end + 400
    assert len(log.read(0, 1 << 30)) < frames + 20
    assert await member.committed() == {0: 199, 1: 199}


# --- another broker takes over


@pytest.mark.parametrize("brokers", [2, 3])
async def test_a_coordinator_that_is_killed_costs_no_rebalance(testbed: Testbed, brokers: int) -> None:
    cluster = await Cluster.of(testbed, brokers)
    members = [Member(cluster), Member(cluster)]
    await asyncio.gather(*(member.joined() for member in members))
    assert await members[0].commit((0, 5)) == [Code.NONE]
    shares = [member.assignment for member in members]
    killed = primary_of(cluster).host
    patience_s = 1.5 + (TTL_S if killed is testbed.leader() else 0.0)
    killed.kill()
    killed_at = testbed.loop.time()
    assert await members[0].commit((1, 6)) == [Code.NONE]
    assert testbed.loop.time() - killed_at < patience_s
    for member, share in zip(members, shares, strict=True):
        assert await member.heartbeat() == Code.NONE
        assert member.assignment == share
    assert await members[1].committed() == {0: 5, 1: 6}


async def test_a_coordinator_whose_segment_moves_costs_no_rebalance(testbed: Testbed) -> None:
    cluster, member = await with_commit(testbed, 3)
    before = primary_of(cluster)
    await before.host.api.call(DrainBroker(before.host.broker.id))
    assert await member.heartbeat() == Code.NONE
    assert await member.commit((1, 6)) == [Code.NONE]
    assert primary_of(cluster) is not before
    assert await member.committed() == {0: 5, 1: 6}
    assert (await fetched(before))[0] == Code.NOT_COORDINATOR


async def test_what_is_in_tables_is_loaded_as_well(testbed: Testbed) -> None:
    config = replace(KAFKA, log_roll_bytes=2_048, maintenance_interval_s=1.0, log_grace_s=1.0)
    cluster = await Cluster.of(testbed, 2, config)
    member = await Member(cluster).joined()
    for n in range(60):
        await member.commit((n % 3, n))
        await asyncio.sleep(0.1)
    number = primary_of(cluster).shard(GROUP).partition.partition
    await testbed.until(lambda: testbed.files(FileKind.TABLE, OFFSETS_TOPIC, number))
    await testbed.until(lambda: min(f.base_offset for f in testbed.files(FileKind.LOG, OFFSETS_TOPIC, number)) > 10)
    primary_of(cluster).host.kill()
    assert await member.committed() == {0: 57, 1: 58, 2: 59}
    assert await member.heartbeat() == Code.NONE


async def loading(testbed: Testbed) -> tuple[Cluster, Member, asyncio.Event]:
    """Restart a broker whose coordinators load nothing further until the event is set."""
    cluster, member = await with_commit(testbed, 1)
    cluster.gateways[0].following.cancel()
    await testbed.hosts[0].stop()
    cluster.gateways.clear()
    host = await testbed.start(KAFKA, address=testbed.hosts[0].address)
    await testbed.until(lambda: len(host.inspect.segments) >= 11)
    testbed.faults.paths = str(OFFSETS_TOPIC)
    gate = testbed.faults.hold(StorageOp.READ)
    cluster.open(host)
    return cluster, member, gate


async def test_while_it_loads_clients_are_told_to_come_again(testbed: Testbed) -> None:
    cluster, member, gate = await loading(testbed)
    (gateway,) = cluster.gateways
    for _ in range(3):
        assert (await fetched(gateway))[0] == Code.COORDINATOR_LOAD_IN_PROGRESS
        described = await gateway.ask(API.DESCRIBE_GROUPS, 5, groups=[GROUP])
        assert described.groups[0].error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
        assert (await gateway.ask(API.LIST_GROUPS, 4)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(0.5)
    gate.set()
    assert await member.committed() == {0: 5}
    assert await member.heartbeat() == Code.NONE


async def test_a_topic_that_is_deleted_while_it_loads_has_no_offsets_afterwards(testbed: Testbed) -> None:
    cluster, member, gate = await loading(testbed)
    await testbed.hosts[-1].api.call(DeleteTopic(TOPIC))
    await testbed.hosts[-1].api.call(CreateTopic(TopicSpec(name=TOPIC, partitions=3)))
    await asyncio.sleep(1.0)
    gate.set()
    assert await member.committed() == {}
    assert await member.heartbeat() == Code.NONE
    assert len(cluster.gateways) == 1


async def test_who_waits_in_a_join_hears_that_the_coordinator_is_elsewhere(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 3)
    one = await Member(cluster).joined()
    before = primary_of(cluster)
    two = Member(cluster)
    joining = asyncio.create_task(two.joined())
    await asyncio.sleep(1.0)
    assert await one.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert not joining.done()
    await before.host.api.call(DrainBroker(before.host.broker.id))
    await asyncio.sleep(1.0)
    rejoining = asyncio.create_task(one.joined())
    await asyncio.gather(joining, rejoining)
    assert one.generation == two.generation
    assert {one.assignment, two.assignment} == {one.id.encode(), two.id.encode()}


# --- no other broker may answer


async def test_a_coordinator_that_stood_still_answers_nothing_when_it_wakes_up(testbed: Testbed) -> None:
    cluster, member = await with_commit(testbed, 3)
    frozen = primary_of(cluster)
    member_of = {"group_id": GROUP, "member_id": member.id, "generation_id": member.generation}
    stale = [
        asyncio.create_task(frozen.ask(API.HEARTBEAT, 4, **member_of)),
        asyncio.create_task(frozen.ask(API.OFFSET_FETCH, 7, group_id=GROUP, topics=None, require_stable=False)),
        asyncio.create_task(frozen.ask(API.HEARTBEAT, 4, **member_of)),
    ]
    frozen.host.freeze()
    await testbed.until(lambda: any(_leads(g, GROUP) for g in cluster.living()))
    assert await member.commit((0, 6)) == [Code.NONE]
    frozen.host.thaw()
    for reply in await asyncio.gather(*stale):
        assert reply.error_code == Code.NOT_COORDINATOR
    for _ in range(20):
        assert (await fetched(frozen))[0] in ASK_AGAIN
        assert (await frozen.ask(API.HEARTBEAT, 4, **member_of)).error_code in ASK_AGAIN
        await asyncio.sleep(0.1)


async def test_what_is_not_committed_is_not_told(testbed: Testbed) -> None:
    cluster, member = await with_commit(testbed, 1)
    gateway = primary_of(cluster)
    gate = testbed.faults.hold(StorageOp.SYNC)
    testbed.faults.paths = OFFSETS_TOPIC.name
    appending = testbed.faults.hold(StorageOp.APPEND)
    committing = asyncio.create_task(member.commit((0, 6)))
    await testbed.until(lambda: offsets_of(gateway) == {0: 6})
    reading = asyncio.create_task(fetched(gateway))
    await asyncio.sleep(1.0)
    assert not reading.done()
    assert not committing.done()
    appending.set()
    gate.set()
    assert await committing == [Code.NONE]
    assert await reading == (Code.NONE, {0: 6})


# --- trouble


async def test_without_etcd_groups_with_replicas_go_on(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 2)
    member = await Member(cluster).joined()
    gateway = primary_of(cluster)
    testbed.etcd.server.stop()
    await testbed.until(lambda: not gateway.shard(GROUP).partition.is_sure)
    for n in range(20):
        assert await member.heartbeat() == Code.NONE
        assert await member.commit((0, n)) == [Code.NONE]
        assert await member.committed() == {0: n}
        await asyncio.sleep(TTL_S / 4)
    testbed.etcd.server.start()
    await asyncio.sleep(3 * TTL_S)
    assert await member.heartbeat() == Code.NONE
    assert await member.committed() == {0: 19}


async def test_without_etcd_and_replicas_nothing_is_answered_until_it_is_back(testbed: Testbed) -> None:
    cluster, member = await with_commit(testbed, 1)
    gateway = primary_of(cluster)
    testbed.etcd.server.stop()
    await testbed.until(lambda: not gateway.shard(GROUP).partition.is_sure)
    asked_at = testbed.loop.time()
    assert (await fetched(gateway))[0] in (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert testbed.loop.time() < asked_at + 11.0
    asked_at = testbed.loop.time()
    assert (await fetched(gateway))[0] == Code.COORDINATOR_LOAD_IN_PROGRESS, "no request waits once that is known"
    assert testbed.loop.time() == asked_at
    testbed.etcd.server.start()
    assert await member.committed() == {0: 5}


async def test_a_storage_that_fails_is_told_and_then_it_goes_on(testbed: Testbed) -> None:
    cluster, member = await with_commit(testbed, 1)
    gateway = primary_of(cluster)
    testbed.faults.paths = OFFSETS_TOPIC.name
    testbed.faults.failing[StorageOp.APPEND] = "no space left"
    committing = asyncio.create_task(member.commit((0, 6)))
    await asyncio.sleep(5.0)
    assert not committing.done()
    assert (await fetched(gateway))[0] == Code.COORDINATOR_LOAD_IN_PROGRESS
    testbed.faults.failing.clear()
    assert await committing == [Code.NONE]
    assert await member.heartbeat() == Code.NONE
    assert await member.committed() == {0: 6}


@pytest.mark.parametrize("seed", range(2))
async def test_committed_offsets_never_go_back_while_the_storage_fills_vanishes_and_coordinators_die(
    testbed: Testbed, seed: int
) -> None:
    config = replace(KAFKA, log_roll_bytes=2_048, maintenance_interval_s=1.0, log_grace_s=1.0)
    cluster = await Cluster.of(testbed, 2, config, snapshot_after_bytes=20_000)
    member, rng = await Member(cluster).joined(), random.Random(seed)
    trouble = asyncio.create_task(_trouble(cluster, config, rng))
    committed, attempt = 0, 0
    while not trouble.done():
        attempt += 1
        (error,) = await member.commit((0, attempt))
        if error in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS):
            await member.joined()
        else:
            assert error == Code.NONE
            committed = attempt
        found = (await member.committed()).get(0, 0)
        assert committed <= found <= attempt, f"attempt {attempt}"
        await asyncio.sleep(rng.uniform(0.0, 0.2))
    await trouble
    assert committed > 20


async def _trouble(cluster: Cluster, config: BrokerConfig, rng: random.Random) -> None:
    """Fill the storage, let it vanish, and kill the coordinator, one after another and together."""
    testbed = cluster.testbed
    for _ in range(6):
        kinds = rng.sample(("full", "gone", "kill"), rng.choice((1, 2, 2)))
        mounted = dict(testbed.store.files)
        if "full" in kinds:
            for op in (StorageOp.CREATE, StorageOp.APPEND, StorageOp.PUT):
                testbed.faults.failing[op] = os.strerror(errno.ENOSPC)
        if "gone" in kinds:
            testbed.store.files.clear()
        await asyncio.sleep(rng.uniform(0.0, 1.5))
        leading = [gateway for gateway in cluster.living() if _leads(gateway, GROUP)]
        if "kill" in kinds and leading:
            leading[0].host.kill()
        await asyncio.sleep(rng.uniform(0.5, 8.0))
        testbed.faults.failing.clear()
        if "gone" in kinds:
            beneath = list(testbed.store.files)
            testbed.store.files.clear()
            testbed.store.files.update(mounted)
            assert not beneath, "nothing is created beneath the mount"
        if len(cluster.living()) < 2:
            await asyncio.sleep(rng.uniform(0.0, 2.0))
            cluster.open(await testbed.start(config))
        await asyncio.sleep(rng.uniform(1.0, 4.0))


async def test_a_closed_connection_ends_the_wait_and_not_the_membership(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1)
    one = await Member(cluster).joined()
    gateway = primary_of(cluster)
    two = Member(cluster)
    joining = asyncio.create_task(two.joined())
    await asyncio.sleep(1.0)
    joining.cancel()
    await asyncio.wait({joining})
    await asyncio.sleep(0.1)
    assert all(answer.done() for answer, _ in gateway.shard(GROUP)._waiting.values())  # noqa: SLF001
    assert await one.heartbeat() == Code.REBALANCE_IN_PROGRESS
    rejoining = asyncio.create_task(one.joined())
    await two.joined()
    await rejoining
    assert one.generation == two.generation


async def test_an_event_that_fails_ends_the_coordinator_and_what_was_committed_is_loaded_anew(testbed: Testbed) -> None:
    cluster, member = await with_commit(testbed, 1)
    gateway = primary_of(cluster)
    shard = gateway.shard(GROUP)
    bug = gateway.host.api  # a value that fits no key
    with pytest.raises(AttributeError):
        await shard.submit(lambda token: CommitOffsets(token=token, group=bug, offsets=()))
    assert await member.heartbeat() == Code.NONE
    assert await member.committed() == {0: 5}
    assert gateway.shard(GROUP) is not shard


async def test_what_can_not_be_taken_in_keeps_one_coordinator_loading_and_nothing_else(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster.of(testbed, 1)
    member, other = await Member(cluster).joined(), await Member(cluster, "elsewhere").joined()
    await member.commit((0, 5))
    gateway = primary_of(cluster)
    assert gateway.shard(GROUP) is not gateway.shard("elsewhere")
    load = GroupShard.load

    def failing(state: GroupShard, record: ShardRecord) -> None:
        assert record.group != GROUP
        load(state, record)

    monkeypatch.setattr(GroupShard, "load", failing)
    with pytest.raises(AttributeError):
        await gateway.shard(GROUP).submit(lambda token: CommitOffsets(token=token, group=gateway, offsets=()))
    for _ in range(3):
        await asyncio.sleep(1.0)
        assert (await fetched(gateway))[0] == Code.COORDINATOR_LOAD_IN_PROGRESS
        assert await other.heartbeat() == Code.NONE
    monkeypatch.undo()
    assert await member.committed() == {0: 5}
    assert await member.heartbeat() == Code.NONE


async def test_what_others_put_into_the_topic_is_passed_over(testbed: Testbed) -> None:
    cluster, member = await with_commit(testbed, 2)
    number = primary_of(cluster).shard(GROUP).partition.partition
    publisher = await primary_of(cluster).host.publisher(name=OFFSETS_TOPIC, segment=number)
    await publisher.store(slots=(number, number), histogram=(0,) * 16)
    keys = [b"\0\1garbage", b"\0\7of another time", b""]
    data = encode_frame(
        pa.RecordBatch.from_arrays(
            [pa.array(keys), pa.array([b"x", None, b"y"], pa.binary())], names=["_key", "_value"]
        ),
        flags=FLAG_KEY,
        producer_id=1,
        producer_epoch=0,
        first_sequence=publisher.next,
        timestamp_min=0,
        timestamp_max=0,
        slot_min=number,
        slot_max=number,
        histogram=(0,) * 16,
    )
    await publisher.stream.send(PublishFrames(data))
    await publisher.acks()
    await publisher.stream.close()
    await member.commit((1, 6))
    primary_of(cluster).host.kill()
    assert await member.committed() == {0: 5, 1: 6}
    assert await member.heartbeat() == Code.NONE


# --- snapshots


async def test_what_a_snapshot_replaced_goes_and_the_next_coordinator_begins_with_the_snapshot(
    testbed: Testbed,
) -> None:
    config = replace(KAFKA, log_roll_bytes=2_048, maintenance_interval_s=1.0, log_grace_s=1.0)
    cluster = await Cluster.of(testbed, 3, config, snapshot_after_bytes=4_000)
    member = await Member(cluster).joined()
    number = primary_of(cluster).shard(GROUP).partition.partition
    for n in range(300):
        assert await member.commit((n % 3, n)) == [Code.NONE]

    def first_kept() -> int:
        files = [
            *testbed.files(FileKind.LOG, OFFSETS_TOPIC, number),
            *testbed.files(FileKind.TABLE, OFFSETS_TOPIC, number),
        ]
        return min(file.base_offset for file in files)

    await testbed.until(lambda: first_kept() > 100)
    primary_of(cluster).host.kill()
    assert await member.heartbeat() == Code.NONE
    assert await member.committed() == {0: 297, 1: 298, 2: 299}
