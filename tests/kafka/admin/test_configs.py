"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

import asyncio
from dataclasses import fields, replace
from typing import Any

import pytest

from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import (
    API,
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from seaweedmq.model.calls import AlterTopic
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import TopicChange, TopicName
from tests.broker.bed import CONFIG, Bed, story
from tests.kafka.office import Office, offices

ORDERS = TopicName("kafka", "orders")
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
INT = 3
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def office_with_topic(bed: Bed, **settings: Any) -> Office:
    (office,) = await offices(bed, 1)
    await bed.topic(office.host, ORDERS, partitions=2, **settings)
    return office


async def describe(
    office: Office, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **more: Any
) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    reply = await office.ask(API.DESCRIBE_CONFIGS, version, resources=[resource], **more)
    (result,) = reply.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def values(office: Office, kind: int = TOPIC, name: str = "orders") -> dict[str, str]:
    return {config.name: config.value for config in (await describe(office, kind, name)).configs}


async def alter(office: Office, kind: int = TOPIC, name: str = "orders", version: int = 2, **more: Any) -> Any:
    resource = AlterConfigsRequest.AlterConfigsResource
    only_check = more.pop("validate_only", False)
    configs = [resource.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in more.items()]
    asked = resource(resource_type=kind, resource_name=name, configs=configs)
    reply = await office.ask(API.ALTER_CONFIGS, version, resources=[asked], validate_only=only_check)
    (result,) = reply.responses
    return result


async def step(
    office: Office, *steps: tuple[str, int, str | None], name: str = "orders", kind: int = TOPIC, version: int = 1
) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in steps]
    asked = resource(resource_type=kind, resource_name=name, configs=configs)
    reply = await office.ask(API.INCREMENTAL_ALTER_CONFIGS, version, resources=[asked], validate_only=False)
    (result,) = reply.responses
    return result


def set_by_name(office: Office) -> dict[str, str]:
    return dict(office.host.inspect.view.topics[ORDERS].configs)


# --- DescribeConfigs


@story
@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_every_version_tells_the_values_of_a_topic(bed: Bed, version: int) -> None:
    office = await office_with_topic(bed, retention_s=60.0)
    result = await describe(office, TOPIC, "orders", version=version, include_synonyms=True)
    assert result.error_code == Code.NONE
    configs = {config.name: config for config in result.configs}
    retention, policy = configs["retention.ms"], configs["cleanup.policy"]
    assert (retention.value, retention.config_source, retention.read_only) == ("60000", 1, False)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "60000", 1),
        ("log.retention.ms", "-1", 5),
    ]
    assert (policy.value, policy.config_source) == ("delete", 5)
    if version >= 3:
        assert (retention.config_type, policy.config_type) == (5, 7)


@story
async def test_synonyms_and_documentation_are_told_to_who_asks(bed: Bed) -> None:
    office = await office_with_topic(bed)
    silent = (await describe(office, TOPIC, "orders", ["compression.type"])).configs
    assert [(config.name, config.synonyms, config.documentation) for config in silent] == [
        ("compression.type", [], None)
    ]
    (told,) = (await describe(office, TOPIC, "orders", ["compression.type"], include_documentation=True)).configs
    assert "without effect" in told.documentation


@story
async def test_configs_that_are_not_there_are_left_out(bed: Bed) -> None:
    office = await office_with_topic(bed)
    assert (await describe(office, TOPIC, "orders", ["retention.hours"])).configs == []


