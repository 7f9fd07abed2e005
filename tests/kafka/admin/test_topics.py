"""CreateTopics, DeleteTopics, CreatePartitions: results, and each error with its code."""

import asyncio
from typing import Any

import pytest

from seaweedmq.core.kafka.topic_ids import NO_TOPIC_ID, topic_id_of
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import (
    API,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
)
from seaweedmq.kafka.wire.versions import ADVERTISED
from seaweedmq.model.messages.call_context import INTERNAL, CallContext, ListenerKind
from seaweedmq.model.messages.calls import AlterTopic, CreateTopics, DeleteTopic, DrainBroker
from seaweedmq.model.topic import Scaling, Topic, TopicChange, TopicName
from tests.broker.testbed import Testbed, story
from tests.kafka.byte_client import ByteClient, byte_clients

ORDERS = TopicName("kafka", "orders")
Creatable = CreateTopicsRequest.CreatableTopic


def versions(api: API) -> range:
    return range(ADVERTISED[api].lowest, ADVERTISED[api].highest + 1)


def wanted(
    name: str = "orders",
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> Any:
    return Creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            Creatable.CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)
            for partition, brokers in (assignments or {}).items()
        ],
        configs=[
            Creatable.CreatableTopicConfig(name=config.replace("_", "."), value=value)
            for config, value in configs.items()
        ],
    )


async def create(client: ByteClient, *topics: Any, version: int = 7, **more: Any) -> list[Any]:
    fields = {"timeout_ms": 30_000, "validate_only": False, **more}
    return list((await client.ask(API.CREATE_TOPICS, version, topics=list(topics), **fields)).topics)


async def refused(client: ByteClient, topic: Any) -> tuple[int, str]:
    (result,) = await create(client, topic)
    assert not [name for name in client.host.inspect.view.topics if name.name == topic.name]
    return result.error_code, result.error_message


def there(client: ByteClient, name: TopicName = ORDERS) -> Topic:
    return client.host.inspect.view.topics[name]


# --- CreateTopics


