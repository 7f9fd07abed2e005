"""The unary calls, each described once for both sides. More of them in ``segments``, ``groups`` and ``replication``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.description import SegmentStats, TopicDescription, Which
from seaweedmq.model.topic import Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.rpc import cluster_messages, messages
from seaweedmq.rpc.transport import ADMIN_SERVICE, CLUSTER_SERVICE
from seaweedmq.rpc.v1 import admin_pb2, cluster_pb2, types_pb2

Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Generic[Q, R]):
    """One unary method: its request is a ``Q``, its reply an ``R``; on the wire both are protobuf messages."""

    service: str
    name: str
    request: type[Message]
    reply: type[Message]
    write_request: Callable[[Q], Message]
    read_request: Callable[[Any], Q]
    write_reply: Callable[[R], Message]
    read_reply: Callable[[Any], R]

    @property
    def path(self) -> str:
        """As in the HTTP/2 header."""
        return f"/{self.service}/{self.name}"

    def encode_request(self, value: Q) -> bytes:
        """Raises InvalidArgument if a number is out of the protocol's range."""
        try:
            return self.write_request(value).SerializeToString()
        except ValueError as error:
            raise InvalidArgument(f"{self.name} refused before it was sent: {error}; correct the value") from error

    def decode_request(self, data: bytes) -> Q:
        """Raises InvalidArgument or Unsupported if the bytes are no such request."""
        return self.read_request(messages.parse(self.request, data))

    def encode_reply(self, value: R) -> bytes:
        return self.write_reply(value).SerializeToString()

    def decode_reply(self, data: bytes) -> R:
        return self.read_reply(messages.parse(self.reply, data))


def _read_name(message: Any) -> TopicName:
    return TopicName.parse(message.name)


def _read_name_and_uid(message: Any) -> tuple[TopicName, int]:
    return TopicName.parse(message.name), message.topic_uid


def _read_stats_all(message: Any) -> tuple[SegmentStats, ...]:
    return tuple(messages.read_stats(stats) for stats in message.segments)


def _read_nothing(message: Message) -> None:
    return None


CREATE_TOPIC: Unary[TopicSpec, TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="CreateTopic",
    request=admin_pb2.CreateTopicRequest,
    reply=types_pb2.TopicDescription,
    write_request=messages.write_spec,
    read_request=messages.read_spec,
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
ALTER_TOPIC: Unary[tuple[TopicName, TopicChange, int], TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="AlterTopic",
    request=admin_pb2.AlterTopicRequest,
    reply=types_pb2.TopicDescription,
    write_request=messages.write_change,
    read_request=messages.read_change,
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
DELETE_TOPIC: Unary[tuple[TopicName, int], None] = Unary(
    service=ADMIN_SERVICE,
    name="DeleteTopic",
    request=admin_pb2.DeleteTopicRequest,
    reply=admin_pb2.DeleteTopicReply,
    write_request=lambda request: admin_pb2.DeleteTopicRequest(name=str(request[0]), topic_uid=request[1]),
    read_request=_read_name_and_uid,
    write_reply=lambda _: admin_pb2.DeleteTopicReply(),
    read_reply=_read_nothing,
)
LIST_TOPICS: Unary[None, tuple[Topic, ...]] = Unary(
    service=ADMIN_SERVICE,
    name="ListTopics",
    request=admin_pb2.ListTopicsRequest,
    reply=admin_pb2.ListTopicsReply,
    write_request=lambda _: admin_pb2.ListTopicsRequest(),
    read_request=_read_nothing,
    write_reply=lambda topics: admin_pb2.ListTopicsReply(topics=[messages.write_topic(topic) for topic in topics]),
    read_reply=lambda message: tuple(messages.read_topic(topic) for topic in message.topics),
)
DESCRIBE_TOPIC: Unary[tuple[TopicName, Which, int], TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="DescribeTopic",
    request=admin_pb2.DescribeTopicRequest,
    reply=types_pb2.TopicDescription,
    write_request=messages.write_which,
    read_request=messages.read_which,
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
ADOPT_SCHEMA: Unary[tuple[TopicName, bytes, int], TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="AdoptSchema",
    request=admin_pb2.AdoptSchemaRequest,
    reply=types_pb2.TopicDescription,
    write_request=lambda request: admin_pb2.AdoptSchemaRequest(
        name=str(request[0]), schema=request[1], topic_uid=request[2]
    ),
    read_request=lambda message: (TopicName.parse(message.name), message.schema, message.topic_uid),
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
TOPIC_STATS: Unary[TopicName, tuple[SegmentStats, ...]] = Unary(
    service=ADMIN_SERVICE,
    name="TopicStats",
    request=admin_pb2.TopicStatsRequest,
    reply=admin_pb2.TopicStatsReply,
    write_request=lambda name: admin_pb2.TopicStatsRequest(name=str(name)),
    read_request=_read_name,
    write_reply=lambda stats: admin_pb2.TopicStatsReply(segments=[messages.write_stats(s) for s in stats]),
    read_reply=_read_stats_all,
)
CLUSTER_STATUS: Unary[None, ClusterStatus] = Unary(
    service=ADMIN_SERVICE,
    name="ClusterStatus",
    request=admin_pb2.ClusterStatusRequest,
    reply=admin_pb2.ClusterStatusReply,
    write_request=lambda _: admin_pb2.ClusterStatusRequest(),
    read_request=_read_nothing,
    write_reply=cluster_messages.write_cluster_status,
    read_reply=cluster_messages.read_cluster_status,
)
DRAIN_BROKER: Unary[str, None] = Unary(
    service=ADMIN_SERVICE,
    name="DrainBroker",
    request=admin_pb2.DrainBrokerRequest,
    reply=admin_pb2.DrainBrokerReply,
    write_request=lambda broker: admin_pb2.DrainBrokerRequest(broker=broker),
    read_request=lambda message: str(message.broker),
    write_reply=lambda _: admin_pb2.DrainBrokerReply(),
    read_reply=_read_nothing,
)
LOG_ENDS: Unary[tuple[TopicName, int, int], Mapping[int, int]] = Unary(
    service=CLUSTER_SERVICE,
    name="LogEnds",
    request=cluster_pb2.LogEndsRequest,
    reply=cluster_pb2.LogEndsReply,
    write_request=lambda r: cluster_pb2.LogEndsRequest(topic=str(r[0]), uid=r[1], revision=r[2]),
    read_request=lambda m: (TopicName.parse(m.topic), m.uid, m.revision),
    write_reply=lambda ends: cluster_pb2.LogEndsReply(end_offsets=ends),
    read_reply=lambda m: dict(m.end_offsets),
)
LOCAL_STATS: Unary[tuple[TopicName, int], tuple[SegmentStats, ...]] = Unary(
    service=CLUSTER_SERVICE,
    name="LocalStats",
    request=cluster_pb2.LocalStatsRequest,
    reply=cluster_pb2.LocalStatsReply,
    write_request=lambda request: cluster_pb2.LocalStatsRequest(name=str(request[0]), topic_uid=request[1]),
    read_request=_read_name_and_uid,
    write_reply=lambda stats: cluster_pb2.LocalStatsReply(segments=[messages.write_stats(s) for s in stats]),
    read_reply=_read_stats_all,
)