@story
async def test_what_has_no_configs_is_refused(bed: Bed) -> None:
    office = await office_with_topic(bed)
    assert (await describe(office, TOPIC, "returns")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (await describe(office, TOPIC, "a/b")).error_code == Code.INVALID_TOPIC_EXCEPTION
    for kind in (BROKER_LOGGER, CLIENT_METRICS, GROUP, 3):
        result = await describe(office, kind, "1")
        assert (result.error_code, result.configs) == (Code.INVALID_REQUEST, [])
        assert "has no configs" in result.error_message


@story
async def test_a_broker_tells_its_settings_under_both_names(bed: Bed) -> None:
    config = replace(CONFIG, kafka_partitions_default=7)
    office, *_ = await offices(bed, 2, config)
    configs = {entry.name: entry for entry in (await describe(office, BROKER, "1", include_synonyms=True)).configs}
    assert all(entry.read_only for entry in configs.values())
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("7", 4)
    assert [(s.value, s.source) for s in configs["num.partitions"].synonyms] == [("7", 4), ("4", 5)]
    assert configs["seaweedmq.kafka.metadata.partition_lookup.default"].value == "7"
    assert configs["seaweedmq.lease.ttl.s"].value == "2.0"
    assert configs["broker.id"].config_type == configs["node.id"].config_type == INT
    assert (configs["broker.id"].value, configs["auto.create.topics.enable"].value) == ("1", "true")
    assert configs["advertised.listeners"].value == "PLAINTEXT://broker-0:9092"
    assert len([name for name in configs if name.startswith("seaweedmq.")]) == len(fields(BrokerConfig))


@story
async def test_a_broker_tells_its_own_settings_alone(bed: Bed) -> None:
    office, *_ = await offices(bed, 2)
    for name in ("2", "9", "one", "-1"):
        result = await describe(office, BROKER, name)
        assert result.error_code == Code.INVALID_REQUEST
        assert "this is 1" in result.error_message
    everybody = await describe(office, BROKER, "")
    assert (everybody.error_code, everybody.configs) == (Code.NONE, [])


# --- AlterConfigs


@story
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_what_is_not_named_gets_its_default(bed: Bed, version: int) -> None:
    office = await office_with_topic(bed, retention_s=60.0, configs=(("segment.ms", "1000"),))
    result = await alter(office, version=version, retention_bytes="50", preallocate="TRUE")
    assert result.error_code == Code.NONE
    topic = office.host.inspect.view.topics[ORDERS]
    assert (topic.retention_s, topic.retention_bytes) == (None, 100)
    assert set_by_name(office) == {"preallocate": "true"}
    told = await values(office)
    assert (told["retention.ms"], told["retention.bytes"], told["preallocate"]) == ("-1", "50", "true")


@story
async def test_to_check_is_not_to_alter(bed: Bed) -> None:
    office = await office_with_topic(bed)
    assert (await alter(office, validate_only=True, segment_ms="1000")).error_code == Code.NONE
    assert (await alter(office, validate_only=True, segment_ms="0")).error_code == Code.INVALID_CONFIG
    assert set_by_name(office) == {}


@story
async def test_bad_configs_change_nothing(bed: Bed) -> None:
    office = await office_with_topic(bed, configs=(("segment.ms", "1000"),))
    for given, code in (
        ({"retention_hours": "1"}, Code.INVALID_CONFIG),
        ({"segment_ms": "x"}, Code.INVALID_CONFIG),
        ({"segment_ms": None}, Code.INVALID_REQUEST),
        ({"min_insync_replicas": "2"}, Code.INVALID_CONFIG),
    ):
        result = await alter(office, **given)
        assert result.error_code == code
        assert result.error_message
    assert set_by_name(office) == {"segment.ms": "1000"}


@story
async def test_only_topics_are_altered(bed: Bed) -> None:
    office = await office_with_topic(bed)
    assert (await alter(office, name="returns")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    broker = await alter(office, kind=BROKER, name="1", num_partitions="3")
    assert broker.error_code == Code.INVALID_REQUEST
    assert "configuration file" in broker.error_message
    assert (await alter(office, kind=GROUP, name="g")).error_code == Code.INVALID_REQUEST


# --- IncrementalAlterConfigs


@story
@pytest.mark.parametrize("version", [0, 1])
async def test_single_configs_are_set_deleted_appended_to_and_taken_from(bed: Bed, version: int) -> None:
    office = await office_with_topic(bed, retention_s=60.0, configs=(("segment.ms", "1000"),))
    result = await step(
        office,
        ("segment.ms", DELETE, None),
        ("retention.ms", SET, "5000"),
        ("cleanup.policy", APPEND, "compact"),
        version=version,
    )
    assert result.error_code == Code.NONE
    assert office.host.inspect.view.topics[ORDERS].retention_s == 5.0
    assert set_by_name(office) == {"cleanup.policy": "delete,compact"}
    await step(office, ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None), version=version)
    assert set_by_name(office) == {"cleanup.policy": "compact"}
    assert office.host.inspect.view.topics[ORDERS].retention_s is None


@story
async def test_bad_steps_change_nothing(bed: Bed) -> None:
    office = await office_with_topic(bed, configs=(("segment.ms", "1000"),))
    for steps, code in (
        ([("segment.ms", SET, "2000"), ("retention.hours", SET, "1")], Code.INVALID_CONFIG),
        ([("segment.ms", SET, "2000"), ("segment.ms", DELETE, None)], Code.INVALID_REQUEST),
        ([("segment.ms", APPEND, "1")], Code.INVALID_CONFIG),
        ([("segment.ms", 7, "1")], Code.INVALID_CONFIG),
        ([("segment.ms", SET, None)], Code.INVALID_REQUEST),
    ):
        assert (await step(office, *steps)).error_code == code
    assert set_by_name(office) == {"segment.ms": "1000"}
    assert (await step(office, ("segment.ms", SET, "1"), name="returns")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (await step(office, ("num.partitions", SET, "1"), name="1", kind=BROKER)).error_code == Code.INVALID_REQUEST


@story
async def test_a_resource_twice_is_refused(bed: Bed) -> None:
    office = await office_with_topic(bed)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="segment.ms", config_operation=SET, value="1000")
    asked = [resource(resource_type=TOPIC, resource_name="orders", configs=[config]) for _ in range(2)]
    reply = await office.ask(API.INCREMENTAL_ALTER_CONFIGS, resources=asked, validate_only=False)
    assert [result.error_code for result in reply.responses] == [Code.INVALID_REQUEST]
    assert set_by_name(office) == {}


@story
async def test_a_step_is_taken_from_what_the_leader_knows(bed: Bed) -> None:
    both = await offices(bed, 2)
    await bed.topic(both[0].host, ORDERS, partitions=2)
    follower = next(office for office in both if office.host is not bed.leader())
    await bed.until(lambda: ORDERS in follower.host.inspect.view.topics)
    await bed.leader().api.call(AlterTopic(ORDERS, TopicChange(configs=(("segment.ms", "1000"),))))
    await step(follower, ("preallocate", SET, "true"))
    assert set_by_name(follower) == {"preallocate": "true", "segment.ms": "1000"}


@story
async def test_no_step_is_lost_of_those_that_several_brokers_are_asked_for_at_once(bed: Bed) -> None:
    both = await offices(bed, 2)
    await bed.topic(both[0].host, ORDERS, partitions=2)
    await bed.until(lambda: all(ORDERS in office.host.inspect.view.topics for office in both))
    wanted = {"segment.ms": "1000", "preallocate": "true", "segment.jitter.ms": "7", "flush.messages": "9"}
    steps = [step(both[n % 2], (name, SET, value)) for n, (name, value) in enumerate(wanted.items())]
    assert [said.error_code for said in await asyncio.gather(*steps)] == [Code.NONE] * 4
    assert [set_by_name(office) for office in both if office.host is bed.leader()] == [wanted]


# --- ListConfigResources


@story
async def test_resources_are_listed_by_kind(bed: Bed) -> None:
    office, *_ = await offices(bed, 2)
    await bed.topic(office.host, ORDERS, partitions=1)

    async def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
        reply = await office.ask(API.LIST_CONFIG_RESOURCES, version, resource_types=list(kinds))
        assert reply.error_code == Code.NONE
        return [(found.resource_type, found.resource_name) for found in reply.config_resources]

    assert await listed(1) == [(TOPIC, "orders"), (BROKER, "1"), (BROKER, "2")]
    assert await listed(1, BROKER) == [(BROKER, "1"), (BROKER, "2")]
    assert await listed(1, CLIENT_METRICS, GROUP) == []
    assert await listed(0) == []
    assert (await office.ask(API.LIST_CONFIG_RESOURCES, 1, resource_types=[3])).error_code == Code.UNSUPPORTED_VERSION
