"""DescribeLogDirs, DescribeProducers, InitProducerId, and requests for what is not supported."""

from typing import Any

from seaweedmq.broker.serve.appender import Appender
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.codec.frame import split_frames
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.files import FileKind
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import CONFIG, Host, Testbed, frame
from tests.doubles.memory_store import StorageOp
from tests.kafka.byte_client import ByteClient, byte_clients, versions

ORDERS = TopicName("kafka", "orders")
A_PRODUCER = 1_000


# --- DescribeLogDirs


async def log_dirs(client: ByteClient, topics: dict[str, list[int]] | None = None, version: int = 4) -> dict[str, Any]:
    named = None if topics is None else [{"topic": name, "partitions": ps} for name, ps in topics.items()]
    (result,) = (await client.ask(API.DESCRIBE_LOG_DIRS, version, topics=named)).results
    assert result.error_code == Code.NONE
    return {topic.name: {p.partition_index: p.partition_size for p in topic.partitions} for topic in result.topics}


async def test_partitions_are_as_large_as_their_files(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, ORDERS, partitions=2)
    publisher = await client.host.publisher(name=ORDERS, segment=1)
    await publisher.store(3, 10, slots=(1, 1), histogram=(0,) * 16)
    (log,) = testbed.files(FileKind.LOG, ORDERS, 1)
    assert log.size_bytes > 0
    empty = sum(file.size_bytes for file in testbed.files(FileKind.LOG, ORDERS, 0))
    for version in versions(API.DESCRIBE_LOG_DIRS):
        assert await log_dirs(client, version=version) == {"orders": {0: empty, 1: log.size_bytes}}, version
    testbed.faults.failing[StorageOp.LIST] = "it is gone"
    (result,) = (await client.ask(API.DESCRIBE_LOG_DIRS, topics=None)).results
    assert (result.error_code, result.topics) == (Code.KAFKA_STORAGE_ERROR, [])
    testbed.faults.failing.clear()


async def test_a_broker_tells_of_what_it_is_a_replica_of(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    await testbed.topic(both[0].host, ORDERS, partitions=4)
    await testbed.topic(both[0].host, TopicName("kafka", "returns"), partitions=1, replicas=2)
    await testbed.until(lambda: all(len(client.directory.topics()) == 2 for client in both))
    told = [await log_dirs(client) for client in both]
    assert sorted(p for dirs in told for p in dirs["orders"]) == [0, 1, 2, 3]
    assert [list(dirs["returns"]) for dirs in told] == [[0], [0]]
    assert await log_dirs(both[0], {"returns": [0, 7], "nothing": [0]}) == {"returns": told[0]["returns"]}


# --- DescribeProducers


async def produce(testbed: Testbed, primary: Host, producer: int, epoch: int, count: int) -> None:
    """Append a frame to the only segment as the gateway does, without a stream."""
    lookup = Lookup(primary.inspect.view, primary.inspect.segments, SealedProducers(testbed.store))
    (owned,) = primary.inspect.segments.values()
    appender = Appender(owned, lookup, frame_bytes_max=CONFIG.frame_bytes_max)
    (sent,) = split_frames(frame(count, producer=producer, epoch=epoch, histogram=(0,) * 16))
    await testbed.network.spawn(primary.owner, appender.append(sent))


async def producers(client: ByteClient, name: str, partition: int) -> tuple[int, list[tuple[int, int, int]]]:
    asked = {"name": name, "partition_indexes": [partition]}
    reply = await client.ask(API.DESCRIBE_PRODUCERS, topics=[asked])
    (told,) = reply.topics[0].partitions
    return told.error_code, [(p.producer_id, p.producer_epoch, p.last_sequence) for p in told.active_producers]


async def test_kafkas_producers_of_a_partition_are_told(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    await testbed.topic(both[0].host, ORDERS, partitions=1)
    primary = await testbed.primary(both[0].host, ORDERS)
    here = next(client for client in both if client.host is primary)
    elsewhere = next(client for client in both if client.host is not primary)
    await testbed.until(lambda: all(len(client.directory.topics()) == 1 for client in both))
    native = await primary.publisher(1 << 62, name=ORDERS)
    await native.store(1, 3, histogram=(0,) * 16)
    assert await producers(here, "orders", 0) == (Code.NONE, [])
    await produce(testbed, primary, A_PRODUCER, epoch=2, count=7)
    assert await producers(here, "orders", 0) == (Code.NONE, [(A_PRODUCER, 2, 6)])
    assert await producers(elsewhere, "orders", 0) == (Code.NOT_LEADER_OR_FOLLOWER, [])
    assert await producers(here, "orders", 1) == (Code.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert await producers(here, "returns", 0) == (Code.UNKNOWN_TOPIC_OR_PARTITION, [])


# --- InitProducerId


async def test_every_producer_gets_an_id_of_its_own(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    given = []
    for version in versions(API.INIT_PRODUCER_ID):
        for client in (*both, *both):
            reply = await client.ask(API.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=1)
            assert (reply.error_code, reply.producer_epoch) == (Code.NONE, 0), version
            given.append(reply.producer_id)
    assert len(set(given)) == len(given)
    assert min(given) >= 1_000


# --- what is not supported


async def test_what_is_not_supported_is_said_in_words(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    reply = await client.ask(API.INIT_PRODUCER_ID, transactional_id="billing", transaction_timeout_ms=60_000)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (Code.INVALID_REQUEST, -1, -1)
    any_rule = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    for version in versions(API.DESCRIBE_ACLS):
        reply = await client.ask(API.DESCRIBE_ACLS, version, **any_rule)
        assert (reply.error_code, "no permissions" in reply.error_message) == (Code.SECURITY_DISABLED, True)
    for version in versions(API.CONSUMER_GROUP_HEARTBEAT):
        reply = await client.ask(
            API.CONSUMER_GROUP_HEARTBEAT,
            version,
            group_id="new",
            member_id="me",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["anything"],
            topic_partitions=[],
        )
        assert (reply.error_code, reply.member_epoch, reply.assignment) == (Code.UNSUPPORTED_VERSION, 0, None)
        assert "set group.protocol=classic" in reply.error_message
