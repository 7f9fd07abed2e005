"""DescribeLogDirs, DescribeProducers, InitProducerId, and APIs with a constant reply."""

from typing import Any

import pytest

from seaweedmq.broker.serve.appender import Appender
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.codec.frame import split_frames
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import (
    API,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    ElectLeadersRequest,
)
from seaweedmq.kafka.wire.versions import ADVERTISED
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import CONFIG, Host, Testbed, frame, story
from tests.doubles.memory_store import StorageOp
from tests.kafka.byte_client import ByteClient, byte_clients

ORDERS = TopicName("kafka", "orders")
A_PRODUCER = 1_000


def versions(api: API) -> range:
    return range(ADVERTISED[api].lowest, ADVERTISED[api].highest + 1)


# --- DescribeLogDirs


async def log_dirs(client: ByteClient, topics: dict[str, list[int]] | None = None, version: int = 4) -> dict[str, Any]:
    asked = DescribeLogDirsRequest.DescribableLogDirTopic
    named = None if topics is None else [asked(topic=name, partitions=ps) for name, ps in topics.items()]
    (result,) = (await client.ask(API.DESCRIBE_LOG_DIRS, version, topics=named)).results
    assert result.error_code == Code.NONE
    return {topic.name: {p.partition_index: p.partition_size for p in topic.partitions} for topic in result.topics}


@story
@pytest.mark.parametrize("version", versions(API.DESCRIBE_LOG_DIRS))
async def test_partitions_are_as_large_as_their_files(testbed: Testbed, version: int) -> None:
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, ORDERS, partitions=2)
    publisher = await client.host.publisher(name=ORDERS, segment=1)
    await publisher.store(3, 10, slots=(1, 1), histogram=(0,) * 16)
    (log,) = testbed.files(FileKind.LOG, ORDERS, 1)
    assert log.size_bytes > 0
    empty = sum(file.size_bytes for file in testbed.files(FileKind.LOG, ORDERS, 0))
    assert await log_dirs(client, version=version) == {"orders": {0: empty, 1: log.size_bytes}}


@story
async def test_a_broker_tells_of_what_it_is_a_replica_of(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    await testbed.topic(both[0].host, ORDERS, partitions=4)
    await testbed.topic(both[0].host, TopicName("kafka", "returns"), partitions=1, replicas=2)
    await testbed.until(lambda: all(len(client.directory.topics()) == 2 for client in both))
    told = [await log_dirs(client) for client in both]
    assert sorted(p for dirs in told for p in dirs["orders"]) == [0, 1, 2, 3]
    assert [list(dirs["returns"]) for dirs in told] == [[0], [0]]
    assert await log_dirs(both[0], {"returns": [0, 7], "nothing": [0]}) == {"returns": told[0]["returns"]}


@story
async def test_a_storage_that_fails_is_said(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, ORDERS, partitions=1)
    testbed.faults.failing[StorageOp.LIST] = "it is gone"
    (result,) = (await client.ask(API.DESCRIBE_LOG_DIRS, topics=None)).results
    assert (result.error_code, result.topics) == (Code.KAFKA_STORAGE_ERROR, [])
    testbed.faults.failing.clear()


# --- DescribeProducers


async def produce(testbed: Testbed, primary: Host, producer: int, epoch: int, count: int) -> None:
    """Append a frame to the only segment as the gateway does, without a stream."""
    lookup = Lookup(primary.inspect.view, primary.inspect.segments, SealedProducers(testbed.store))
    (owned,) = primary.inspect.segments.values()
    appender = Appender(owned, lookup, frame_bytes_max=CONFIG.frame_bytes_max)
    (sent,) = split_frames(frame(count, producer=producer, epoch=epoch, histogram=(0,) * 16))
    await testbed.network.spawn(primary.owner, appender.append(sent))


async def producers(client: ByteClient, name: str, partition: int) -> tuple[int, list[tuple[int, int, int]]]:
    asked = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[partition])
    reply = await client.ask(API.DESCRIBE_PRODUCERS, topics=[asked])
    (told,) = reply.topics[0].partitions
    return told.error_code, [(p.producer_id, p.producer_epoch, p.last_sequence) for p in told.active_producers]


