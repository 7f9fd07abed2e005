"""Kafka's messages: a decoded request, and the classes of all requests and replies.

The classes are kafka-python's, made from Apache Kafka's own schemas, and from those in ``schemas``; attributes are
the schemas' fields in snake_case. Handlers import them from here. A reply must be given all its lists: the default is a
list that all messages share.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias
from uuid import UUID as UUID  # noqa: TID251 - the type, not a source of randomness

from kafka.protocol.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from seaweedmq.kafka.wire.schemas import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from seaweedmq.model.messages.call_context import CallContext
from seaweedmq.runtime.signal import Signal
from seaweedmq.runtime.turns import Turn, endless_turn


class API(IntEnum):
    """The supported APIs, by their keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


PATIENT = frozenset({API.FETCH, API.PRODUCE})
"""APIs of which a client may have many requests in flight: a later one does not make the broker answer the first early.
Requests of other APIs are urgent: the client waits for the reply before it continues."""


def not_pressed(now: float, held_bytes: int) -> bool:
    """Return False without effect: the connection stays open."""
    return False


class Line:
    """The line of requests of one connection, in which each reply holds up those behind it."""

    __slots__ = ("grown", "press", "urgent")

    def __init__(self) -> None:
        self.urgent = 0
        """Number of received requests that are not of ``PATIENT`` APIs."""
        self.grown = Signal()
        """Signal that fires when ``urgent`` grows."""
        self.press: Callable[[float, int], bool] = not_pressed
        """Callback that closes the connection if its client reads too slowly, and returns whether it did. Its arguments
        are the time, and the bytes of Fetch replies for which others wait."""

    def join(self, api: int) -> None:
        """Count a received request."""
        if api not in PATIENT:
            self.answer_waiting()

    def answer_waiting(self) -> None:
        """Have requests that wait for events answered with the records available."""
        self.urgent += 1
        self.grown.fire()


def nothing() -> None:
    """Return without effect."""


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request of one connection."""

    api: int
    """The API key."""
    version: int
    correlation_id: int
    body: Any
    """The message, one of ``REQUESTS``; None for ApiVersions in an unknown version."""
    context: CallContext
    """The client, as for all requests of the connection with the same client id."""
    size_bytes: int
    connection: int
    """Id of the connection, unique in the process."""
    line: Line = field(default_factory=Line)
    """The requests of the connection."""
    ahead: int = 0
    """Number of urgent requests received before this one."""
    elements: int = 0
    """Number of elements of all arrays together."""
    settle: Callable[[], None] = nothing
    """Callback that releases memory once the request waits for others and its contents are stored elsewhere."""
    turn: Turn = field(default_factory=endless_turn)
    """The time that the handler has until it pauses for other tasks."""

    @property
    def client_host(self) -> str:
        """Host of the client as Kafka's coordinators show it: ``/127.0.0.1``."""
        return "/" + self.context.peer.rpartition(":")[0]

    @property
    def holds_up(self) -> bool:
        """Whether the client waits for an urgent reply that cannot be sent before the reply to this request."""
        return self.line.urgent > self.ahead


Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class EncodedReply:
    """The encoded body of a reply, in buffers that are sent one after another."""

    buffers: Sequence[Buffer]
    sent: Callable[[], None] | None = None
    """Callback for the time when the socket has taken the buffers, or the connection is closed; called once."""


Reply: TypeAlias = Any
"""One of ``REPLIES`` in any version (the encoder sets it), an ``EncodedReply``, or None for no reply."""
Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]
"""A handler of the requests of one API. That of ``API.PRODUCE`` returns an awaitable of the reply once all batches are
appended: see ``kafka.dispatch``."""

_MESSAGES: Mapping[int, tuple[Any, Any]] = {
    API.PRODUCE: (ProduceRequest, ProduceResponse),
    API.FETCH: (FetchRequest, FetchResponse),
    API.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    API.METADATA: (MetadataRequest, MetadataResponse),
    API.OFFSET_COMMIT: (OffsetCommitRequest, OffsetCommitResponse),
    API.OFFSET_FETCH: (OffsetFetchRequest, OffsetFetchResponse),
    API.FIND_COORDINATOR: (FindCoordinatorRequest, FindCoordinatorResponse),
    API.JOIN_GROUP: (JoinGroupRequest, JoinGroupResponse),
    API.HEARTBEAT: (HeartbeatRequest, HeartbeatResponse),
    API.LEAVE_GROUP: (LeaveGroupRequest, LeaveGroupResponse),
    API.SYNC_GROUP: (SyncGroupRequest, SyncGroupResponse),
    API.DESCRIBE_GROUPS: (DescribeGroupsRequest, DescribeGroupsResponse),
    API.LIST_GROUPS: (ListGroupsRequest, ListGroupsResponse),
    API.API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse),
    API.CREATE_TOPICS: (CreateTopicsRequest, CreateTopicsResponse),
    API.DELETE_TOPICS: (DeleteTopicsRequest, DeleteTopicsResponse),
    API.DELETE_RECORDS: (DeleteRecordsRequest, DeleteRecordsResponse),
    API.INIT_PRODUCER_ID: (InitProducerIdRequest, InitProducerIdResponse),
    API.OFFSET_FOR_LEADER_EPOCH: (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    API.DESCRIBE_ACLS: (DescribeAclsRequest, DescribeAclsResponse),
    API.CREATE_ACLS: (CreateAclsRequest, CreateAclsResponse),
    API.DELETE_ACLS: (DeleteAclsRequest, DeleteAclsResponse),
    API.DESCRIBE_CONFIGS: (DescribeConfigsRequest, DescribeConfigsResponse),
    API.ALTER_CONFIGS: (AlterConfigsRequest, AlterConfigsResponse),
    API.DESCRIBE_LOG_DIRS: (DescribeLogDirsRequest, DescribeLogDirsResponse),
    API.CREATE_PARTITIONS: (CreatePartitionsRequest, CreatePartitionsResponse),
    API.DELETE_GROUPS: (DeleteGroupsRequest, DeleteGroupsResponse),
    API.ELECT_LEADERS: (ElectLeadersRequest, ElectLeadersResponse),
    API.INCREMENTAL_ALTER_CONFIGS: (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    API.LIST_PARTITION_REASSIGNMENTS: (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    API.OFFSET_DELETE: (OffsetDeleteRequest, OffsetDeleteResponse),
    API.DESCRIBE_CLIENT_QUOTAS: (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    API.DESCRIBE_CLUSTER: (DescribeClusterRequest, DescribeClusterResponse),
    API.DESCRIBE_PRODUCERS: (DescribeProducersRequest, DescribeProducersResponse),
    API.CONSUMER_GROUP_HEARTBEAT: (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    API.LIST_CONFIG_RESOURCES: (ListConfigResourcesRequest, ListConfigResourcesResponse),
    API.DESCRIBE_TOPIC_PARTITIONS: (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
}
REQUESTS: Mapping[int, Any] = {api: request for api, (request, _) in _MESSAGES.items()}
REPLIES: Mapping[int, Any] = {api: reply for api, (_, reply) in _MESSAGES.items()}
