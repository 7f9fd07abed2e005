"""Fields of topics, segments, brokers and groups: one row each, the same for tables and JSON."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from seaweedmq.core.kafka import visibility
from seaweedmq.core.lineage.problems import describe_problems
from seaweedmq.core.lineage.replication import describe_under_replicated
from seaweedmq.model.broker import ETCD_OK, BrokerStatus, ClusterStatus, Decision, DecisionKind
from seaweedmq.model.description import SegmentStats, TopicDescription
from seaweedmq.model.kafka.group_admin import GroupKind, KafkaGroupDescription, KafkaGroupSummary
from seaweedmq.model.messages.groups import GroupDescription, GroupSummary, GroupTopic
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic

Fields = dict[str, Any]


def iso_time(at_us: int) -> str:
    """Format microseconds since 1970 as ISO 8601, to the second."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")


def topic_fields(topic: Topic) -> Fields:
    """Return the fields of a topic's settings."""
    return {
        "topic": str(topic.name),
        "durability": topic.durability.value,
        "replicas": topic.replicas,
        "scaling": topic.scaling.value,
        "partitions": topic.partitions,
        "columns": None if topic.schema is None else _columns(topic.schema),
        "retention_s": topic.retention_s,
        "retention_bytes": topic.retention_bytes,
        "target_bytes_per_s": topic.target_bytes_per_s,
        "target_records_per_s": topic.target_records_per_s,
        "configs": dict(topic.configs),
        "created": iso_time(topic.created_us),
    }


def _columns(schema: bytes) -> list[str]:
    # Lazy import, as below: Arrow takes long to load, and most topics have no columns.
    from seaweedmq.codec.topic_schema import schema_from_bytes

    return [f"{field.name}: {field.type}" for field in schema_from_bytes(schema)]


def _left_out_of_delta(schema: bytes) -> list[str]:
    from seaweedmq.codec.tables.delta_schema import left_out
    from seaweedmq.codec.topic_schema import schema_from_bytes

    return [f"{name} ({why})" for name, why in left_out(schema_from_bytes(schema)).items()]


def segment_fields(segment: Segment, addresses: Mapping[str, str], stats: SegmentStats | None) -> Fields:
    """Return the fields of a segment; ``stats`` are those of open segments."""
    return {
        "id": segment.id,
        "slots": [segment.slots.lo, segment.slots.hi],
        "state": segment.state.value,
        "epoch": segment.epoch,
        "brokers": [addresses.get(broker, broker) for broker in segment.replicas],
        "predecessors": segment.predecessors,
        "successors": segment.successors,
        "start_offset": stats.start_offset if stats else segment.start_offset,
        "end_offset": stats.high_watermark if stats else segment.end_offset,
        "flushed_offset": stats.flushed_offset if stats else segment.end_offset,
        "bytes_per_s": stats.bytes_per_s if stats else 0.0,
        "records_per_s": stats.records_per_s if stats else 0.0,
        "problem": segment.problem or None,
    }


def segments_fields(found: TopicDescription, stats: Iterable[SegmentStats] = ()) -> list[Fields]:
    """Return the fields of all segments, by id."""
    by_segment = {s.segment: s for s in stats}
    return [segment_fields(s, found.addresses, by_segment.get(s.id)) for s in found.segments]


def holds(found: TopicDescription, decisions: Iterable[Decision]) -> list[Decision]:
    """Return the last decision about each open segment of the topic, if it is that the segment cannot change."""
    last = {d.segments: d for d in decisions if d.topic == found.topic.name}
    still_open = {s.id for s in found.segments if s.is_open}
    return [d for d in last.values() if d.kind == DecisionKind.HOLD and still_open.issuperset(d.segments)]


def topic_status(found: TopicDescription, decisions: Iterable[Decision]) -> str:
    """Return ``ok``, or the topic's findings: segments that are unrecoverable, lack replicas, or cannot change."""
    findings = [
        describe_problems(found.segments),
        describe_under_replicated(found.segments, found.topic.replicas, found.addresses),
        *(decision.reason for decision in holds(found, decisions)),
    ]
    return "; ".join(filter(None, findings)) or "ok"


def description_fields(
    found: TopicDescription, stats: Iterable[SegmentStats] = (), decisions: Iterable[Decision] = ()
) -> Fields:
    """Return the fields of a topic and of all its segments."""
    schema = found.topic.schema
    return topic_fields(found.topic) | {
        "left_out_of_delta": (_left_out_of_delta(schema) or None) if schema is not None else None,
        "kafka": visibility.seen(found.topic, found.segments),
        "status": topic_status(found, decisions),
        "segments": segments_fields(found, stats),
    }