@story
@pytest.mark.parametrize("version", versions(API.CREATE_TOPICS))
async def test_every_version_creates(testbed: Testbed, version: int) -> None:
    (client,) = await byte_clients(testbed, 1)
    (result,) = await create(client, wanted(partitions=3, retention_ms="1000"), version=version)
    assert (result.name, result.error_code) == ("orders", Code.NONE)
    assert (there(client).partitions, there(client).replicas, there(client).retention_s) == (3, 1, 1.0)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: (config.value, config.config_source) for config in result.configs}
        assert configs["retention.ms"] == ("1000", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
    if version >= 7:
        assert result.topic_id.bytes == topic_id_of(there(client).uid)


@story
async def test_what_is_created_anywhere_is_known_at_once_where_it_was_asked_for(testbed: Testbed) -> None:
    all_of_them = await byte_clients(testbed, 3)
    for number, client in enumerate(all_of_them):
        await client.nodes.ready()
        name = f"topic-{number}"
        (result,) = await create(client, wanted(name, replicas=3))
        assert result.error_code == Code.NONE
        assert client.directory.find(name).partition(0).error == Code.NONE


@story
async def test_minus_one_is_the_default(testbed: Testbed) -> None:
    client, *_ = await byte_clients(testbed, 4)
    (result,) = await create(client, wanted(partitions=-1, replicas=-1))
    assert (result.num_partitions, result.replication_factor) == (4, 3)
    assert (there(client).partitions, there(client).replicas) == (4, 3)


@story
async def test_a_broker_that_is_being_drained_does_not_count(testbed: Testbed) -> None:
    client, other = await byte_clients(testbed, 2)
    drained = other.host.broker.id
    await client.host.api.call(DrainBroker(drained))
    await testbed.until(lambda: client.host.inspect.view.brokers[drained].draining)
    (two, defaults) = await create(client, wanted("two", replicas=2), wanted("defaults", -1, -1))
    assert (two.error_code, defaults.error_code) == (Code.INVALID_REPLICATION_FACTOR, Code.NONE)
    assert "on 1 brokers" in two.error_message
    assert defaults.replication_factor == 1


@story
async def test_of_assignments_the_shape_counts(testbed: Testbed) -> None:
    client, *_ = await byte_clients(testbed, 2)
    (result,) = await create(client, wanted(partitions=-1, replicas=-1, assignments={1: [2, 1], 0: [1, 2]}))
    assert (result.error_code, there(client).partitions, there(client).replicas) == (Code.NONE, 2, 2)


@story
async def test_to_check_is_not_to_create(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    (result,) = await create(client, wanted(partitions=3, retention_ms="5"), validate_only=True)
    assert (result.error_code, result.num_partitions) == (Code.NONE, 3)
    assert {config.name: config.value for config in result.configs}["retention.ms"] == "5"
    assert (result.topic_id or NO_TOPIC_ID) == NO_TOPIC_ID
    assert not client.host.inspect.view.topics


@story
async def test_one_bad_topic_harms_no_other(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted("there"))
    results = await create(client, wanted("a"), wanted("there"), wanted("b/c"), wanted("d", partitions=0), wanted("e"))
    assert [(result.name, result.error_code) for result in results] == [
        ("a", Code.NONE),
        ("there", Code.TOPIC_ALREADY_EXISTS),
        ("b/c", Code.INVALID_TOPIC_EXCEPTION),
        ("d", Code.INVALID_PARTITIONS),
        ("e", Code.NONE),
    ]
    assert sorted(name.name for name in client.host.inspect.view.topics) == ["a", "e", "there"]


@story
async def test_a_name_that_differs_in_dots_and_underscores_only_is_rejected(testbed: Testbed) -> None:
    """Apache Kafka's metrics have one name for both."""
    client, other = await byte_clients(testbed, 2)
    await create(client, wanted("a.b_c"))
    for name in ("a_b.c", "a.b.c", "a_b_c"):
        code, words = await refused(other, wanted(name))
        assert (code, "a.b_c in dots and underscores only" in words) == (Code.INVALID_TOPIC_EXCEPTION, True)
        make = MetadataRequest.MetadataRequestTopic
        asked = await other.ask(API.METADATA, 12, topics=[make(topic_id=None, name=name)])
        assert asked.topics[0].error_code == Code.INVALID_TOPIC_EXCEPTION
        asked = await other.ask(
            API.METADATA, 12, topics=[make(topic_id=None, name=name)], allow_auto_topic_creation=False
        )
        assert asked.topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (again,) = await create(other, wanted("a.b_c"))
    assert again.error_code == Code.TOPIC_ALREADY_EXISTS
    (apart,) = await create(other, wanted("a-b_c"))
    assert apart.error_code == Code.NONE


@story
async def test_a_topic_that_is_there_is_not_created_again(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted())
    uid = there(client).uid
    for more in ({}, {"validate_only": True}):
        (result,) = await create(client, wanted(partitions=5), **more)
        assert result.error_code == Code.TOPIC_ALREADY_EXISTS
        assert "exists already" in result.error_message
    assert (there(client).uid, there(client).partitions) == (uid, 1)


@story
async def test_of_two_that_create_at_once_one_does(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    results = await asyncio.gather(*(create(client, wanted(), wanted(f"own-{n}")) for n, client in enumerate(both)))
    of_orders = sorted(result.error_code for (result, _) in results)
    assert of_orders == [Code.NONE, Code.TOPIC_ALREADY_EXISTS]
    assert [own.error_code for (_, own) in results] == [Code.NONE, Code.NONE]


@story
async def test_a_name_twice_in_one_request_is_refused(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    results = await create(client, wanted("a"), wanted("b"), wanted("a", partitions=2))
    assert [(result.name, result.error_code) for result in results] == [("a", Code.INVALID_REQUEST), ("b", Code.NONE)]
    assert [name.name for name in client.host.inspect.view.topics] == ["b"]


@story
@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (wanted(partitions=0), Code.INVALID_PARTITIONS, "give 1 to 4,096"),
        (wanted(partitions=4_097), Code.INVALID_PARTITIONS, "give 1 to 4,096"),
        (wanted(partitions=-2), Code.INVALID_PARTITIONS, "give 1 to 4,096"),
        (wanted(replicas=0), Code.INVALID_REPLICATION_FACTOR, "on 2 brokers"),
        (wanted(replicas=-2), Code.INVALID_REPLICATION_FACTOR, "on 2 brokers"),
        (wanted(replicas=99), Code.INVALID_REPLICATION_FACTOR, "on 2 brokers"),
        (wanted("a/b"), Code.INVALID_TOPIC_EXCEPTION, "is not allowed"),
        (wanted(".."), Code.INVALID_TOPIC_EXCEPTION, "is not allowed"),
        (wanted(""), Code.INVALID_TOPIC_EXCEPTION, "is not allowed"),
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
    ],
)
async def test_what_can_not_be_is_refused_with_its_code_in_words(
    testbed: Testbed, topic: Any, code: Code, words: str
) -> None:
    client, *_ = await byte_clients(testbed, 2)
    given, message = await refused(client, topic)
    assert given == code
    assert words in message


@story
async def test_a_config_twice_is_refused(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    topic = wanted(retention_ms="1")
    topic.configs.append(Creatable.CreatableTopicConfig(name="retention.ms", value="2"))
    assert (await refused(client, topic))[0] == Code.INVALID_CONFIG


@story
async def test_more_segments_than_brokers_may_have_are_a_matter_of_policy(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    (result,) = await create(client, wanted(partitions=4_096))
    assert result.error_code == Code.POLICY_VIOLATION
    assert "open_segments_max" in result.error_message


@story
async def test_who_waits_too_long_is_told_so(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted("before"))
    testbed.etcd.server.freeze()
    (result,) = await create(client, wanted(), timeout_ms=1)
    assert result.error_code == Code.REQUEST_TIMED_OUT
    assert "may still be created" in result.error_message
    testbed.etcd.server.thaw()


@story
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
        (request, ListenerKind.KAFKA, "127.0.0.1:40000", "test") for request in (CreateTopics, DeleteTopic)
    ]


# --- DeleteTopics


def by_name(*names: str) -> dict[str, Any]:
    return {"topics": [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names], "topic_names": list(names)}


def by_id(*ids: bytes) -> list[Any]:
    return [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id.hex()) for topic_id in ids]


@story
@pytest.mark.parametrize("version", versions(API.DELETE_TOPICS))
async def test_every_version_deletes(testbed: Testbed, version: int) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted("a"), wanted("b"), wanted("c"))
    which = {"topic_names" if version < 6 else "topics": by_name("a", "c")["topic_names" if version < 6 else "topics"]}
    reply = await client.ask(API.DELETE_TOPICS, version, timeout_ms=30_000, **which)
    assert [(r.name, r.error_code) for r in reply.responses] == [("a", Code.NONE), ("c", Code.NONE)]
    assert [name.name for name in client.host.inspect.view.topics] == ["b"]


@story
async def test_topics_are_deleted_by_id(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted())
    known, unknown = topic_id_of(there(client).uid), topic_id_of(there(client).uid ^ 1)
    reply = await client.ask(API.DELETE_TOPICS, topics=by_id(known, unknown), timeout_ms=30_000)
    assert [(r.name, r.error_code) for r in reply.responses] == [("orders", Code.NONE), (None, Code.UNKNOWN_TOPIC_ID)]
    assert [r.topic_id.bytes for r in reply.responses] == [known, unknown]


@pytest.mark.parametrize("mentions", ["name, id", "id, name", "name, id, id", "name, name", "id, id"])
@story
async def test_a_topic_that_is_named_twice_in_one_request_is_kept(testbed: Testbed, mentions: str) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted("orders"), wanted("returns"))
    topic_id = topic_id_of(there(client).uid)
    states = {"name": by_name("orders")["topics"], "id": by_id(topic_id)}
    topics = [state for mention in mentions.split(", ") for state in states[mention]] + by_name("returns")["topics"]
    reply = await client.ask(API.DELETE_TOPICS, topics=topics, timeout_ms=30_000)
    others = {r.error_code for r in reply.responses if r.name == "returns"}
    assert (len(reply.responses), others) == (2, {Code.NONE})
    assert {r.error_code for r in reply.responses if r.name != "returns"} == {Code.INVALID_REQUEST}
    assert [name.name for name in client.host.inspect.view.topics] == ["orders"]


