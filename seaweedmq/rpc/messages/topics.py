"""Calls of the Admin service on topics, with their messages."""

from typing import Any

from seaweedmq.model.description import SegmentSelection
from seaweedmq.model.messages.calls import (
    AdoptSchema,
    AlterTopic,
    AwaitedTopic,
    AwaitTopics,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    RaiseLowWatermark,
    TopicStats,
    UpdatedTopics,
)
from seaweedmq.model.topic import TopicChange, TopicName, TopicSpec
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.unary import Unary, nothing
from seaweedmq.rpc.transport import ADMIN_SERVICE
from seaweedmq.rpc.v1 import admin_pb2, types_pb2

CREATE_TIMEOUT_S = 60.0
"""Deadline in seconds of the creation of many topics: each is slow on slow storage."""


def _write_spec(spec: TopicSpec) -> admin_pb2.CreateTopicRequest:
    message = admin_pb2.CreateTopicRequest(
        name=str(spec.name),
        segments=spec.segments,
        partitions=spec.partitions,
        replicas=spec.replicas,
        schema=spec.schema,
        retention_s=spec.retention_s,
        retention_bytes=spec.retention_bytes,
        target_bytes_per_s=spec.target_bytes_per_s,
        target_records_per_s=spec.target_records_per_s,
        configs=types.write_configs(spec.configs or None),
    )
    types.set_policies(message, spec.durability, spec.scaling)
    return message


def _read_spec(message: admin_pb2.CreateTopicRequest) -> TopicSpec:
    return TopicSpec(
        name=TopicName.parse(message.name),
        segments=message.segments if message.HasField("segments") else 1,
        partitions=message.partitions if message.HasField("partitions") else None,
        replicas=message.replicas if message.HasField("replicas") else 1,
        durability=types.enum_value(types.DURABILITIES, message.durability, "durability")
        if message.durability
        else None,
        scaling=types.enum_value(types.SCALINGS, message.scaling, "scaling") if message.scaling else None,
        schema=message.schema if message.HasField("schema") else None,
        retention_s=message.retention_s if message.HasField("retention_s") else None,
        retention_bytes=message.retention_bytes if message.HasField("retention_bytes") else None,
        target_bytes_per_s=message.target_bytes_per_s if message.HasField("target_bytes_per_s") else None,
        target_records_per_s=message.target_records_per_s if message.HasField("target_records_per_s") else None,
        configs=types.read_configs(message.configs),
    )


def _write_alter(call: AlterTopic) -> admin_pb2.AlterTopicRequest:
    change = call.change
    message = admin_pb2.AlterTopicRequest(
        name=str(call.name),
        partitions=change.partitions,
        retention_s=change.retention_s,
        retention_bytes=change.retention_bytes,
        target_bytes_per_s=change.target_bytes_per_s,
        target_records_per_s=change.target_records_per_s,
        topic_uid=call.topic_uid,
        configs=types.write_configs(change.configs),
        revision=call.revision,
    )
    types.set_policies(message, change.durability, change.scaling)
    return message


def _read_alter(message: admin_pb2.AlterTopicRequest) -> AlterTopic:
    change = TopicChange(
        partitions=message.partitions if message.HasField("partitions") else None,
        durability=types.enum_value(types.DURABILITIES, message.durability, "durability")
        if message.durability
        else None,
        scaling=types.enum_value(types.SCALINGS, message.scaling, "scaling") if message.scaling else None,
        retention_s=message.retention_s if message.HasField("retention_s") else None,
        retention_bytes=message.retention_bytes if message.HasField("retention_bytes") else None,
        target_bytes_per_s=message.target_bytes_per_s if message.HasField("target_bytes_per_s") else None,
        target_records_per_s=message.target_records_per_s if message.HasField("target_records_per_s") else None,
        configs=types.read_configs(message.configs) if message.HasField("configs") else None,
    )
    return AlterTopic(TopicName.parse(message.name), change, message.topic_uid, message.revision)


def _write_describe(call: DescribeTopic) -> admin_pb2.DescribeTopicRequest:
    which = call.which
    above = which.sealed_above
    return admin_pb2.DescribeTopicRequest(
        name=str(call.name),
        topic_uid=call.topic_uid,
        without_open=not which.open,
        without_sealed=above is None,
        sealed_above=None if above is None or above < 0 else above,
        segments=which.ids,
    )


def _read_describe(message: admin_pb2.DescribeTopicRequest) -> DescribeTopic:
    above = message.sealed_above if message.HasField("sealed_above") else -1
    which = SegmentSelection(
        open=not message.without_open,
        sealed_above=None if message.without_sealed else above,
        ids=tuple(message.segments),
    )
    return DescribeTopic(TopicName.parse(message.name), which, message.topic_uid)


def _write_awaited(awaited: AwaitedTopic) -> admin_pb2.AwaitTopicsRequest.Topic:
    return admin_pb2.AwaitTopicsRequest.Topic(
        name=str(awaited.name), uid=awaited.topic_uid, above=awaited.above, segments=awaited.ids
    )


def _read_awaited(message: admin_pb2.AwaitTopicsRequest.Topic) -> AwaitedTopic:
    return AwaitedTopic(
        name=TopicName.parse(message.name), topic_uid=message.uid, above=message.above, ids=tuple(message.segments)
    )