def broker_fields(broker: BrokerStatus) -> Fields:
    """Return the fields of a broker; those of its load are None before its first report."""
    info, load = broker.info, broker.load
    return {
        "broker": info.id,
        "address": info.address,
        "kafka": info.kafka_address or None,
        "leader": broker.is_leader,
        "draining": info.draining,
        "segments": broker.open_segments,
        "cpu_share": load.cpu_share if load else None,
        "memory_mib": load.memory_bytes / (1 << 20) if load else None,
        "buffered_mib": load.buffered_bytes / (1 << 20) if load else None,
        "bytes_per_s": sum((s.bytes_per_s for s in load.segments), 0.0) if load else None,
        "records_per_s": sum((s.records_per_s for s in load.segments), 0.0) if load else None,
        "lease_s": broker.etcd.lease_s if broker.etcd else None,
        "etcd": (broker.etcd.trouble or ETCD_OK) if broker.etcd else None,
        "pid": info.pid,
        "started": iso_time(info.started_us),
        "version": info.version,
    }


def decision_fields(decision: Decision) -> Fields:
    """Return the fields of a leader's decision."""
    return {
        "at": iso_time(decision.at_us),
        "kind": decision.kind,
        "topic": str(decision.topic),
        "segments": decision.segments,
        "reason": decision.reason,
    }


def cluster_fields(status: ClusterStatus) -> Fields:
    """Return the fields of the cluster, its brokers and the leader's last decisions."""
    return {
        "leader": status.leader or None,
        "etcd": status.etcd,
        "topics": status.topics,
        "open_segments": status.open_segments,
        "under_replicated_segments": status.under_replicated_segments,
        "unrecoverable_segments": status.unrecoverable_segments,
        "brokers": [broker_fields(broker) for broker in status.brokers],
        "decisions": [decision_fields(decision) for decision in status.decisions],
    }


def start_text(start: Start) -> str:
    """Format a start as users write it."""
    match start.kind:
        case StartKind.OFFSET:
            return f"offset:{start.value}"
        case StartKind.TIME:
            return f"time:{datetime.fromtimestamp(start.value / 1e6, UTC).isoformat()}"
        case _:
            return start.kind.value


def summary_fields(summary: GroupSummary) -> Fields:
    """Return the fields of a group of subscribers, for a list."""
    return {
        "group": summary.group,
        "kind": GroupKind.NATIVE.value,
        "topic": str(summary.topic),
        "members": summary.members,
        "generation": summary.generation,
        "state": None,
    }


def kafka_summary_fields(summary: KafkaGroupSummary) -> Fields:
    """Return the fields of a Kafka group, for a list."""
    return {
        "group": summary.group,
        "kind": GroupKind.KAFKA.value,
        "topic": None,
        "members": summary.members,
        "generation": None,
        "state": summary.state,
    }


def kafka_group_fields(group: KafkaGroupDescription) -> Fields:
    """Return the fields of a Kafka group with its members and offsets."""
    lags = [offset.lag_records for offset in group.offsets]
    return {
        "group": group.group,
        "kind": GroupKind.KAFKA.value,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator,
        "lag_records": sum(lag for lag in lags if lag is not None),
        "members": [
            {
                "member": member.id,
                "instance": member.instance or None,
                "client": f"{member.client}@{member.host}",
                "partitions": [f"{topic}:{number}" for topic, number in member.partitions],
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": offset.partition[0],
                "partition": offset.partition[1],
                "owner": offset.owner or None,
                "committed": offset.committed,
                "end_offset": offset.end_offset,
                "lag_records": lag,
            }
            for offset, lag in zip(group.offsets, lags, strict=True)
        ],
    }


def group_fields(group: GroupDescription, lags_s: Mapping[str, Mapping[int, float]]) -> Fields:
    """Return the fields of a group; ``lags_s`` maps topics and segments to the known lags in seconds."""
    topics = [_group_topic_fields(topic, lags_s.get(str(topic.topic), {})) for topic in group.topics]
    return {"group": group.group, "kind": GroupKind.NATIVE.value, **_total(topics), "topics": topics}


def _group_topic_fields(topic: GroupTopic, lags_s: Mapping[int, float]) -> Fields:
    segments = [
        {
            "segment": s.segment,
            "owner": s.owner or None,
            "committed": s.committed,
            "end_offset": s.end_offset,
            "lag_records": s.lag_records,
            "lag_s": lags_s.get(s.segment),
        }
        for s in topic.segments
    ]
    return {
        "topic": str(topic.topic),
        "generation": topic.generation,
        "start": start_text(topic.start),
        **_total(segments),
        "members": [
            {"member": m.id, "client": m.client, "connected": m.connected, "segments": m.segments}
            for m in topic.members
        ],
        "segments": segments,
        "finished": topic.finished,
    }


def _total(parts: Iterable[Fields]) -> Fields:
    """Return the lag of all parts: the sum in records, and the maximum in seconds; None if one is unknown."""
    lags_s = [part["lag_s"] for part in parts]
    return {
        "lag_records": sum(part["lag_records"] for part in parts),
        "lag_s": None if None in lags_s else max(lags_s, default=0.0),
    }
