"""Admin clients of librdkafka and kafka-python on a real socket, used as their users do."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from seaweedmq.model.config import KIB, BrokerConfig
from seaweedmq.model.kafka.codes import Code
from tests.support.whole_broker import whole_broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as PythonNewTopic

T = TypeVar("T")
TIMEOUT_S = 20.0
CONFIG = BrokerConfig(frame_bytes_max=64 * KIB, segment_buffer_bytes_max=256 * KIB, storage_free_bytes_min=1)


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Provide the address at which a broker listens for Kafka clients."""
    async with whole_broker(tmp_path, CONFIG) as broker:
        yield f"127.0.0.1:{broker.kafka_port}"


async def done(call: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """Return the outcome of each part of a librdkafka call: a result, or the error's code."""

    def results() -> dict[Any, Any]:
        return {key: outcome(future.result) for key, future in call().items()}

    return await asyncio.to_thread(results)


def outcome(result: Callable[..., T]) -> T | int:
    try:
        return result(TIMEOUT_S)
    except KafkaException as error:
        return int(error.args[0].code())


def librdkafka(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 10_000})


async def test_librdkafka_creates_describes_grows_and_deletes(address: str) -> None:
    admin = librdkafka(address)
    orders = NewTopic("orders", num_partitions=3, replication_factor=1, config={"retention.ms": "60000"})
    made = await done(lambda: admin.create_topics([orders, NewTopic("a b", 1, 1), NewTopic("wide", 9_999, 1)]))
    assert made == {"orders": None, "a b": Code.INVALID_TOPIC_EXCEPTION, "wide": Code.INVALID_PARTITIONS}
    assert await done(lambda: admin.create_topics([orders])) == {"orders": Code.TOPIC_ALREADY_EXISTS}
    metadata = await asyncio.to_thread(admin.list_topics, timeout=TIMEOUT_S)
    assert list(metadata.topics) == ["orders"]
    assert [(p.id, p.leader, p.replicas, p.isrs) for p in metadata.topics["orders"].partitions.values()] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
        (2, 1, [1], [1]),
    ]
    assert (metadata.controller_id, len(metadata.cluster_id)) == (1, 22)
    assert [str(broker) for broker in metadata.brokers.values()] == [f"{address}/1"]
    grown = await done(lambda: admin.create_partitions([NewPartitions("orders", 5)]))
    assert grown == {"orders": None}
    metadata = await asyncio.to_thread(admin.list_topics, timeout=TIMEOUT_S)
    assert len(metadata.topics["orders"].partitions) == 5
    assert await done(lambda: admin.delete_topics(["orders", "returns"])) == {
        "orders": None,
        "returns": Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    metadata = await asyncio.to_thread(admin.list_topics, timeout=TIMEOUT_S)
    assert not metadata.topics


async def test_librdkafka_reads_and_alters_configs(address: str) -> None:
    admin = librdkafka(address)
    await done(lambda: admin.create_topics([NewTopic("orders", 1, 1, config={"segment.ms": "60000"})]))

    def topic(*entries: ConfigEntry) -> ConfigResource:
        return ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=list(entries) or None)

    async def values() -> dict[str, str]:
        (described,) = (await done(lambda: admin.describe_configs([topic()]))).values()
        return {name: entry.value for name, entry in described.items()}

    assert (await values())["segment.ms"] == "60000"
    steps = [
        ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET),
    ]
    assert list((await done(lambda: admin.incremental_alter_configs([topic(*steps)]))).values()) == [None]
    after = await values()
    assert (after["segment.ms"], after["cleanup.policy"], after["retention.ms"]) == ("600000", "delete,compact", "1000")
    bad = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    refused = await done(lambda: admin.incremental_alter_configs([topic(bad)]))
    assert list(refused.values()) == [Code.INVALID_CONFIG]
    (broker,) = (await done(lambda: admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))).values()
    assert broker["num.partitions"].value == "4"
    assert broker["num.partitions"].is_read_only


async def test_kafka_python_does_the_same(address: str) -> None:
    def story() -> None:
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            admin.create_topics([PythonNewTopic("orders", num_partitions=2, replication_factor=1)])
            assert admin.list_topics() == ["orders"]
            (described,) = admin.describe_topics(["orders"])
            assert len(described["partitions"]) == 2
            admin.delete_topics(["orders"])
            assert admin.list_topics() == []
        finally:
            admin.close()

    await asyncio.to_thread(story)