@story
async def test_what_is_deleted_is_gone_at_once_where_it_was_asked_for(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    follower = next(client for client in both if client.host is not testbed.leader())
    await create(follower, wanted())
    await follower.ask(API.DELETE_TOPICS, topics=by_name("orders")["topics"], timeout_ms=30_000)
    (result,) = await create(follower, wanted(partitions=2))
    assert (result.error_code, there(follower).partitions) == (Code.NONE, 2)


@story
async def test_what_can_not_be_deleted_is_said(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted("a"), wanted("b"))
    await testbed.topic(client.host, TopicName("kafka", "ring"))
    both = DeleteTopicsRequest.DeleteTopicState(
        name="a", topic_id=topic_id_of(there(client, TopicName("kafka", "a")).uid).hex()
    )
    neither = DeleteTopicsRequest.DeleteTopicState(name=None)
    twice = by_name("b", "b", "returns", "a/b", "ring")["topics"]
    reply = await client.ask(API.DELETE_TOPICS, topics=[both, neither, *twice], timeout_ms=30_000)
    assert [(r.name, r.error_code) for r in reply.responses] == [
        ("a", Code.INVALID_REQUEST),
        (None, Code.INVALID_REQUEST),
        ("b", Code.INVALID_REQUEST),
        ("returns", Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("ring", Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert len(client.host.inspect.view.topics) == 3


# --- CreatePartitions


async def grow(client: ByteClient, name: str, count: int, **more: Any) -> tuple[int, str | None]:
    fields = {"timeout_ms": 30_000, "validate_only": False, **more}
    assignments = fields.pop("assignments", None)
    new = CreatePartitionsRequest.CreatePartitionsTopic
    asked = new(
        name=name,
        count=count,
        assignments=assignments and [new.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
    )
    version = fields.pop("version", None)
    reply = await client.ask(API.CREATE_PARTITIONS, version, topics=[asked], **fields)
    (result,) = reply.results
    return result.error_code, result.error_message


@story
@pytest.mark.parametrize("version", versions(API.CREATE_PARTITIONS))
async def test_partitions_are_added(testbed: Testbed, version: int) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted(partitions=2, retention_bytes="1000", segment_ms="60000"))
    assert await grow(client, "orders", 5, validate_only=True, version=version) == (Code.NONE, None)
    assert there(client).partitions == 2
    assert await grow(client, "orders", 5, version=version) == (Code.NONE, None)
    assert client.directory.find("orders").count == 5
    assert there(client).retention_bytes == 5_000
    assert dict(there(client).configs) == {"segment.ms": "60000"}


@story
async def test_partitions_that_can_not_be_are_refused(testbed: Testbed) -> None:
    client, *_ = await byte_clients(testbed, 2)
    await create(client, wanted(partitions=2), wanted("__consumer_offsets"))
    await testbed.topic(client.host, TopicName("kafka", "ring"), segments=2, scaling=Scaling.FIXED)
    for name, count, assignments, code in (
        ("orders", 2, None, Code.INVALID_PARTITIONS),
        ("orders", 1, None, Code.INVALID_PARTITIONS),
        ("orders", 0, None, Code.INVALID_PARTITIONS),
        ("orders", 4_097, None, Code.INVALID_PARTITIONS),
        ("ring", 4, None, Code.INVALID_PARTITIONS),
        ("__consumer_offsets", 4, None, Code.INVALID_PARTITIONS),
        ("returns", 4, None, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 4, [[1]], Code.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 4, [[1], []], Code.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 4, [[1, 2], [2, 1]], Code.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 4, [[1], [3]], Code.INVALID_REPLICA_ASSIGNMENT),
    ):
        given, message = await grow(client, name, count, assignments=assignments)
        assert (name, count, given) == (name, count, code)
        assert message
    assert there(client).partitions == 2
    assert await grow(client, "orders", 4, assignments=[[1], [2]]) == (Code.NONE, None)


@story
async def test_what_was_set_meanwhile_by_others_stays(testbed: Testbed) -> None:
    (client,) = await byte_clients(testbed, 1)
    await create(client, wanted(partitions=2))
    await client.host.api.call(AlterTopic(ORDERS, TopicChange(retention_s=5.0, target_bytes_per_s=7.0)))
    await grow(client, "orders", 3)
    assert (there(client).retention_s, there(client).target_bytes_per_s) == (5.0, 7.0)
