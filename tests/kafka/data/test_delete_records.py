"""DeleteRecords: start offsets of partitions afterwards, and rejected deletions."""

from typing import Any

from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import Scaling, TopicName
from tests.broker.testbed import Testbed
from tests.kafka.byte_client import ByteClient, byte_clients

ORDERS = TopicName("kafka", "orders")
ALL = -1


async def client_with_records(testbed: Testbed, **settings: Any) -> ByteClient:
    """Return a client of three partitions, of which the first two hold ten and five records."""
    [client] = await clients_with_records(testbed, 1, **settings)
    return client


async def clients_with_records(testbed: Testbed, brokers: int, **settings: Any) -> list[ByteClient]:
    client, *others = await byte_clients(testbed, brokers)
    await testbed.topic(client.host, ORDERS, partitions=3, **settings)
    for partition, count in ((0, 10), (1, 5)):
        primary = await testbed.primary(client.host, ORDERS, partition)
        publisher = await primary.publisher(partition + 1, name=ORDERS, segment=partition)
        await publisher.store(1, count, slots=(partition, partition), histogram=(0,) * 16)
    return [client, *others]


async def delete(client: ByteClient, before: dict[int, int], name: str = "orders") -> dict[int, Any]:
    """Delete records, and return the start offset or error code by partition."""
    partitions = [{"partition_index": p, "offset": offset} for p, offset in before.items()]
    topics = [{"name": name, "partitions": partitions}]
    reply = await client.ask(API.DELETE_RECORDS, topics=topics, timeout_ms=30_000)
    (result,) = reply.topics
    assert result.name == name
    return {p.partition_index: Code(p.error_code) if p.error_code else p.low_watermark for p in result.partitions}


def begins(client: ByteClient) -> tuple[int, ...]:
    return client.host.inspect.view.topics[ORDERS].low_watermarks


async def test_a_topic_that_is_named_again_is_changed_as_if_it_were_named_once(testbed: Testbed) -> None:
    client = await client_with_records(testbed)
    parts = [{"partition_index": partition, "offset": offset} for partition, offset in ((0, 9), (1, 2), (0, 4))]
    named = [{"name": "orders", "partitions": [part]} for part in parts]
    reply = await client.ask(API.DELETE_RECORDS, 2, topics=named, timeout_ms=30_000)
    assert [(t.name, [p.low_watermark for p in t.partitions]) for t in reply.topics] == [("orders", [4, 2])]


async def test_the_leader_of_a_partition_deletes_its_records_and_no_other_broker(testbed: Testbed) -> None:
    opened = await clients_with_records(testbed, 3)
    asked, begin = {0: 4, 1: ALL, 2: 0}, {0: 4, 1: 5, 2: 0}
    for client in opened:
        mine = {p for p in asked if await testbed.primary(client.host, ORDERS, p) is client.host}
        said = await delete(client, asked)
        assert said == {p: begin[p] if p in mine else Code.NOT_LEADER_OR_FOLLOWER for p in asked}
    assert begins(opened[0]) == (4, 5)


async def test_records_of_some_topics_stay(testbed: Testbed) -> None:
    client = await client_with_records(testbed, configs=(("cleanup.policy", "compact"),))
    await testbed.topic(client.host, TopicName("kafka", "ring"), segments=2, scaling=Scaling.FIXED)
    assert await delete(client, {0: 4}) == {0: Code.POLICY_VIOLATION}
    assert await delete(client, {0: 0}, "ring") == {0: Code.POLICY_VIOLATION}
    assert await delete(client, {0: 0}, "returns") == {0: Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert begins(client) == ()
