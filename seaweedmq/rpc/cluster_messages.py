"""Brokers, their loads and the leader's decisions as protobuf messages and back; see ``messages``."""

from seaweedmq.model.broker import BrokerInfo, BrokerLoad, BrokerStatus, ClusterStatus, Decision, SegmentLoad
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.v1 import admin_pb2, types_pb2


def write_load(load: BrokerLoad) -> types_pb2.BrokerLoad:
    return types_pb2.BrokerLoad(
        broker=load.broker,
        cpu_share=load.cpu_share,
        memory_bytes=load.memory_bytes,
        buffered_bytes=load.buffered_bytes,
        segments=[
            types_pb2.SegmentLoad(
                topic=str(s.topic),
                segment=s.segment,
                bytes_per_s=s.bytes_per_s,
                records_per_s=s.records_per_s,
                unflushed_bytes=s.unflushed_bytes,
                long_bytes_per_s=s.long_bytes_per_s,
                long_records_per_s=s.long_records_per_s,
                histogram_records_per_s=s.histogram,
            )
            for s in load.segments
        ],
    )


def read_load(message: types_pb2.BrokerLoad) -> BrokerLoad:
    return BrokerLoad(
        broker=message.broker,
        cpu_share=message.cpu_share,
        memory_bytes=message.memory_bytes,
        buffered_bytes=message.buffered_bytes,
        segments=tuple(
            SegmentLoad(
                topic=TopicName.parse(s.topic),
                segment=s.segment,
                bytes_per_s=s.bytes_per_s,
                records_per_s=s.records_per_s,
                unflushed_bytes=s.unflushed_bytes,
                long_bytes_per_s=s.long_bytes_per_s,
                long_records_per_s=s.long_records_per_s,
                histogram=tuple(s.histogram_records_per_s),
            )
            for s in message.segments
        ),
    )


def write_decision(decision: Decision) -> admin_pb2.Decision:
    return admin_pb2.Decision(
        at_us=decision.at_us,
        topic=str(decision.topic),
        segments=decision.segments,
        kind=decision.kind,
        reason=decision.reason,
    )


def read_decision(message: admin_pb2.Decision) -> Decision:
    return Decision(
        at_us=message.at_us,
        topic=TopicName.parse(message.topic),
        segments=tuple(message.segments),
        kind=message.kind,
        reason=message.reason,
    )


def write_cluster_status(status: ClusterStatus) -> admin_pb2.ClusterStatusReply:
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
                ),
                load=None if b.load is None else write_load(b.load),
                open_segments=b.open_segments,
                is_leader=b.is_leader,
            )
            for b in status.brokers
        ],
        topics=status.topics,
        open_segments=status.open_segments,
        decisions=[write_decision(decision) for decision in status.decisions],
    )


def read_cluster_status(message: admin_pb2.ClusterStatusReply) -> ClusterStatus:
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
                ),
                load=read_load(b.load) if b.HasField("load") else None,
                open_segments=b.open_segments,
                is_leader=b.is_leader,
            )
            for b in message.brokers
        ),
        topics=message.topics,
        open_segments=message.open_segments,
        decisions=tuple(read_decision(decision) for decision in message.decisions),
    )
