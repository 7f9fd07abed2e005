"""Handlers of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import IntEnum
from typing import Any

from seaweedmq.core.kafka.broker_configs import describe_broker
from seaweedmq.core.kafka.config_values import ConfigMisnamed, ConfigSource, Described
from seaweedmq.core.kafka.topic_configs import Alteration, altered_configs, change_of, describe_configs, parse_configs
from seaweedmq.errors import SeaweedMQError, unraised
from seaweedmq.kafka.admin.changes import TopicChanges, by_key, for_each
from seaweedmq.kafka.admin.topics import admin_code
from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    HandlerGroup,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
    Reply,
    Request,
)
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import Topic, TopicChange

ALTERED_WITHIN_S = 30.0
ALL_KINDS_FROM = 1
"""Version of ListConfigResources from which it lists all resources; before, only client metrics, which do not exist."""


class ResourceKind(IntEnum):
    """Types of config resources, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigHandlers(HandlerGroup):
    """Handlers of requests about configs. An error of one resource does not affect the others."""

    def __init__(
        self,
        directory: TopicDirectory,
        changes: TopicChanges,
        config: BrokerConfig,
        *,
        broker_id: Callable[[], str],
        fetch_bytes_max: int,
    ) -> None:
        self._directory = directory
        self._changes = changes
        self._config = config
        self._broker_id = broker_id
        self._fetch_bytes_max = fetch_bytes_max

    async def describe_configs(self, request: Request) -> Reply:
        """Return the named configs of each resource, or all."""
        await self._directory.nodes.ready()
        results = [await self._result(resource, request) for resource in request.body.resources]
        return DescribeConfigsResponse(results=results)

    async def _result(self, resource: Any, request: Request) -> Any:
        configs: Sequence[Described] = ()
        failure: SeaweedMQError | None = None
        try:
            configs = self._described(resource.resource_type, resource.resource_name)
        except SeaweedMQError as error:
            failure = unraised(error)
        wanted = set(resource.configuration_keys or ())
        results = []
        for config in configs:
            if not wanted or config.name in wanted:
                results.append(_config(config, request.body))
                await request.turn.pause()  # a topic has thirty configs, each with synonyms
        return DescribeConfigsResponse.DescribeConfigsResult(
            error_code=Code.NONE if failure is None else admin_code(failure),
            error_message=None if failure is None else str(failure),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=results,
        )

    def _described(self, kind: int, name: str) -> Sequence[Described]:
        if kind == ResourceKind.TOPIC:
            return describe_configs(self._topic(name), self._config)
        if kind == ResourceKind.BROKER:
            if not name:
                return ()  # cluster-wide defaults are in the brokers' configuration files
            self._check_own(name)
            return describe_broker(self._config, self._known(), self._fetch_bytes_max)
        raise _has_none(kind, name)

    def _topic(self, name: str) -> Topic:
        self._directory.topic_name(name)
        return self._directory.find(name).topic

    def _check_own(self, name: str) -> None:
        own = self._own_number()
        if name != str(own):
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"configs of broker {name[:40]!r} are not here: this is broker {own}, send it to that one",
            )

    def _own_number(self) -> int | None:
        return self._directory.nodes.number_of(self._broker_id())

    def _known(self) -> dict[str, str | int | None]:
        nodes = self._directory.nodes
        node = nodes.of_broker(self._broker_id())
        known: dict[str, str | int | None] = {"broker.id": self._own_number(), "node.id": self._own_number()}
        return known if node is None else known | {"advertised.listeners": f"PLAINTEXT://{node.host}:{node.port}"}

    async def alter_configs(self, request: Request) -> Reply:
        """Set all configs of each resource; configs that are not named get their defaults."""

        async def alter(resource: Any) -> None:
            names = [config.name for config in resource.configs]
            if twice := _first_twice(names):
                raise ConfigMisnamed(f"config {twice} is named twice in one request: name it once")
            if nothing := next((config.name for config in resource.configs if config.value is None), None):
                raise ConfigMisnamed(f"config {nothing} has no value: give one, or omit it for its default")
            given = {config.name: config.value for config in resource.configs}
            found = self._topic_to_alter(resource)
            configs = parse_configs(given, replicas=found.replicas)
            if not request.body.validate_only:
                await self._changes.alter(
                    found, lambda topic: change_of(topic, configs), ALTERED_WITHIN_S, request.context
                )

        return await self._each(request, alter, AlterConfigsResponse)

    async def incremental_alter_configs(self, request: Request) -> Reply:
        """Set, delete, append to or subtract from single configs."""

        async def alter(resource: Any) -> None:
            steps = [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
            found = self._topic_to_alter(resource)
            altered_configs(found, steps)

            def change(topic: Topic) -> TopicChange:
                return change_of(topic, altered_configs(topic, steps))

            if not request.body.validate_only:
                await self._changes.alter(found, change, ALTERED_WITHIN_S, request.context)

        return await self._each(request, alter, IncrementalAlterConfigsResponse)

    async def _each(self, request: Request, alter: Callable[[Any], Awaitable[None]], response: Any) -> Reply:
        """Run ``alter`` for each resource and reply with the errors."""

        async def altered(resources: Sequence[Any]) -> Any:
            kind, name = _key(resources[0])
            failure: SeaweedMQError | None = None
            try:
                if len(resources) > 1:
                    raise KafkaError(
                        Code.INVALID_REQUEST, f"resource {name} is named twice in one request: name it once"
                    )
                await alter(resources[0])
            except SeaweedMQError as error:
                failure = unraised(error)
            return response.AlterConfigsResourceResponse(
                error_code=Code.NONE if failure is None else admin_code(failure),
                error_message=None if failure is None else str(failure),
                resource_type=kind,
                resource_name=name,
            )

        resources = await by_key(request.body.resources, _key, request.turn)
        responses = await for_each(resources.values(), altered, request.turn)
        return response(responses=responses)

    def _topic_to_alter(self, resource: Any) -> Topic:
        kind, name = resource.resource_type, resource.resource_name
        if kind == ResourceKind.TOPIC:
            if not name:
                raise KafkaError(Code.INVALID_REQUEST, "topic configs have no cluster-wide default: name a topic")
            return self._topic(name)
        if kind == ResourceKind.BROKER:
            raise KafkaError(
                Code.INVALID_REQUEST,
                "broker configs cannot be changed at run time: change the configuration file and restart",
            )
        raise _has_none(kind, name)

    async def list_config_resources(self, request: Request) -> Reply:
        """Return the resources of the requested types, or raise KafkaError UNSUPPORTED_VERSION for an unknown type."""
        await self._directory.nodes.ready()
        wanted: Collection[int] = (ResourceKind.CLIENT_METRICS,)
        if request.version >= ALL_KINDS_FROM:
            wanted = set(request.body.resource_types) or set(ResourceKind)
        if unknown := sorted(set(wanted) - set(ResourceKind)):
            raise KafkaError(Code.UNSUPPORTED_VERSION, f"resource type {unknown[0]} is unknown: use 2, 4, 8, 16 or 32")
        found: list[tuple[int, str]] = []
        if ResourceKind.TOPIC in wanted:
            found += [(ResourceKind.TOPIC, topic.name) for topic in self._directory.topics()]
        if ResourceKind.BROKER in wanted:
            found += [(ResourceKind.BROKER, str(node.id)) for node in self._directory.nodes.live()]
        return ListConfigResourcesResponse(
            error_code=Code.NONE,
            config_resources=[
                ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
                for kind, name in found
            ],
        )


def _config(config: Described, body: Any) -> Any:
    result = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
    return result(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        is_default=config.source is ConfigSource.DEFAULT_CONFIG,
        config_source=config.source,
        is_sensitive=False,
        synonyms=[
            result.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (config.synonyms if body.include_synonyms else ())
        ],
        config_type=config.type,
        documentation=config.documentation if body.include_documentation else None,
    )


def _key(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _first_twice(names: Sequence[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _has_none(kind: int, name: str) -> KafkaError:
    return KafkaError(
        Code.INVALID_REQUEST, f"resource {name[:100]!r} of type {kind} has no configs: use topics (2) or brokers (4)"
    )