@story
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


@story
@pytest.mark.parametrize("version", versions(API.INIT_PRODUCER_ID))
async def test_every_producer_gets_an_id_of_its_own(testbed: Testbed, version: int) -> None:
    both = await byte_clients(testbed, 2)
    given = []
    for client in (*both, *both):
        reply = await client.ask(API.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=1)
        assert (reply.error_code, reply.producer_epoch) == (Code.NONE, 0)
        given.append(reply.producer_id)
    assert len(set(given)) == 4
    assert min(given) >= 1_000


@story
@pytest.mark.parametrize("name", ["", "billing"])
async def test_transactions_are_refused(testbed: Testbed, name: str) -> None:
    (client,) = await byte_clients(testbed, 1)
    reply = await client.ask(API.INIT_PRODUCER_ID, transactional_id=name, transaction_timeout_ms=60_000)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (Code.INVALID_REQUEST, -1, -1)


# --- what has one answer


@story
async def test_there_are_no_permissions(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    for version in versions(API.DESCRIBE_ACLS):
        reply = await client.ask(
            API.DESCRIBE_ACLS, version, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        assert (reply.error_code, reply.resources) == (Code.SECURITY_DISABLED, [])
        assert "no permissions" in reply.error_message
        rule = CreateAclsRequest.AclCreation(
            resource_type=2,
            resource_name="orders",
            resource_pattern_type=3,
            principal="User:x",
            host="*",
            operation=2,
            permission_type=3,
        )
        created = await client.ask(API.CREATE_ACLS, version, creations=[rule, rule])
        assert [result.error_code for result in created.results] == [Code.SECURITY_DISABLED] * 2
        which = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        deleted = await client.ask(API.DELETE_ACLS, version, filters=[which])
        assert [(r.error_code, r.matching_acls) for r in deleted.filter_results] == [(Code.SECURITY_DISABLED, [])]


@story
async def test_there_are_no_quotas_and_no_reassignments(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    for version in versions(API.DESCRIBE_CLIENT_QUOTAS):
        quotas = await client.ask(API.DESCRIBE_CLIENT_QUOTAS, version, components=[], strict=False)
        assert (quotas.error_code, quotas.entries) == (Code.NONE, [])
    moves = await client.ask(API.LIST_PARTITION_REASSIGNMENTS, timeout_ms=1_000, topics=None)
    assert (moves.error_code, moves.topics) == (Code.NONE, [])


async def elected(client: ByteClient, version: int, kind: int, topics: dict[str, list[int]] | None) -> list[Any]:
    asked = ElectLeadersRequest.TopicPartitions
    named = None if topics is None else [asked(topic=name, partitions=ps) for name, ps in topics.items()]
    reply = await client.ask(API.ELECT_LEADERS, version, election_type=kind, topic_partitions=named, timeout_ms=1_000)
    if version >= 1:
        assert reply.error_code == Code.NONE
    return [(r.topic, p.partition_id, p.error_code) for r in reply.replica_election_results for p in r.partition_result]


@story
@pytest.mark.parametrize("version", versions(API.ELECT_LEADERS))
async def test_no_partition_needs_an_election(testbed: Testbed, version: int) -> None:
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, ORDERS, partitions=1)
    assert await elected(client, version, 0, {"orders": [0, 1], "returns": [0]}) == [
        ("orders", 0, Code.ELECTION_NOT_NEEDED),
        ("orders", 1, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("returns", 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await elected(client, version, 0, None) == []


@story
async def test_an_unknown_kind_of_election_is_refused(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    reply = await client.ask(API.ELECT_LEADERS, 2, election_type=2, topic_partitions=None, timeout_ms=1_000)
    assert reply.error_code == Code.INVALID_REQUEST
