"""Handlers of CreateTopics, DeleteTopics and CreatePartitions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from seaweedmq.core.kafka.config_values import ConfigMisnamed, InvalidConfig
from seaweedmq.core.kafka.topic_configs import change_of, configs_of, describe_configs, parse_configs, spec_of
from seaweedmq.core.kafka.topic_ids import NO_TOPIC_ID, topic_id_of
from seaweedmq.core.lineage.topology import REPLICAS_MAX
from seaweedmq.errors import InvalidArgument, SeaweedMQError, unraised
from seaweedmq.kafka.admin.changes import TopicChanges, by_key, for_each, patience_s
from seaweedmq.kafka.metadata.topic_creation import default_replicas, staying_brokers
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic, TopicDirectory
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    HandlerGroup,
    Reply,
    Request,
)
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import PARTITIONS_MAX, Topic, TopicSpec
from seaweedmq.runtime.turns import Turn

DEFAULT = -1
"""Number of partitions or replicas in a request that means the cluster's default."""
NAMED_BY_ID_FROM = 6
"""Version of DeleteTopics from which each topic is named by its name or its id."""

_TopicKey: TypeAlias = tuple[str | None, bytes | None]
"""A topic in a DeleteTopics request: its name, or its id of 16 bytes; both or neither are rejected."""


def admin_code(error: SeaweedMQError) -> int:
    """Return the error code for an admin request.

    Numbers, names and configs are checked before the call to the leader, so an InvalidArgument from the leader is a
    limit of the cluster.
    """
    match error:
        case ConfigMisnamed():
            return Code.INVALID_REQUEST
        case InvalidConfig():
            return Code.INVALID_CONFIG
        case InvalidArgument():
            return Code.POLICY_VIOLATION
        case _:
            return code_of(error, scope=ErrorScope.ADMIN)


