"""Changing segments by hand, on the wire."""

from seaweedmq.model.broker import Decision
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc import cluster_messages, messages
from seaweedmq.rpc.methods import Unary
from seaweedmq.rpc.transport import ADMIN_SERVICE
from seaweedmq.rpc.v1 import admin_pb2, types_pb2

SPLIT_SEGMENT: Unary[tuple[TopicName, int, int | None], TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="SplitSegment",
    request=admin_pb2.SplitSegmentRequest,
    reply=types_pb2.TopicDescription,
    write_request=lambda r: admin_pb2.SplitSegmentRequest(topic=str(r[0]), segment=r[1], at=r[2]),
    read_request=lambda m: (TopicName.parse(m.topic), m.segment, m.at if m.HasField("at") else None),
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
MERGE_SEGMENTS: Unary[tuple[TopicName, int, int], TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="MergeSegments",
    request=admin_pb2.MergeSegmentsRequest,
    reply=types_pb2.TopicDescription,
    write_request=lambda r: admin_pb2.MergeSegmentsRequest(topic=str(r[0]), first=r[1], second=r[2]),
    read_request=lambda m: (TopicName.parse(m.topic), m.first, m.second),
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
SEAL_SEGMENT: Unary[tuple[TopicName, int], TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="SealSegment",
    request=admin_pb2.SealSegmentRequest,
    reply=types_pb2.TopicDescription,
    write_request=lambda r: admin_pb2.SealSegmentRequest(topic=str(r[0]), segment=r[1]),
    read_request=lambda m: (TopicName.parse(m.topic), m.segment),
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
MOVE_SEGMENT: Unary[tuple[TopicName, int, tuple[str, ...]], TopicDescription] = Unary(
    service=ADMIN_SERVICE,
    name="MoveSegment",
    request=admin_pb2.MoveSegmentRequest,
    reply=types_pb2.TopicDescription,
    write_request=lambda r: admin_pb2.MoveSegmentRequest(topic=str(r[0]), segment=r[1], brokers=r[2]),
    read_request=lambda m: (TopicName.parse(m.topic), m.segment, tuple(m.brokers)),
    write_reply=messages.write_description,
    read_reply=messages.read_description,
)
REBALANCE: Unary[None, tuple[Decision, ...]] = Unary(
    service=ADMIN_SERVICE,
    name="Rebalance",
    request=admin_pb2.RebalanceRequest,
    reply=admin_pb2.RebalanceReply,
    write_request=lambda _: admin_pb2.RebalanceRequest(),
    read_request=lambda _: None,
    write_reply=lambda decisions: admin_pb2.RebalanceReply(
        decisions=[cluster_messages.write_decision(decision) for decision in decisions]
    ),
    read_reply=lambda m: tuple(cluster_messages.read_decision(decision) for decision in m.decisions),
)
