"""Calls of the Admin service on the cluster, segments and groups, with their messages.

Module ``topics`` has the calls on topics.
"""

from typing import Any

from seaweedmq.model.broker import ETCD_OK, BrokerInfo, BrokerStatus, ClusterStatus, Decision
from seaweedmq.model.messages.calls import (
    DeleteGroup,
    DescribeGroup,
    DrainBroker,
    GetClusterStatus,
    ListGroups,
    MergeSegments,
    MoveSegment,
    Rebalance,
    ResetGroup,
    SealSegment,
    SplitSegment,
)
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages import groups, types
from seaweedmq.rpc.messages.unary import Unary, nothing
from seaweedmq.rpc.transport import ADMIN_SERVICE
from seaweedmq.rpc.v1 import admin_pb2, groups_pb2, types_pb2

PACED_TIMEOUT_S = 120.0
"""Deadline in seconds of a drain or rebalance: the leader moves many segments at a limited pace."""
CHANGE_TIMEOUT_S = 30.0
"""Deadline in seconds of a segment change: sealing a segment of a lost broker waits for the end of its lease."""


def _write_decision(decision: Decision) -> admin_pb2.Decision:
    return admin_pb2.Decision(
        at_us=decision.at_us,
        topic=str(decision.topic),
        segments=decision.segments,
        kind=decision.kind,
        reason=decision.reason,
    )


def _read_decision(message: admin_pb2.Decision) -> Decision:
    return Decision(
        at_us=message.at_us,
        topic=TopicName.parse(message.topic),
        segments=tuple(message.segments),
        kind=message.kind,
        reason=message.reason,
    )


def _write_cluster_status(status: ClusterStatus) -> admin_pb2.ClusterStatusReply:
    return admin_pb2.ClusterStatusReply(
        leader=status.leader,
        brokers=[
            admin_pb2.BrokerStatus(
                info=types_pb2.BrokerInfo(
                    id=b.info.id,
                    address=b.info.address,
                    started_us=b.info.started_us,
                    pid=b.info.pid,
                    version=b.info.version,
                    draining=b.info.draining,
                    kafka_address=b.info.kafka_address,
                ),
                load=None if b.load is None else types.write_load(b.load),
                open_segments=b.open_segments,
                is_leader=b.is_leader,
                etcd=types.write_etcd_access(b.etcd),
            )
            for b in status.brokers
        ],
        topics=status.topics,
        open_segments=status.open_segments,
        under_replicated_segments=status.under_replicated_segments,
        unrecoverable_segments=status.unrecoverable_segments,
        decisions=[_write_decision(decision) for decision in status.decisions],
        etcd=status.etcd,
    )


def _read_cluster_status(message: admin_pb2.ClusterStatusReply) -> ClusterStatus:
    return ClusterStatus(
        leader=message.leader,
        brokers=tuple(
            BrokerStatus(
                info=BrokerInfo(
                    id=b.info.id,
                    address=b.info.address,
                    started_us=b.info.started_us,
                    pid=b.info.pid,
                    version=b.info.version,
                    draining=b.info.draining,
                    kafka_address=b.info.kafka_address,
                ),
                load=types.read_load(b.load) if b.HasField("load") else None,
                open_segments=b.open_segments,
                is_leader=b.is_leader,
                etcd=types.read_etcd_access(b.etcd) if b.HasField("etcd") else None,
            )
            for b in message.brokers
        ),
        topics=message.topics,
        open_segments=message.open_segments,
        under_replicated_segments=message.under_replicated_segments,
        unrecoverable_segments=message.unrecoverable_segments,
        decisions=tuple(_read_decision(decision) for decision in message.decisions),
        etcd=message.etcd or ETCD_OK,
    )