CALLS: tuple[Unary[Any, Any], ...] = (
    Unary(
        call=CreateTopic,
        service=ADMIN_SERVICE,
        name="CreateTopic",
        request=admin_pb2.CreateTopicRequest,
        reply=types_pb2.TopicDescription,
        write_request=lambda c: _write_spec(c.spec),
        read_request=lambda m: CreateTopic(_read_spec(m)),
        write_reply=types.write_description,
        read_reply=types.read_description,
    ),
    Unary(
        call=CreateTopics,
        service=ADMIN_SERVICE,
        name="CreateTopics",
        request=admin_pb2.CreateTopicsRequest,
        reply=admin_pb2.CreateTopicsReply,
        write_request=lambda c: admin_pb2.CreateTopicsRequest(topics=map(_write_spec, c.specs)),
        read_request=lambda m: CreateTopics(tuple(map(_read_spec, m.topics))),
        write_reply=lambda made: admin_pb2.CreateTopicsReply(topics=map(types.write_description, made)),
        read_reply=lambda m: tuple(map(types.read_description, m.topics)),
        timeout_s=CREATE_TIMEOUT_S,
    ),
    Unary(
        call=AlterTopic,
        service=ADMIN_SERVICE,
        name="AlterTopic",
        request=admin_pb2.AlterTopicRequest,
        reply=types_pb2.TopicDescription,
        write_request=_write_alter,
        read_request=_read_alter,
        write_reply=types.write_description,
        read_reply=types.read_description,
    ),
    Unary(
        call=DeleteTopic,
        service=ADMIN_SERVICE,
        name="DeleteTopic",
        request=admin_pb2.DeleteTopicRequest,
        reply=admin_pb2.DeleteTopicReply,
        write_request=lambda c: admin_pb2.DeleteTopicRequest(name=str(c.name), topic_uid=c.topic_uid),
        read_request=lambda m: DeleteTopic(TopicName.parse(m.name), m.topic_uid),
        write_reply=lambda _: admin_pb2.DeleteTopicReply(),
        read_reply=nothing,
    ),
    Unary(
        call=RaiseLowWatermark,
        service=ADMIN_SERVICE,
        name="RaiseLowWatermark",
        request=admin_pb2.RaiseLowWatermarkRequest,
        reply=admin_pb2.RaiseLowWatermarkReply,
        write_request=lambda c: admin_pb2.RaiseLowWatermarkRequest(
            name=str(c.name), before=dict(c.before), topic_uid=c.topic_uid
        ),
        read_request=lambda m: RaiseLowWatermark(TopicName.parse(m.name), dict(m.before), m.topic_uid),
        write_reply=lambda marks: admin_pb2.RaiseLowWatermarkReply(low_watermarks=dict(marks)),
        read_reply=lambda m: dict(m.low_watermarks),
    ),
    Unary(
        call=ListTopics,
        service=ADMIN_SERVICE,
        name="ListTopics",
        request=admin_pb2.ListTopicsRequest,
        reply=admin_pb2.ListTopicsReply,
        write_request=lambda _: admin_pb2.ListTopicsRequest(),
        read_request=lambda _: ListTopics(),
        write_reply=lambda topics: admin_pb2.ListTopicsReply(topics=[types.write_topic(topic) for topic in topics]),
        read_reply=lambda m: tuple(types.read_topic(topic) for topic in m.topics),
    ),
    Unary(
        call=DescribeTopic,
        service=ADMIN_SERVICE,
        name="DescribeTopic",
        request=admin_pb2.DescribeTopicRequest,
        reply=types_pb2.TopicDescription,
        write_request=_write_describe,
        read_request=_read_describe,
        write_reply=types.write_description,
        read_reply=types.read_description,
    ),
    Unary(
        call=AwaitTopics,
        service=ADMIN_SERVICE,
        name="AwaitTopics",
        request=admin_pb2.AwaitTopicsRequest,
        reply=admin_pb2.AwaitTopicsReply,
        write_request=lambda c: admin_pb2.AwaitTopicsRequest(
            topics=map(_write_awaited, c.topics), patience_ms=round(1_000 * c.patience_s)
        ),
        read_request=lambda m: AwaitTopics(tuple(map(_read_awaited, m.topics)), m.patience_ms / 1_000),
        write_reply=lambda told: admin_pb2.AwaitTopicsReply(
            topics=map(types.write_description, told.changed), unknown=told.unknown
        ),
        read_reply=lambda m: UpdatedTopics(tuple(map(types.read_description, m.topics)), tuple(m.unknown)),
    ),
    Unary(
        call=AdoptSchema,
        service=ADMIN_SERVICE,
        name="AdoptSchema",
        request=admin_pb2.AdoptSchemaRequest,
        reply=types_pb2.TopicDescription,
        write_request=lambda c: admin_pb2.AdoptSchemaRequest(name=str(c.name), schema=c.schema, topic_uid=c.topic_uid),
        read_request=lambda m: AdoptSchema(TopicName.parse(m.name), m.schema, m.topic_uid),
        write_reply=types.write_description,
        read_reply=types.read_description,
    ),
    Unary(
        call=TopicStats,
        service=ADMIN_SERVICE,
        name="TopicStats",
        request=admin_pb2.TopicStatsRequest,
        reply=admin_pb2.TopicStatsReply,
        write_request=lambda c: admin_pb2.TopicStatsRequest(name=str(c.name)),
        read_request=lambda m: TopicStats(TopicName.parse(m.name)),
        write_reply=lambda stats: admin_pb2.TopicStatsReply(segments=[types.write_stats(s) for s in stats]),
        read_reply=lambda m: tuple(types.read_stats(stats) for stats in m.segments),
    ),
)