class TopicHandlers(HandlerGroup):
    """Handlers of CreateTopics, DeleteTopics and CreatePartitions. An error of one topic does not affect the others."""

    def __init__(self, directory: TopicDirectory, changes: TopicChanges, config: BrokerConfig) -> None:
        self._directory = directory
        self._changes = changes
        self._config = config

    async def create_topics(self, request: Request) -> Reply:
        """Create topics; with ``validate_only``, only check the request."""
        body = request.body
        await self._directory.nodes.ready()
        outcomes: dict[str, TopicSpec | Topic | SeaweedMQError] = {}
        for name, topics in (await by_key(body.topics, _name, request.turn)).items():
            try:
                if len(topics) > 1:
                    raise _named_twice(name)
                outcomes[name] = self._spec(topics[0])
            except SeaweedMQError as error:
                outcomes[name] = unraised(error)
            await request.turn.pause()
        if not body.validate_only:
            specs = {name: spec for name, spec in outcomes.items() if isinstance(spec, TopicSpec)}
            made = await self._changes.create(tuple(specs.values()), patience_s(body.timeout_ms), request.context)
            outcomes |= zip(specs, made, strict=True)
        results = []
        for name, outcome in outcomes.items():
            results.append(await self._created(name, outcome, request.turn))
            await request.turn.pause()
        return CreateTopicsResponse(topics=results)

    def _spec(self, topic: Any) -> TopicSpec:
        name = self._directory.new_name(topic.name)
        if name in self._directory.view.topics:
            raise KafkaError(Code.TOPIC_ALREADY_EXISTS, f"topic {topic.name} (SeaweedMQ's {name}) exists already")
        partitions, replicas = self._shape(topic)
        twice = sorted(config for config, times in Counter(c.name for c in topic.configs).items() if times > 1)
        if twice:
            raise InvalidConfig(f"config {twice[0]} of topic {topic.name} is named twice: name it once")
        given = {config.name: config.value for config in topic.configs}
        configs = parse_configs(given, replicas=replicas)
        return spec_of(name, partitions=partitions, replicas=replicas, configs=configs)

    def _shape(self, topic: Any) -> tuple[int, int]:
        """Return the checked numbers of partitions and replicas of a topic to create."""
        if topic.assignments:
            if (topic.num_partitions, topic.replication_factor) != (DEFAULT, DEFAULT):
                raise KafkaError(
                    Code.INVALID_REQUEST,
                    f"topic {topic.name} has assignments and numbers of partitions or replicas: set the numbers to -1",
                )
            ordered = sorted(topic.assignments, key=lambda assignment: assignment.partition_index)
            if [assignment.partition_index for assignment in ordered] != list(range(len(ordered))):
                raise KafkaError(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    f"assignments of topic {topic.name} must name each of partitions 0 to {len(ordered) - 1} once",
                )
            replicas = self._replicas_of(topic.name, [assignment.broker_ids for assignment in ordered])
            return self._checked(topic.name, len(ordered), replicas)
        partitions, replicas = topic.num_partitions, topic.replication_factor
        return self._checked(
            topic.name,
            self._config.kafka_partitions_default if partitions == DEFAULT else partitions,
            default_replicas(self._directory.view) if replicas == DEFAULT else replicas,
        )

    def _checked(self, name: str, partitions: int, replicas: int) -> tuple[int, int]:
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise KafkaError(
                Code.INVALID_PARTITIONS,
                f"topic {name} cannot have {partitions} partitions: give 1 to {PARTITIONS_MAX:,}, or -1 for "
                f"{self._config.kafka_partitions_default}",
            )
        brokers = staying_brokers(self._directory.view)
        if not 1 <= replicas <= min(brokers, REPLICAS_MAX):
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"topic {name} cannot have {replicas} replicas on {brokers} brokers: give 1 to "
                f"{min(brokers, REPLICAS_MAX)}, or -1 for {default_replicas(self._directory.view)}",
            )
        return partitions, replicas

    async def _created(self, name: str, outcome: TopicSpec | Topic | SeaweedMQError, turn: Turn) -> Any:
        result = CreateTopicsResponse.CreatableTopicResult
        if isinstance(outcome, SeaweedMQError):
            return result(
                name=name,
                topic_id=NO_TOPIC_ID.hex(),
                error_code=admin_code(outcome),
                error_message=str(outcome),
                num_partitions=-1,
                replication_factor=-1,
                configs=[],
            )
        configs = []
        for config in describe_configs(outcome, self._config):
            configs.append(
                result.CreatableTopicConfigs(
                    name=config.name,
                    value=config.value,
                    read_only=config.read_only,
                    config_source=config.source,
                    is_sensitive=False,
                )
            )
            await turn.pause()
        return result(
            name=name,
            topic_id=(topic_id_of(outcome.uid) if isinstance(outcome, Topic) else NO_TOPIC_ID).hex(),
            error_code=Code.NONE,
            error_message=None,
            num_partitions=outcome.partitions,
            replication_factor=outcome.replicas,
            configs=configs,
        )

    def _replicas_of(self, name: str, assignments: Sequence[Sequence[int]]) -> int:
        """Return the replicas of each partition; the named brokers must be registered, but placement is by load."""
        counts = {len(brokers) for brokers in assignments}
        if len(counts) != 1 or 0 in counts or any(len(set(brokers)) < len(brokers) for brokers in assignments):
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"assignments of topic {name} are empty, of different lengths, or name a broker twice",
            )
        there = {node.id for node in self._directory.nodes.live()}
        unregistered = sorted({broker for brokers in assignments for broker in brokers} - there)
        if unregistered:
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"topic {name} is assigned to broker {unregistered[0]}, which is not registered: use {sorted(there)}",
            )
        return counts.pop()

    async def delete_topics(self, request: Request) -> Reply:
        """Delete topics with all their records."""
        body = request.body
        asked: Iterable[_TopicKey]
        if request.version >= NAMED_BY_ID_FROM:
            asked = ((t.name, None if t.topic_id is None else t.topic_id.bytes) for t in body.topics)
        else:
            asked = ((name, None) for name in body.topic_names)
        found = await self._to_delete(asked, request.turn)
        responses = await for_each(found.items(), lambda item: self._delete(*item, request), request.turn)
        return DeleteTopicsResponse(responses=responses)

    async def _delete(self, key: _TopicKey, found: PartitionedTopic | KafkaError, request: Request) -> Any:
        name, topic_id = key
        failure: SeaweedMQError | None = None
        if isinstance(found, KafkaError):
            failure = found
        else:
            name, topic_id = found.name, found.id
            try:
                await self._changes.delete(found.topic, patience_s(request.body.timeout_ms), request.context)
            except SeaweedMQError as error:
                failure = unraised(error)
        return DeleteTopicsResponse.DeletableTopicResult(
            name=name,
            topic_id=(topic_id or NO_TOPIC_ID).hex(),
            error_code=Code.NONE if failure is None else admin_code(failure),
            error_message=None if failure is None else str(failure),
        )

    async def _to_delete(
        self, asked: Iterable[_TopicKey], turn: Turn
    ) -> dict[_TopicKey, PartitionedTopic | KafkaError]:
        """Resolve the topics of one request.

        As in Kafka, a topic that is named twice is not deleted and gets one result with an error. The two may
        be equal, or be the name and the id.
        """
        found: dict[_TopicKey, PartitionedTopic | KafkaError] = {}
        for key, times in (await by_key(asked, lambda key: key, turn)).items():
            name, topic_id = key
            try:
                if (name is None) == (topic_id is None):
                    raise KafkaError(
                        Code.INVALID_REQUEST, "a topic to delete has both or neither of name and id: give one"
                    )
                if len(times) > 1:
                    raise _named_twice(name or (topic_id or b"").hex())
                found[key] = self._directory.find(name if topic_id is None else topic_id)  # type: ignore[arg-type]
            except KafkaError as error:
                found[key] = unraised(error)
            await turn.pause()
        for (name, _), topic in list(found.items()):
            if name is not None and isinstance(topic, PartitionedTopic) and (None, topic.id) in found:
                del found[None, topic.id], found[name, None]
                found[name, topic.id] = _named_twice(name)
            await turn.pause()
        return found

    async def create_partitions(self, request: Request) -> Reply:
        """Add partitions to topics; with ``validate_only``, only check the request."""
        body = request.body
        await self._directory.nodes.ready()

        async def grown(topics: Sequence[Any]) -> Any:
            topic = topics[0]
            failure: SeaweedMQError | None = None
            try:
                if len(topics) > 1:
                    raise _named_twice(topic.name)
                await self._grow(topic, request)
            except SeaweedMQError as error:
                failure = unraised(error)
            return CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name,
                error_code=Code.NONE if failure is None else admin_code(failure),
                error_message=None if failure is None else str(failure),
            )

        topics = await by_key(body.topics, _name, request.turn)
        results = await for_each(topics.values(), grown, request.turn)
        return CreatePartitionsResponse(results=results)

    async def _grow(self, asked: Any, request: Request) -> None:
        found = self._directory.find(asked.name)
        if not found.is_writable or found.is_internal:
            why = (
                "its groups and transactions are assigned to partitions by number"
                if found.is_internal
                else "it is a ring"
            )
            raise KafkaError(Code.INVALID_PARTITIONS, f"topic {asked.name} cannot have more partitions: {why}")
        if not found.count < asked.count <= PARTITIONS_MAX:
            raise KafkaError(
                Code.INVALID_PARTITIONS,
                f"topic {asked.name} has {found.count} partitions and cannot have {asked.count}: the number only "
                f"grows, up to {PARTITIONS_MAX:,}",
            )
        if asked.assignments is not None:
            new = [assignment.broker_ids for assignment in asked.assignments]
            if len(new) != asked.count - found.count or self._replicas_of(asked.name, new) != found.topic.replicas:
                raise KafkaError(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    f"topic {asked.name} gets {asked.count - found.count} new partitions with {found.topic.replicas} "
                    "replicas each: give an assignment for each of them, or none",
                )
        if not request.body.validate_only:
            await self._changes.alter(
                found.topic,
                lambda topic: change_of(topic, configs_of(topic), partitions=asked.count),
                patience_s(request.body.timeout_ms),
                request.context,
            )


def _name(topic: Any) -> str:
    return topic.name  # type: ignore[no-any-return]


def _named_twice(name: str) -> KafkaError:
    return KafkaError(Code.INVALID_REQUEST, f"topic {name} is named twice in one request: name it once")
