"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

import asyncio
from dataclasses import fields, replace
from typing import Any

from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import CONFIG, Testbed
from tests.kafka.byte_client import ByteClient, byte_clients

ORDERS = TopicName("kafka", "orders")
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
INT = 3
SET = 0


async def client_with_topic(testbed: Testbed, **settings: Any) -> ByteClient:
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, ORDERS, partitions=2, **settings)
    return client


async def describe(client: ByteClient, kind: int, name: str, keys: list[str] | None = None, **more: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    reply = await client.ask(API.DESCRIBE_CONFIGS, 4, resources=[resource], **more)
    (result,) = reply.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def alter(client: ByteClient, kind: int = TOPIC, name: str = "orders", **more: Any) -> Any:
    only_check = more.pop("validate_only", False)
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in more.items()]
    asked = {"resource_type": kind, "resource_name": name, "configs": configs}
    reply = await client.ask(API.ALTER_CONFIGS, 2, resources=[asked], validate_only=only_check)
    (result,) = reply.responses
    return result


async def step(client: ByteClient, *steps: tuple[str, str], name: str = "orders", kind: int = TOPIC) -> Any:
    configs = [{"name": key, "config_operation": SET, "value": value} for key, value in steps]
    asked = {"resource_type": kind, "resource_name": name, "configs": configs}
    reply = await client.ask(API.INCREMENTAL_ALTER_CONFIGS, 1, resources=[asked], validate_only=False)
    (result,) = reply.responses
    return result


def set_by_name(client: ByteClient) -> dict[str, str]:
    return dict(client.host.inspect.view.topics[ORDERS].configs)


# --- DescribeConfigs


async def test_documentation_is_told_to_who_asks_and_why_others_have_no_configs(testbed: Testbed) -> None:
    client = await client_with_topic(testbed)
    silent = (await describe(client, TOPIC, "orders", ["compression.type"])).configs
    assert [(config.name, config.synonyms, config.documentation) for config in silent] == [
        ("compression.type", [], None)
    ]
    (told,) = (await describe(client, TOPIC, "orders", ["compression.type"], include_documentation=True)).configs
    assert "without effect" in told.documentation
    for kind in (BROKER_LOGGER, CLIENT_METRICS, GROUP, 3):
        result = await describe(client, kind, "1")
        assert (result.error_code, result.configs) == (Code.INVALID_REQUEST, [])
        assert "has no configs" in result.error_message


async def test_a_broker_tells_its_own_settings_under_both_names(testbed: Testbed) -> None:
    config = replace(CONFIG, kafka_partitions_default=7)
    client, *_ = await byte_clients(testbed, 2, config)
    configs = {entry.name: entry for entry in (await describe(client, BROKER, "1", include_synonyms=True)).configs}
    assert all(entry.read_only for entry in configs.values())
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("7", 4)
    assert [(s.value, s.source) for s in configs["num.partitions"].synonyms] == [("7", 4), ("4", 5)]
    assert configs["seaweedmq.kafka.partitions.default"].value == "7"
    assert configs["seaweedmq.lease.ttl.s"].value == "2.0"
    assert configs["broker.id"].config_type == configs["node.id"].config_type == INT
    assert (configs["broker.id"].value, configs["auto.create.topics.enable"].value) == ("1", "true")
    assert configs["advertised.listeners"].value == "PLAINTEXT://broker-0:9092"
    assert len([name for name in configs if name.startswith("seaweedmq.")]) == len(fields(BrokerConfig))
    for name in ("2", "9", "one", "-1"):
        result = await describe(client, BROKER, name)
        assert result.error_code == Code.INVALID_REQUEST
        assert "this is broker 1" in result.error_message


# --- AlterConfigs


async def test_what_is_only_checked_named_twice_or_in_a_file_changes_nothing(testbed: Testbed) -> None:
    client = await client_with_topic(testbed, configs=(("segment.ms", "1000"),))
    for value, code in (("5", Code.NONE), ("0", Code.INVALID_CONFIG)):
        result = await alter(client, validate_only=True, segment_ms=value)
        assert (result.error_code, bool(result.error_message)) == (code, code != Code.NONE)
    broker = await alter(client, kind=BROKER, name="1", num_partitions="3")
    assert (broker.error_code, "configuration file" in broker.error_message) == (Code.INVALID_REQUEST, True)
    assert (await alter(client, kind=GROUP, name="g")).error_code == Code.INVALID_REQUEST
    assert (await step(client, ("num.partitions", "1"), name="1", kind=BROKER)).error_code == Code.INVALID_REQUEST
    config = {"name": "segment.ms", "config_operation": SET, "value": "2000"}
    twice = [{"resource_type": TOPIC, "resource_name": "orders", "configs": [config]}] * 2
    reply = await client.ask(API.INCREMENTAL_ALTER_CONFIGS, resources=twice, validate_only=False)
    assert [result.error_code for result in reply.responses] == [Code.INVALID_REQUEST]
    assert set_by_name(client) == {"segment.ms": "1000"}


# --- IncrementalAlterConfigs


async def test_no_step_is_lost_of_those_that_several_brokers_are_asked_for_at_once(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    await testbed.topic(both[0].host, ORDERS, partitions=2)
    await testbed.until(lambda: all(ORDERS in client.host.inspect.view.topics for client in both))
    wanted = {"segment.ms": "1000", "preallocate": "true", "segment.jitter.ms": "7", "flush.messages": "9"}
    steps = [step(both[n % 2], (name, value)) for n, (name, value) in enumerate(wanted.items())]
    assert [said.error_code for said in await asyncio.gather(*steps)] == [Code.NONE] * 4
    assert [set_by_name(client) for client in both if client.host is testbed.leader()] == [wanted]


# --- ListConfigResources


async def test_resources_are_listed_by_kind(testbed: Testbed) -> None:
    client, *_ = await byte_clients(testbed, 2)
    await testbed.topic(client.host, ORDERS, partitions=1)

    async def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
        reply = await client.ask(API.LIST_CONFIG_RESOURCES, version, resource_types=list(kinds))
        assert reply.error_code == Code.NONE
        return [(found.resource_type, found.resource_name) for found in reply.config_resources]

    assert await listed(1) == [(TOPIC, "orders"), (BROKER, "1"), (BROKER, "2")]
    assert await listed(1, BROKER) == [(BROKER, "1"), (BROKER, "2")]
    assert await listed(1, CLIENT_METRICS, GROUP) == []
    assert await listed(0) == []
    assert (await client.ask(API.LIST_CONFIG_RESOURCES, 1, resource_types=[3])).error_code == Code.UNSUPPORTED_VERSION
