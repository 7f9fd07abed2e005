"""Calls of the Admin service on groups of Kafka consumers."""

from typing import Any

from seaweedmq.model.kafka.group_admin import (
    KafkaGroupDescription,
    KafkaGroupMember,
    KafkaGroupOffset,
    KafkaGroupSummary,
    TopicPartition,
)
from seaweedmq.model.messages.calls import DeleteKafkaGroup, DescribeKafkaGroup, ListKafkaGroups, ResetKafkaGroup
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.unary import Unary, nothing
from seaweedmq.rpc.transport import ADMIN_SERVICE
from seaweedmq.rpc.v1 import admin_pb2, groups_pb2


def _write_summary(summary: KafkaGroupSummary) -> groups_pb2.KafkaGroupSummary:
    return groups_pb2.KafkaGroupSummary(
        group=summary.group,
        state=summary.state,
        protocol_type=summary.protocol_type,
        members=summary.members,
    )


def _read_summary(message: groups_pb2.KafkaGroupSummary) -> KafkaGroupSummary:
    return KafkaGroupSummary(
        group=message.group,
        state=message.state,
        protocol_type=message.protocol_type,
        members=message.members,
    )


def _write_partition(partition: TopicPartition) -> groups_pb2.KafkaPartition:
    topic, number = partition
    return groups_pb2.KafkaPartition(topic=topic, partition=number)


def _read_partition(message: groups_pb2.KafkaPartition) -> TopicPartition:
    return message.topic, message.partition


def _write_description(description: KafkaGroupDescription) -> groups_pb2.KafkaGroupDescription:
    return groups_pb2.KafkaGroupDescription(
        group=description.group,
        state=description.state,
        protocol_type=description.protocol_type,
        protocol=description.protocol,
        coordinator=description.coordinator,
        members=[
            groups_pb2.KafkaGroupMember(
                id=m.id,
                instance=m.instance,
                client=m.client,
                host=m.host,
                partitions=[_write_partition(partition) for partition in m.partitions],
            )
            for m in description.members
        ],
        offsets=[
            groups_pb2.KafkaGroupOffset(
                partition=_write_partition(o.partition),
                owner=o.owner,
                committed=o.committed,
                end_offset=o.end_offset,
            )
            for o in description.offsets
        ],
    )


def _read_description(message: groups_pb2.KafkaGroupDescription) -> KafkaGroupDescription:
    return KafkaGroupDescription(
        group=message.group,
        state=message.state,
        protocol_type=message.protocol_type,
        protocol=message.protocol,
        coordinator=message.coordinator,
        members=tuple(
            KafkaGroupMember(
                id=m.id,
                instance=m.instance,
                client=m.client,
                host=m.host,
                partitions=tuple(_read_partition(partition) for partition in m.partitions),
            )
            for m in message.members
        ),
        offsets=tuple(
            KafkaGroupOffset(
                partition=_read_partition(o.partition),
                owner=o.owner,
                committed=o.committed if o.HasField("committed") else None,
                end_offset=o.end_offset if o.HasField("end_offset") else None,
            )
            for o in message.offsets
        ),
    )


CALLS: tuple[Unary[Any, Any], ...] = (
    Unary(
        call=ListKafkaGroups,
        service=ADMIN_SERVICE,
        name="ListKafkaGroups",
        request=admin_pb2.ListKafkaGroupsRequest,
        reply=admin_pb2.ListKafkaGroupsReply,
        write_request=lambda _: admin_pb2.ListKafkaGroupsRequest(),
        read_request=lambda _: ListKafkaGroups(),
        write_reply=lambda found: admin_pb2.ListKafkaGroupsReply(groups=[_write_summary(group) for group in found]),
        read_reply=lambda m: tuple(_read_summary(group) for group in m.groups),
    ),
    Unary(
        call=DescribeKafkaGroup,
        service=ADMIN_SERVICE,
        name="DescribeKafkaGroup",
        request=admin_pb2.DescribeKafkaGroupRequest,
        reply=groups_pb2.KafkaGroupDescription,
        write_request=lambda c: admin_pb2.DescribeKafkaGroupRequest(group=c.group),
        read_request=lambda m: DescribeKafkaGroup(m.group),
        write_reply=_write_description,
        read_reply=_read_description,
    ),
    Unary(
        call=ResetKafkaGroup,
        service=ADMIN_SERVICE,
        name="ResetKafkaGroup",
        request=admin_pb2.ResetKafkaGroupRequest,
        reply=groups_pb2.KafkaGroupDescription,
        write_request=lambda c: admin_pb2.ResetKafkaGroupRequest(
            group=c.group, topic=str(c.name), start=types.write_start(c.start)
        ),
        read_request=lambda m: ResetKafkaGroup(m.group, TopicName.parse(m.topic), types.read_start(m.start)),
        write_reply=_write_description,
        read_reply=_read_description,
    ),
    Unary(
        call=DeleteKafkaGroup,
        service=ADMIN_SERVICE,
        name="DeleteKafkaGroup",
        request=admin_pb2.DeleteKafkaGroupRequest,
        reply=admin_pb2.DeleteKafkaGroupReply,
        write_request=lambda c: admin_pb2.DeleteKafkaGroupRequest(group=c.group),
        read_request=lambda m: DeleteKafkaGroup(m.group),
        write_reply=lambda _: admin_pb2.DeleteKafkaGroupReply(),
        read_reply=nothing,
    ),
)
