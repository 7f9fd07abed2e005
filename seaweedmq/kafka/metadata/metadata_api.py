"""Handlers of Metadata, DescribeCluster and DescribeTopicPartitions, which tell clients the brokers and leaders."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any

from seaweedmq.broker.local import LocalBroker
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.kafka.creation_quota import MINUTE_S, CreationQuota
from seaweedmq.core.kafka.topic_ids import NO_TOPIC_ID
from seaweedmq.errors import AlreadyExists, InvalidArgument, SeaweedMQError, unraised
from seaweedmq.kafka.admin.changes import TopicChanges
from seaweedmq.kafka.metadata.nodes import NO_NODE, Nodes
from seaweedmq.kafka.metadata.reachability import is_reachable
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic, TopicDirectory
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import (
    API,
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
    Handler,
    MetadataResponse,
    Reply,
    Request,
)
from seaweedmq.model.kafka.group_admin import INTERNAL_TOPICS
from seaweedmq.model.topic import TopicName, TopicSpec
from seaweedmq.runtime.turns import Turn

log = logging.getLogger(__name__)

ALL_WHEN_EMPTY = 0
"""Version of Metadata in which an empty list of topics means all of them; later versions use null."""
IDS_FROM = 12
"""Version of Metadata from which a request may name a topic by its id."""
CLUSTER_OPERATIONS_UP_TO = 10
PARTITIONS_AT_ONCE_MAX = 2_000
"""Maximum number of partitions in one reply to DescribeTopicPartitions."""
TOPIC_OPERATIONS = frozenset({3, 4, 5, 6, 7, 8, 10, 11})
CLUSTER_OPERATIONS = frozenset({5, 7, 8, 9, 10, 11, 12})
"""All operations of a cluster, by Kafka's numbers: there are no permissions."""
_OPERATIONS_BITS = sum(1 << operation for operation in TOPIC_OPERATIONS)
BROKERS, CONTROLLERS = 1, 2
"""Types of endpoints in DescribeCluster."""
CREATED_WITHIN_S = 15.0
REPLICAS_DEFAULT_MAX = 3
NAMES_A_STEP = 1_000
"""Names that are sorted in one step of the event loop: about 0.3 ms."""
REPORTED_MAX = 1_000
"""Maximum number of logged failures to remember, so that each is logged once."""


def staying_brokers(view: ClusterView) -> int:
    """Return the number of brokers that may get segments: all that are not draining."""
    return sum(not broker.draining for broker in view.brokers.values())


def default_replicas(view: ClusterView) -> int:
    """Return the number of replicas of a topic whose creator names none."""
    return max(1, min(REPLICAS_DEFAULT_MAX, staying_brokers(view)))