CALLS: tuple[Unary[Any, Any], ...] = (
    Unary(
        call=GetClusterStatus,
        service=ADMIN_SERVICE,
        name="ClusterStatus",
        request=admin_pb2.ClusterStatusRequest,
        reply=admin_pb2.ClusterStatusReply,
        write_request=lambda _: admin_pb2.ClusterStatusRequest(),
        read_request=lambda _: GetClusterStatus(),
        write_reply=_write_cluster_status,
        read_reply=_read_cluster_status,
    ),
    Unary(
        call=DrainBroker,
        service=ADMIN_SERVICE,
        name="DrainBroker",
        request=admin_pb2.DrainBrokerRequest,
        reply=admin_pb2.DrainBrokerReply,
        write_request=lambda c: admin_pb2.DrainBrokerRequest(broker=c.broker),
        read_request=lambda m: DrainBroker(m.broker),
        write_reply=lambda _: admin_pb2.DrainBrokerReply(),
        read_reply=nothing,
        timeout_s=PACED_TIMEOUT_S,
    ),
    Unary(
        call=SplitSegment,
        service=ADMIN_SERVICE,
        name="SplitSegment",
        request=admin_pb2.SplitSegmentRequest,
        reply=types_pb2.TopicDescription,
        write_request=lambda c: admin_pb2.SplitSegmentRequest(topic=str(c.name), segment=c.segment, at=c.at),
        read_request=lambda m: SplitSegment(TopicName.parse(m.topic), m.segment, m.at if m.HasField("at") else None),
        write_reply=types.write_description,
        read_reply=types.read_description,
        timeout_s=CHANGE_TIMEOUT_S,
    ),
    Unary(
        call=MergeSegments,
        service=ADMIN_SERVICE,
        name="MergeSegments",
        request=admin_pb2.MergeSegmentsRequest,
        reply=types_pb2.TopicDescription,
        write_request=lambda c: admin_pb2.MergeSegmentsRequest(topic=str(c.name), first=c.first, second=c.second),
        read_request=lambda m: MergeSegments(TopicName.parse(m.topic), m.first, m.second),
        write_reply=types.write_description,
        read_reply=types.read_description,
        timeout_s=CHANGE_TIMEOUT_S,
    ),
    Unary(
        call=SealSegment,
        service=ADMIN_SERVICE,
        name="SealSegment",
        request=admin_pb2.SealSegmentRequest,
        reply=types_pb2.TopicDescription,
        write_request=lambda c: admin_pb2.SealSegmentRequest(topic=str(c.name), segment=c.segment),
        read_request=lambda m: SealSegment(TopicName.parse(m.topic), m.segment),
        write_reply=types.write_description,
        read_reply=types.read_description,
        timeout_s=CHANGE_TIMEOUT_S,
    ),
    Unary(
        call=MoveSegment,
        service=ADMIN_SERVICE,
        name="MoveSegment",
        request=admin_pb2.MoveSegmentRequest,
        reply=types_pb2.TopicDescription,
        write_request=lambda c: admin_pb2.MoveSegmentRequest(topic=str(c.name), segment=c.segment, brokers=c.brokers),
        read_request=lambda m: MoveSegment(TopicName.parse(m.topic), m.segment, tuple(m.brokers)),
        write_reply=types.write_description,
        read_reply=types.read_description,
        timeout_s=CHANGE_TIMEOUT_S,
    ),
    Unary(
        call=Rebalance,
        service=ADMIN_SERVICE,
        name="Rebalance",
        request=admin_pb2.RebalanceRequest,
        reply=admin_pb2.RebalanceReply,
        write_request=lambda _: admin_pb2.RebalanceRequest(),
        read_request=lambda _: Rebalance(),
        write_reply=lambda decisions: admin_pb2.RebalanceReply(decisions=[_write_decision(d) for d in decisions]),
        read_reply=lambda m: tuple(_read_decision(decision) for decision in m.decisions),
        timeout_s=PACED_TIMEOUT_S,
    ),
    Unary(
        call=ListGroups,
        service=ADMIN_SERVICE,
        name="ListGroups",
        request=admin_pb2.ListGroupsRequest,
        reply=admin_pb2.ListGroupsReply,
        write_request=lambda _: admin_pb2.ListGroupsRequest(),
        read_request=lambda _: ListGroups(),
        write_reply=lambda found: admin_pb2.ListGroupsReply(groups=[groups.write_summary(g) for g in found]),
        read_reply=lambda m: tuple(groups.read_summary(group) for group in m.groups),
    ),
    Unary(
        call=DescribeGroup,
        service=ADMIN_SERVICE,
        name="DescribeGroup",
        request=admin_pb2.DescribeGroupRequest,
        reply=groups_pb2.GroupDescription,
        write_request=lambda c: admin_pb2.DescribeGroupRequest(group=c.group),
        read_request=lambda m: DescribeGroup(m.group),
        write_reply=groups.write_description,
        read_reply=groups.read_description,
    ),
    Unary(
        call=ResetGroup,
        service=ADMIN_SERVICE,
        name="ResetGroup",
        request=admin_pb2.ResetGroupRequest,
        reply=groups_pb2.GroupDescription,
        write_request=lambda c: admin_pb2.ResetGroupRequest(
            group=c.group, topic=str(c.name), start=types.write_start(c.start), force=c.force
        ),
        read_request=lambda m: ResetGroup(m.group, TopicName.parse(m.topic), types.read_start(m.start), m.force),
        write_reply=groups.write_description,
        read_reply=groups.read_description,
    ),
    Unary(
        call=DeleteGroup,
        service=ADMIN_SERVICE,
        name="DeleteGroup",
        request=admin_pb2.DeleteGroupRequest,
        reply=admin_pb2.DeleteGroupReply,
        write_request=lambda c: admin_pb2.DeleteGroupRequest(group=c.group, force=c.force),
        read_request=lambda m: DeleteGroup(m.group, m.force),
        write_reply=lambda _: admin_pb2.DeleteGroupReply(),
        read_reply=nothing,
    ),
)
