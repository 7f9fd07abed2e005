"""CreateTopics, DeleteTopics, CreatePartitions: results, and each error with its code."""

import asyncio
from typing import Any

import pytest

from seaweedmq.core.kafka.topic_ids import topic_id_of
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.call_context import INTERNAL, CallContext, ListenerKind
from seaweedmq.model.messages.calls import AlterTopic, CreateTopics, DeleteTopic, DrainBroker
from seaweedmq.model.topic import Scaling, Topic, TopicChange, TopicName
from tests.broker.testbed import Testbed
from tests.kafka.byte_client import ByteClient, byte_clients, versions
from tests.kafka.differential.scenes.topics import new

ORDERS = TopicName("kafka", "orders")


def wanted(
    name: str = "orders",
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> Any:
    assigned = [{"partition_index": partition, "broker_ids": ids} for partition, ids in (assignments or {}).items()]
    given = [{"name": config.replace("_", "."), "value": value} for config, value in configs.items()]
    return new(name, partitions, replicas, assignments=assigned, configs=given)


async def create(client: ByteClient, *topics: Any, version: int = 7, **more: Any) -> list[Any]:
    fields = {"timeout_ms": 30_000, "validate_only": False, **more}
    return list((await client.ask(API.CREATE_TOPICS, version, topics=list(topics), **fields)).topics)


async def refused(client: ByteClient, topic: Any) -> tuple[int, str]:
    (result,) = await create(client, topic)
    assert not [name for name in client.host.inspect.view.topics if name.name == topic["name"]]
    return result.error_code, result.error_message


def there(client: ByteClient, name: TopicName = ORDERS) -> Topic:
    return client.host.inspect.view.topics[name]


# --- CreateTopics


async def test_every_version_creates(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    for version in versions(API.CREATE_TOPICS):
        name = f"v{version}"
        (result,) = await create(client, wanted(name, partitions=3, retention_ms="1000"), version=version)
        assert (result.name, result.error_code) == (name, Code.NONE)
        made = there(client, TopicName("kafka", name))
        assert (made.partitions, made.replicas, made.retention_s) == (3, 1, 1.0), version
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            configs = {config.name: (config.value, config.config_source) for config in result.configs}
            assert (configs["retention.ms"], configs["cleanup.policy"]) == (("1000", 1), ("delete", 5)), version
        if version >= 7:
            assert result.topic_id.bytes == topic_id_of(made.uid)


async def test_what_is_created_anywhere_is_known_at_once_where_it_was_asked_for(testbed: Testbed) -> None:
    all_of_them = await byte_clients(testbed, 3)
    for number, client in enumerate(all_of_them):
        await client.nodes.ready()
        name = f"topic-{number}"
        (result,) = await create(client, wanted(name, replicas=3))
        assert result.error_code == Code.NONE
        assert client.directory.find(name).partition(0).error == Code.NONE


async def test_minus_one_is_the_default_and_of_assignments_the_shape_counts(testbed: Testbed) -> None:
    client, *_ = await byte_clients(testbed, 4)
    results = await create(client, wanted("a", -1, -1), wanted("b", -1, -1, assignments={1: [2, 1], 0: [1, 2]}))
    assert [(result.num_partitions, result.replication_factor) for result in results] == [(4, 3), (2, 2)]
    made = [there(client, TopicName("kafka", name)) for name in "ab"]
    assert [(topic.partitions, topic.replicas) for topic in made] == [(4, 3), (2, 2)]


async def test_a_broker_that_is_being_drained_does_not_count(testbed: Testbed) -> None:
    client, other = await byte_clients(testbed, 2)
    drained = other.host.broker.id
    await client.host.api.call(DrainBroker(drained))
    await testbed.until(lambda: client.host.inspect.view.brokers[drained].draining)
    (two, defaults) = await create(client, wanted("two", replicas=2), wanted("defaults", -1, -1))
    assert (two.error_code, defaults.error_code) == (Code.INVALID_REPLICATION_FACTOR, Code.NONE)
    assert "on 1 brokers" in two.error_message
    assert defaults.replication_factor == 1


async def test_a_name_that_differs_in_dots_and_underscores_only_is_rejected(testbed: Testbed) -> None:
    """Apache Kafka's metrics have one name for both."""
    client, other = await byte_clients(testbed, 2)
    await create(client, wanted("a.b_c"))
    for name in ("a_b.c", "a.b.c", "a_b_c"):
        code, words = await refused(other, wanted(name))
        assert (code, "a.b_c in dots and underscores only" in words) == (Code.INVALID_TOPIC_EXCEPTION, True)
        for creates, asked in ((True, Code.INVALID_TOPIC_EXCEPTION), (False, Code.UNKNOWN_TOPIC_OR_PARTITION)):
            topics = [{"topic_id": None, "name": name}]
            reply = await other.ask(API.METADATA, 12, topics=topics, allow_auto_topic_creation=creates)
            assert reply.topics[0].error_code == asked
    again, apart = await create(other, wanted("a.b_c"), wanted("a-b_c"))
    assert (again.error_code, apart.error_code) == (Code.TOPIC_ALREADY_EXISTS, Code.NONE)
    assert "exists already" in again.error_message


async def test_what_can_not_be_is_refused_with_its_code_in_words(testbed: Testbed) -> None:
    client, *_ = await byte_clients(testbed, 2)
    twice = wanted(retention_ms="1")
    twice["configs"].append({"name": "retention.ms", "value": "2"})
    for topic, code, words in (
        (wanted(partitions=4_097), Code.INVALID_PARTITIONS, "give 1 to 4,096"),
        (wanted(replicas=99), Code.INVALID_REPLICATION_FACTOR, "on 2 brokers"),
        (wanted("a/b"), Code.INVALID_TOPIC_EXCEPTION, "is not allowed"),
        (wanted("x" * 250), Code.INVALID_TOPIC_EXCEPTION, "has 250 characters"),
        (wanted(retention_hours="1"), Code.INVALID_CONFIG, "there is no topic config 'retention.hours'"),
        (wanted(retention_ms="soon"), Code.INVALID_CONFIG, "a whole number"),
        (wanted(retention_ms=None), Code.INVALID_CONFIG, "has no value"),
        (wanted(min_insync_replicas="2"), Code.INVALID_CONFIG, "the topic has 1 replicas"),
        (wanted(assignments={0: [1]}), Code.INVALID_REQUEST, "set the numbers to -1"),
        (wanted(partitions=-1, replicas=-1, assignments={1: [1]}), Code.INVALID_REPLICA_ASSIGNMENT, "must name each"),
        (wanted(partitions=-1, replicas=-1, assignments={0: []}), Code.INVALID_REPLICA_ASSIGNMENT, "are empty"),
        (wanted(partitions=-1, replicas=-1, assignments={0: [1, 1]}), Code.INVALID_REPLICA_ASSIGNMENT, "broker twice"),
        (
            wanted(partitions=-1, replicas=-1, assignments={0: [1], 1: [1, 2]}),
            Code.INVALID_REPLICA_ASSIGNMENT,
            "of different lengths",
        ),
        (
            wanted(partitions=-1, replicas=-1, assignments={0: [1, 2, 3]}),
            Code.INVALID_REPLICA_ASSIGNMENT,
            "broker 3, which is not registered",
        ),
        (twice, Code.INVALID_CONFIG, "is named twice"),
        (wanted(partitions=4_096, replicas=2), Code.POLICY_VIOLATION, "open_segments_max"),
    ):
        given, message = await refused(client, topic)
        assert given == code, topic
        assert words in message


async def test_who_waits_too_long_is_told_so(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted("before"))
    testbed.etcd.server.freeze()
    (result,) = await create(client, wanted(), timeout_ms=1)
    assert result.error_code == Code.REQUEST_TIMED_OUT
    assert "may still be created" in result.error_message
    testbed.etcd.server.thaw()


async def test_the_broker_learns_who_changes_topics_and_until_when_the_client_waits(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (client,) = await byte_clients(testbed, 1)
    api, arrived = client.host.broker.api, []
    call = api.call

    async def noted(request: Any, context: CallContext = INTERNAL) -> Any:
        if context is not INTERNAL:
            arrived.append((type(request), context.listener, context.peer, context.client_id))
            assert context.deadline_s == asyncio.get_running_loop().time() + 5
        return await call(request, context)

    monkeypatch.setattr(api, "call", noted)
    await create(client, wanted(), timeout_ms=5_000)
    await client.ask(API.DELETE_TOPICS, 5, topic_names=["orders"], timeout_ms=5_000)
    assert arrived == [
        (request, ListenerKind.KAFKA, "127.0.0.1:40000", "tests") for request in (CreateTopics, DeleteTopic)
    ]


# --- DeleteTopics


async def test_a_topic_that_is_named_twice_in_one_request_is_kept(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted("orders"))
    states = {"name": {"name": "orders"}, "id": {"name": None, "topic_id": topic_id_of(there(client).uid).hex()}}
    for mentions in ("name, id", "id, name", "name, id, id", "name, name", "id, id"):
        await create(client, wanted("returns"))
        topics = [*(states[mention] for mention in mentions.split(", ")), {"name": "returns"}]
        reply = await client.ask(API.DELETE_TOPICS, topics=topics, timeout_ms=30_000)
        codes = {r.name == "returns": r.error_code for r in reply.responses}
        assert (len(reply.responses), codes) == (2, {True: Code.NONE, False: Code.INVALID_REQUEST}), mentions
        assert [name.name for name in client.host.inspect.view.topics] == ["orders"]


async def test_what_is_deleted_is_gone_at_once_where_it_was_asked_for(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    follower = next(client for client in both if client.host is not testbed.leader())
    await create(follower, wanted())
    await follower.ask(API.DELETE_TOPICS, topics=[{"name": "orders"}], timeout_ms=30_000)
    (result,) = await create(follower, wanted(partitions=2))
    assert (result.error_code, there(follower).partitions) == (Code.NONE, 2)


async def test_a_ring_is_not_shown_and_not_deleted(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, TopicName("kafka", "ring"))
    reply = await client.ask(API.DELETE_TOPICS, topics=[{"name": "ring"}], timeout_ms=30_000)
    assert [(r.name, r.error_code) for r in reply.responses] == [("ring", Code.UNKNOWN_TOPIC_OR_PARTITION)]
    assert len(client.host.inspect.view.topics) == 1


# --- CreatePartitions


async def grow(client: ByteClient, name: str, count: int, **more: Any) -> tuple[int, str | None]:
    fields = {"timeout_ms": 30_000, "validate_only": False, **more}
    assignments = fields.pop("assignments", None)
    assigned = assignments and [{"broker_ids": brokers} for brokers in assignments]
    asked = {"name": name, "count": count, "assignments": assigned}
    version = fields.pop("version", None)
    reply = await client.ask(API.CREATE_PARTITIONS, version, topics=[asked], **fields)
    (result,) = reply.results
    return result.error_code, result.error_message


async def test_partitions_are_added(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted(partitions=2, retention_bytes="1000", segment_ms="60000"))
    for version in versions(API.CREATE_PARTITIONS):
        before = there(client).partitions or 0
        assert await grow(client, "orders", before + 3, validate_only=True, version=version) == (Code.NONE, None)
        assert there(client).partitions == before
        assert await grow(client, "orders", before + 3, version=version) == (Code.NONE, None), version
        assert client.directory.find("orders").count == before + 3
        assert there(client).retention_bytes == 1_000 * (before + 3)
        assert dict(there(client).configs) == {"segment.ms": "60000"}
    # What others have set meanwhile stays.
    await client.host.api.call(AlterTopic(ORDERS, TopicChange(retention_s=5.0, target_bytes_per_s=7.0)))
    await grow(client, "orders", 20)
    assert (there(client).retention_s, there(client).target_bytes_per_s) == (5.0, 7.0)


async def test_partitions_that_can_not_be_are_refused(testbed: Testbed) -> None:
    client, *_ = await byte_clients(testbed, 2)
    await create(client, wanted(partitions=2), wanted("__consumer_offsets"))
    await testbed.topic(client.host, TopicName("kafka", "ring"), segments=2, scaling=Scaling.FIXED)
    for name, count, assignments, code in (
        ("orders", 4_097, None, Code.INVALID_PARTITIONS),
        ("ring", 4, None, Code.INVALID_PARTITIONS),
        ("__consumer_offsets", 4, None, Code.INVALID_PARTITIONS),
        ("orders", 4, [[1, 2], [2, 1]], Code.INVALID_REPLICA_ASSIGNMENT),
    ):
        given, message = await grow(client, name, count, assignments=assignments)
        assert (name, count, given) == (name, count, code)
        assert message
    assert there(client).partitions == 2
    assert await grow(client, "orders", 4, assignments=[[1], [2]]) == (Code.NONE, None)