class MetadataHandlers:
    """Handlers of Metadata, DescribeCluster and DescribeTopicPartitions."""

    def __init__(self, here: LocalBroker, directory: TopicDirectory, changes: TopicChanges) -> None:
        self._here = here
        self._directory = directory
        self._nodes: Nodes = directory.nodes
        self._changes = changes
        self._quota = CreationQuota(here.config.kafka_auto_create_per_minute_max)
        self._throttled: dict[str, float] = {}
        """Hosts of clients whose quota is used up, and the time at which that was logged."""
        self._reported: dict[TopicName, str] = {}
        """Topics that could not be created, with the logged reason."""

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by API key."""
        return {
            API.METADATA: self.metadata,
            API.DESCRIBE_CLUSTER: self.describe_cluster,
            API.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
        }

    async def metadata(self, request: Request) -> Reply:
        """Return the brokers and the requested topics, or all; create unknown topics if the request allows it.

        Raises:
            KafkaError: If a topic is named by its id before version ``IDS_FROM``, or by neither name nor id.
            SeaweedMQError: As ``Nodes.ready``.
        """
        body = request.body
        await self._nodes.ready()
        if body.topics is None or (request.version == ALL_WHEN_EMPTY and not body.topics):
            topics = await _in_turns((self._topic(topic, body) for topic in self._directory.topics()), request.turn)
        else:
            topics = await self._asked_for(request, body)
        wants_operations = request.version <= CLUSTER_OPERATIONS_UP_TO and body.include_cluster_authorized_operations
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=None)
                for node in self._nodes.shown()
            ],
            cluster_id=self._nodes.cluster_id or None,
            controller_id=self._nodes.controller(),
            topics=topics,
            authorized_operations=set(CLUSTER_OPERATIONS) if wants_operations else None,
            error_code=Code.NONE,
        )

    async def _asked_for(self, request: Request, body: Any) -> list[Any]:
        names: dict[str, None] = {}
        ids: dict[bytes, None] = {}
        for topic in body.topics:
            if topic.topic_id is None:
                names[topic.name] = None
            else:
                ids[topic.topic_id.bytes] = None
            await request.turn.pause()
        if request.version < IDS_FROM and (ids or None in names):
            raise KafkaError(
                Code.INVALID_REQUEST, f"Metadata version {request.version} has no topic ids: use version {IDS_FROM}"
            )
        if None in names:
            raise KafkaError(Code.INVALID_REQUEST, "Metadata requests a topic without name and id: give one")
        failures = await self._create_missing(names, request) if body.allow_auto_topic_creation else {}
        by_name = (self._named(name, failures.get(name), body) for name in names)
        by_id = (self._with_id(topic_id, body) for topic_id in ids)
        topics = await _in_turns(chain(by_name, by_id), request.turn)
        await self._name_no_lost_leader(topics, request.turn)
        return topics

    async def _name_no_lost_leader(self, topics: Sequence[Any], turn: Turn) -> None:
        """Mark partitions whose leader is unreachable as leaderless, so that clients retry soon.

        This probes leaders of requested topics only: a client requests them when its connection has just broken.
        """
        led: defaultdict[int, list[tuple[str, Any]]] = defaultdict(list)
        for topic in topics:
            for partition in topic.partitions:
                led[partition.leader_id].append((topic.name, partition))
            await turn.pause()

        async def look(node: int) -> None:
            broker = self._nodes.broker_of(node)
            topic = self._directory.view.topics.get(TopicName(self._directory.namespace, led[node][0][0]))
            if broker is not None and topic is not None and not await is_reachable(self._here, broker, topic):
                for _, partition in led[node]:
                    partition.leader_id, partition.error_code = NO_NODE, Code.LEADER_NOT_AVAILABLE

        await asyncio.gather(*map(look, led))

    async def _create_missing(self, names: Iterable[str], request: Request) -> dict[str, SeaweedMQError]:
        """Create the missing topics; return the errors of those that could not be created."""
        if not self._here.config.kafka_auto_create:
            return {}
        failures: dict[str, SeaweedMQError] = {}
        specs = []
        for name in names:
            spec = self._missing(name, failures)
            if spec is not None:
                specs.append(spec)
            await request.turn.pause()
        specs = self._within_quota(specs, request)
        if not specs:
            return failures
        outcomes = await self._changes.create(specs, CREATED_WITHIN_S)
        failed = sum(isinstance(outcome, SeaweedMQError) for outcome in outcomes)
        if failed:  # else retries during an outage would use up the quota
            self._quota.give_back(request.client_host, failed)
        for spec, outcome in zip(specs, outcomes, strict=True):
            if isinstance(outcome, AlreadyExists):  # another broker created it first
                try:
                    await self._changes.known(spec.name, CREATED_WITHIN_S)
                except SeaweedMQError as error:
                    failures[spec.name.name] = unraised(error)
            elif isinstance(outcome, InvalidArgument):
                # Clients raise this code at once, and retry for a minute after any other code of a violated rule. The
                # reply has no field for the reason.
                self._report(spec.name, outcome)
                failures[spec.name.name] = KafkaError(Code.INVALID_TOPIC_EXCEPTION, str(outcome))
            elif isinstance(outcome, SeaweedMQError):
                failures[spec.name.name] = outcome
        return failures

    def _within_quota(self, specs: list[TopicSpec], request: Request) -> list[TopicSpec]:
        """Return the topics that the quota of the client's host lets it create now.

        The reply shows the others as unknown, as Apache Kafka does while it creates a topic: clients retry.
        """
        now = asyncio.get_running_loop().time()
        granted = self._quota.take(request.client_host, len(specs), now)
        if granted < len(specs) and now - self._throttled.get(request.client_host, -MINUTE_S) >= MINUTE_S:
            if len(self._throttled) >= REPORTED_MAX:
                self._throttled.clear()
            self._throttled[request.client_host] = now
            log.warning(
                "topics not created yet for the Kafka client %s (%s): %d of %d, the first %s: "
                "kafka_auto_create_per_minute_max is %d: create them with CreateTopics, or raise it",
                request.peer,
                request.client_id,
                len(specs) - granted,
                len(specs),
                specs[granted].name,
                self._here.config.kafka_auto_create_per_minute_max,
            )
        return specs[:granted]

    def _report(self, name: TopicName, reason: InvalidArgument) -> None:
        """Log once why a topic cannot be created: clients retry without end."""
        if len(self._reported) >= REPORTED_MAX:
            self._reported.clear()
        if self._reported.get(name) != str(reason):
            self._reported[name] = str(reason)
            log.warning("topic not created for a Kafka client: %s: %s", name, reason)

    def _missing(self, name: str, failures: dict[str, SeaweedMQError]) -> TopicSpec | None:
        """Return the topic to create for a name, or None if there is none to create.

        None is returned for a name that is taken, that is an internal topic's, or that no new topic can have. The
        error of the last is added to ``failures``.
        """
        if name in INTERNAL_TOPICS:
            return None
        try:
            topic = self._directory.new_name(name)
        except KafkaError as refusal:
            failures[name] = unraised(refusal)
            return None
        if topic in self._directory.view.topics:
            return None
        replicas = default_replicas(self._directory.view)
        return TopicSpec(name=topic, partitions=self._here.config.kafka_partitions_default, replicas=replicas)

    def _named(self, name: str, failure: SeaweedMQError | None, body: Any) -> Any:
        try:
            if failure is not None:
                raise failure
            self._directory.topic_name(name)
            return self._topic(self._directory.find(name), body)
        except SeaweedMQError as error:
            return _no_topic(name, None, code_of(error, place=ErrorScope.METADATA))

    def _with_id(self, topic_id: bytes, body: Any) -> Any:
        try:
            return self._topic(self._directory.find(topic_id), body)
        except KafkaError as refusal:
            return _no_topic(None, topic_id, refusal.kafka_code)

    def _topic(self, topic: PartitionedTopic, body: Any) -> Any:
        return MetadataResponse.MetadataResponseTopic(
            error_code=Code.NONE,
            name=topic.name,
            topic_id=topic.id.hex(),
            is_internal=topic.is_internal,
            partitions=[
                MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                    error_code=partition.error,
                    partition_index=partition.number,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=list(partition.replicas),
                    isr_nodes=list(partition.isr),
                    offline_replicas=list(partition.offline),
                )
                for partition in topic.partitions()
            ],
            authorized_operations=set(TOPIC_OPERATIONS) if body.include_topic_authorized_operations else None,
        )

    async def describe_cluster(self, request: Request) -> Reply:
        """Return the live brokers.

        Raises:
            KafkaError: If the request is for endpoints other than brokers.
            SeaweedMQError: As ``Nodes.ready``.
        """
        if request.body.endpoint_type != BROKERS:
            known = request.body.endpoint_type == CONTROLLERS
            raise KafkaError(
                Code.MISMATCHED_ENDPOINT_TYPE if known else Code.UNSUPPORTED_ENDPOINT_TYPE,
                f"endpoint type {request.body.endpoint_type} is not served here: use {BROKERS}, brokers",
            )
        await self._nodes.ready()
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=Code.NONE,
            error_message=None,
            endpoint_type=BROKERS,
            cluster_id=self._nodes.cluster_id,
            controller_id=self._nodes.controller(),
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=node.id, host=node.host, port=node.port, rack=None, is_fenced=False
                )
                for node in self._nodes.live()
            ],
            authorized_operations=(
                set(CLUSTER_OPERATIONS) if request.body.include_cluster_authorized_operations else None
            ),
        )

    async def describe_topic_partitions(self, request: Request) -> Reply:
        """Return a page of topics by name, of all topics if the request names none; create none.

        Raises:
            KafkaError: If the cursor has a negative partition, or a topic that the request does not name.
            SeaweedMQError: As ``Nodes.ready``.
        """
        await self._nodes.ready()
        body = request.body
        asked = await _sorted_in_turns((topic.name for topic in body.topics), request.turn)
        names = asked or [topic.name for topic in self._directory.topics()]
        first_name, first = (body.cursor.topic_name, body.cursor.partition_index) if body.cursor else ("", 0)
        if first < 0:
            raise KafkaError(Code.INVALID_REQUEST, f"cursor partition {first} is negative: give one from 0")
        if body.cursor and body.topics and first_name not in names:
            raise KafkaError(
                Code.INVALID_REQUEST, f"cursor topic {first_name[:100]} is not requested: add it to the topics"
            )
        left = min(max(1, body.response_partition_limit), PARTITIONS_AT_ONCE_MAX)
        topics, cursor = [], None
        for name in (name for name in names if name >= first_name):
            begin = first if name == first_name else 0
            count = self._count(name)
            if left <= 0 and count:
                cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=begin)
                break
            end = min(count, begin + left)
            topics.append(self._page(name, begin, end))
            await request.turn.pause()
            left -= max(0, end - begin)
            if end < count:
                cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=end)
                break
        return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=cursor)

    def _count(self, name: str) -> int:
        try:
            return self._directory.find(name).count
        except KafkaError:
            return 0

    def _page(self, name: str, begin: int, end: int) -> Any:
        response = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
        try:
            self._directory.topic_name(name)
            topic = self._directory.find(name)
        except KafkaError as refusal:
            return response(
                error_code=refusal.kafka_code,
                name=name,
                topic_id=NO_TOPIC_ID.hex(),
                is_internal=name in INTERNAL_TOPICS,
                partitions=[],
                topic_authorized_operations=_OPERATIONS_BITS,
            )
        return response(
            error_code=Code.NONE,
            name=name,
            topic_id=topic.id.hex(),
            is_internal=topic.is_internal,
            partitions=[
                response.DescribeTopicPartitionsResponsePartition(
                    error_code=partition.error,
                    partition_index=partition.number,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=list(partition.replicas),
                    isr_nodes=list(partition.isr),
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                    offline_replicas=list(partition.offline),
                )
                for partition in map(topic.partition, range(begin, end))
            ],
            topic_authorized_operations=_OPERATIONS_BITS,
        )


async def _sorted_in_turns(names: Iterable[str], turn: Turn) -> list[str]:
    """Sort names without duplicates in steps: sorting 100,000 at once would block the event loop for 50 ms."""
    runs: list[list[str]] = []
    left = iter(names)
    while run := list(islice(left, NAMES_A_STEP)):
        runs.append(sorted(run))
        await turn.pause()
    ordered: list[str] = []
    for name in merge(*runs):
        if not ordered or ordered[-1] != name:
            ordered.append(name)
        await turn.pause()
    return ordered


async def _in_turns(topics: Iterable[Any], turn: Turn) -> list[Any]:
    """Collect the lazily made topics of a reply, with pauses for other tasks."""
    made = []
    for topic in topics:
        made.append(topic)
        await turn.pause()
    return made


def _no_topic(name: str | None, topic_id: bytes | None, code: int) -> Any:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=(topic_id or NO_TOPIC_ID).hex(),
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )
