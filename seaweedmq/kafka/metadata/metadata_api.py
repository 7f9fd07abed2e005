"""Handlers of Metadata, DescribeCluster and DescribeTopicPartitions, which tell clients the brokers and leaders."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any

from seaweedmq.broker.ports import ClusterAccess
from seaweedmq.core.kafka.topic_ids import NO_TOPIC_ID
from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.metadata.nodes import NO_NODE, Nodes
from seaweedmq.kafka.metadata.reachability import is_reachable
from seaweedmq.kafka.metadata.topic_creation import TopicCreator
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic, PartitionInfo, TopicDirectory
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import (
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
    HandlerGroup,
    MetadataResponse,
    Reply,
    Request,
)
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.group_admin import INTERNAL_TOPICS
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.turns import Turn

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
NAMES_A_STEP = 1_000
"""Names that are sorted in one step of the event loop: about 0.3 ms."""


class MetadataHandlers(HandlerGroup):
    """Handlers of Metadata, DescribeCluster and DescribeTopicPartitions."""

    def __init__(self, cluster: ClusterAccess, directory: TopicDirectory, creator: TopicCreator) -> None:
        self._cluster = cluster
        self._directory = directory
        self._nodes: Nodes = directory.nodes
        self._creator = creator

    async def metadata(self, request: Request) -> Reply:
        """Return the brokers and the requested topics, or all; create unknown topics if the request allows it.

        Raises as ``Nodes.ready``, and KafkaError if a topic is named by its id before version ``IDS_FROM``, or not at
        all.
        """
        body = request.body
        await self._nodes.ready()
        if body.topics is None or (request.version == ALL_WHEN_EMPTY and not body.topics):
            topics = await _in_turns((self._topic(topic, body) for topic in self._directory.topics()), request.turn)
        else:
            topics = await self._asked_for(request, body)
        wants_operations = request.version <= CLUSTER_OPERATIONS_UP_TO and body.include_cluster_authorized_operations
        return MetadataResponse(
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
        failures = await self._creator.create_missing(names, request) if body.allow_auto_topic_creation else {}
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

        async def check(node: int) -> None:
            broker = self._nodes.broker_of(node)
            topic = self._directory.view.topics.get(TopicName(self._directory.namespace, led[node][0][0]))
            if broker is not None and topic is not None and not await is_reachable(self._cluster, broker, topic):
                for _, partition in led[node]:
                    partition.leader_id, partition.error_code = NO_NODE, Code.LEADER_NOT_AVAILABLE

        await asyncio.gather(*map(check, led))

    def _named(self, name: str, failure: SeaweedMQError | None, body: Any) -> Any:
        try:
            if failure is not None:
                raise failure
            self._directory.topic_name(name)
            return self._topic(self._directory.find(name), body)
        except SeaweedMQError as error:
            return _no_topic(name, None, code_of(error, scope=ErrorScope.METADATA))

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
                MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(**_fields_of(partition))
                for partition in topic.partitions()
            ],
            authorized_operations=set(TOPIC_OPERATIONS) if body.include_topic_authorized_operations else None,
        )

    async def describe_cluster(self, request: Request) -> Reply:
        """Return the live brokers, raising as ``Nodes.ready``, or KafkaError for endpoints other than brokers."""
        if request.body.endpoint_type != BROKERS:
            known = request.body.endpoint_type == CONTROLLERS
            raise KafkaError(
                Code.MISMATCHED_ENDPOINT_TYPE if known else Code.UNSUPPORTED_ENDPOINT_TYPE,
                f"endpoint type {request.body.endpoint_type} is not served here: use {BROKERS}, brokers",
            )
        await self._nodes.ready()
        return DescribeClusterResponse(
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

        Raises as ``Nodes.ready``, and KafkaError if the cursor has a negative partition or a topic not in the request.
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
        return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)

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
                    **_fields_of(partition), eligible_leader_replicas=[], last_known_elr=[]
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


def _fields_of(partition: PartitionInfo) -> dict[str, Any]:
    return {
        "error_code": partition.error,
        "partition_index": partition.number,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "offline_replicas": list(partition.offline),
    }


def _no_topic(name: str | None, topic_id: bytes | None, code: int) -> Any:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=(topic_id or NO_TOPIC_ID).hex(),
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )
