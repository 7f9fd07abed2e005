"""Conversions between values of ``model`` and protobuf messages.

A function ``write_x`` converts a value to its message, ``read_x`` a message to its value. This module has the messages
of types.proto, which all services share; each service's module has its own. Reading trusts no input: values validate
themselves (InvalidArgument), and an unknown enum number raises Unsupported, since it belongs to a newer protocol.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.broker import BrokerLoad, EtcdAccess, SegmentLoad
from seaweedmq.model.description import SegmentStats, TopicDescription
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.model.topic_settings import Configs, configs_of
from seaweedmq.rpc.v1 import admin_pb2, types_pb2

DURABILITIES: Mapping[int, Durability] = {
    types_pb2.DURABILITY_REPLICATED: Durability.REPLICATED,
    types_pb2.DURABILITY_STORED: Durability.STORED,
}
SCALINGS: Mapping[int, Scaling] = {types_pb2.SCALING_AUTO: Scaling.AUTO, types_pb2.SCALING_FIXED: Scaling.FIXED}
STATES: Mapping[int, SegmentState] = {
    types_pb2.SEGMENT_STATE_OPEN: SegmentState.OPEN,
    types_pb2.SEGMENT_STATE_SEALED: SegmentState.SEALED,
}
START_KINDS: Mapping[int, StartKind] = {
    types_pb2.START_KIND_UNSPECIFIED: StartKind.EARLIEST,
    types_pb2.START_KIND_EARLIEST: StartKind.EARLIEST,
    types_pb2.START_KIND_LATEST: StartKind.LATEST,
    types_pb2.START_KIND_OFFSET: StartKind.OFFSET,
    types_pb2.START_KIND_TIME: StartKind.TIME,
}
_NUMBERS: Mapping[StrEnum, int] = {
    value: number for table in (DURABILITIES, SCALINGS, STATES, START_KINDS) for number, value in table.items()
}

M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=StrEnum)


def parse(kind: type[M], data: bytes | memoryview) -> M:
    """Decode a protobuf message.

    Raises:
        InvalidArgument: If the bytes are not such a message.
    """
    try:
        return kind.FromString(bytes(data))
    except DecodeError as error:
        raise InvalidArgument(
            f"{len(data)} bytes received are not a {kind.DESCRIPTOR.full_name} ({error}): "
            "check the client against the .proto files"
        ) from error


def enum_number(value: StrEnum) -> int:
    """Return the protocol number of an enum value."""
    return _NUMBERS[value]


def enum_value(table: Mapping[int, E], number: int, what: str) -> E:
    """Return the enum value of a protocol number.

    Args:
        table: Values by number.
        number: Number in the message.
        what: Name of the field, for the error message.

    Raises:
        Unsupported: If this build does not know the number.
    """
    value = table.get(number)
    if value is None:
        raise Unsupported(f"{what} {number} is unknown to this side: upgrade the older of client and broker")
    return value


def unknown_kind(message: Message) -> Unsupported:
    """Return the error for a message whose oneof is empty or has a field of a newer protocol."""
    return Unsupported(
        f"a {message.DESCRIPTOR.full_name} holds none of the kinds this side knows: "
        "fill one field of its oneof, or upgrade the older of client and broker"
    )


def write_start(start: Start) -> types_pb2.Start:
    """Convert a start to its message."""
    return types_pb2.Start(kind=types_pb2.StartKind.ValueType(enum_number(start.kind)), value=start.value)


def read_start(message: types_pb2.Start) -> Start:
    """Convert a message to a start.

    Raises:
        InvalidArgument: If a value is invalid.
        Unsupported: If an enum number is unknown.
    """
    return Start(enum_value(START_KINDS, message.kind, "start"), message.value)


# --- topics ---------------------------------------------------------------------------------------------------------


def write_topic(topic: Topic) -> types_pb2.Topic:
    """Convert a topic to its message."""
    message = types_pb2.Topic(
        name=str(topic.name),
        uid=topic.uid,
        replicas=topic.replicas,
        schema=topic.schema,
        retention_s=topic.retention_s,
        retention_bytes=topic.retention_bytes,
        target_bytes_per_s=topic.target_bytes_per_s,
        target_records_per_s=topic.target_records_per_s,
        segments_min=topic.segments_min,
        next_segment=topic.next_segment,
        created_us=topic.created_us,
        partitions=topic.partitions,
        configs=write_configs(topic.configs or None),
        low_watermarks=topic.low_watermarks,
    )
    set_policies(message, topic.durability, topic.scaling)
    return message


def read_topic(message: types_pb2.Topic) -> Topic:
    """Convert a message to a topic.

    Raises:
        InvalidArgument: If a value is invalid.
        Unsupported: If an enum number is unknown.
    """
    return Topic(
        name=TopicName.parse(message.name),
        uid=message.uid,
        replicas=message.replicas,
        durability=enum_value(DURABILITIES, message.durability, "durability"),
        scaling=enum_value(SCALINGS, message.scaling, "scaling"),
        schema=message.schema if message.HasField("schema") else None,
        retention_s=message.retention_s if message.HasField("retention_s") else None,
        retention_bytes=message.retention_bytes if message.HasField("retention_bytes") else None,
        target_bytes_per_s=message.target_bytes_per_s if message.HasField("target_bytes_per_s") else None,
        target_records_per_s=message.target_records_per_s if message.HasField("target_records_per_s") else None,
        segments_min=max(1, message.segments_min),
        next_segment=message.next_segment,
        created_us=message.created_us,
        partitions=message.partitions if message.HasField("partitions") else None,
        configs=read_configs(message.configs),
        low_watermarks=tuple(message.low_watermarks),
    )


def write_configs(configs: Configs | None) -> types_pb2.TopicConfigs | None:
    """Convert named settings to their message; None stays None."""
    return None if configs is None else types_pb2.TopicConfigs(values=dict(configs))


def read_configs(message: types_pb2.TopicConfigs) -> Configs:
    """Convert a message to named settings.

    Raises:
        InvalidArgument: If a value is invalid.
    """
    return configs_of(message.values)


def set_policies(
    message: admin_pb2.CreateTopicRequest | admin_pb2.AlterTopicRequest | types_pb2.Topic,
    durability: Durability | None,
    scaling: Scaling | None,
) -> None:
    """Set the enum fields of a message; None leaves a field unspecified."""
    if durability is not None:
        message.durability = types_pb2.Durability.ValueType(enum_number(durability))
    if scaling is not None:
        message.scaling = types_pb2.Scaling.ValueType(enum_number(scaling))


# --- segments -------------------------------------------------------------------------------------------------------


def write_sequences(sequences: Iterable[ProducerSequence]) -> list[types_pb2.ProducerSequence]:
    """Convert producer states to their messages."""
    return [
        types_pb2.ProducerSequence(
            producer_id=s.producer_id, producer_epoch=s.producer_epoch, next_sequence=s.next_sequence
        )
        for s in sequences
    ]


def read_sequences(sequences: Iterable[types_pb2.ProducerSequence]) -> tuple[ProducerSequence, ...]:
    """Convert messages to producer states.

    Raises:
        InvalidArgument: If a value is invalid.
    """
    return tuple(
        ProducerSequence(producer_id=s.producer_id, producer_epoch=s.producer_epoch, next_sequence=s.next_sequence)
        for s in sequences
    )


def write_segment(segment: Segment) -> types_pb2.Segment:
    """Convert a segment to its message.

    The message has no topic name, since a segment travels inside its topic's description. It has no producer states:
    only brokers need them.
    """
    return types_pb2.Segment(
        id=segment.id,
        slots=types_pb2.KeyRange(lo=segment.slots.lo, hi=segment.slots.hi),
        epoch=segment.epoch,
        state=types_pb2.SegmentState.ValueType(enum_number(segment.state)),
        replicas=segment.replicas,
        predecessors=segment.predecessors,
        successors=segment.successors,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        opened_us=segment.opened_us,
        sealed_us=segment.sealed_us,
        problem=segment.problem,
    )


def read_segment(message: types_pb2.Segment, topic: TopicName) -> Segment:
    """Convert a message to a segment of a topic.

    Raises:
        InvalidArgument: If a value is invalid.
        Unsupported: If an enum number is unknown.
    """
    return Segment(
        topic=topic,
        id=message.id,
        slots=KeyRange(message.slots.lo, message.slots.hi),
        epoch=message.epoch,
        state=enum_value(STATES, message.state, "segment state"),
        replicas=tuple(message.replicas),
        predecessors=tuple(message.predecessors),
        successors=tuple(message.successors),
        start_offset=message.start_offset,
        end_offset=message.end_offset if message.HasField("end_offset") else None,
        opened_us=message.opened_us,
        sealed_us=message.sealed_us,
        problem=message.problem,
    )


def write_description(description: TopicDescription) -> types_pb2.TopicDescription:
    """Convert a topic's description to its message."""
    return types_pb2.TopicDescription(
        topic=write_topic(description.topic),
        segments=[write_segment(segment) for segment in description.segments],
        addresses=description.addresses,
        revision=description.revision,
        more_above=description.more_above,
        frame_bytes_max=description.frame_bytes_max,
    )


def read_description(message: types_pb2.TopicDescription) -> TopicDescription:
    """Convert a message to a topic's description.

    Raises:
        InvalidArgument: If a value is invalid.
        Unsupported: If an enum number is unknown.
    """
    topic = read_topic(message.topic)
    return TopicDescription(
        topic=topic,
        segments=tuple(read_segment(segment, topic.name) for segment in message.segments),
        addresses=dict(message.addresses),
        revision=message.revision,
        more_above=message.more_above if message.HasField("more_above") else None,
        frame_bytes_max=message.frame_bytes_max,
    )


def write_stats(stats: SegmentStats) -> types_pb2.SegmentStats:
    """Convert a segment's stats to their message."""
    return types_pb2.SegmentStats(
        segment=stats.segment,
        start_offset=stats.start_offset,
        high_watermark=stats.high_watermark,
        flushed_offset=stats.flushed_offset,
        bytes_per_s=stats.bytes_per_s,
        records_per_s=stats.records_per_s,
    )


def read_stats(message: types_pb2.SegmentStats) -> SegmentStats:
    """Convert a message to a segment's stats."""
    return SegmentStats(
        segment=message.segment,
        start_offset=message.start_offset,
        high_watermark=message.high_watermark,
        flushed_offset=message.flushed_offset,
        bytes_per_s=message.bytes_per_s,
        records_per_s=message.records_per_s,
    )


# --- brokers ---------------------------------------------------------------------------------------------------------


def write_load(load: BrokerLoad) -> types_pb2.BrokerLoad:
    """Convert a broker's load to its message."""
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
                unwritten_bytes=s.unwritten_bytes,
                long_bytes_per_s=s.long_bytes_per_s,
                long_records_per_s=s.long_records_per_s,
                histogram_records_per_s=s.histogram,
            )
            for s in load.segments
        ],
        etcd=write_etcd_access(load.etcd),
    )


def write_etcd_access(access: EtcdAccess | None) -> types_pb2.EtcdAccess | None:
    """Convert a broker's access to etcd to its message; None stays None."""
    return None if access is None else types_pb2.EtcdAccess(trouble=access.trouble, lease_s=access.lease_s)


def read_etcd_access(message: types_pb2.EtcdAccess) -> EtcdAccess:
    """Convert a message to a broker's access to etcd."""
    return EtcdAccess(trouble=message.trouble, lease_s=message.lease_s)


def read_load(message: types_pb2.BrokerLoad) -> BrokerLoad:
    """Convert a message to a broker's load.

    Raises:
        InvalidArgument: If a value is invalid.
    """
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
                unwritten_bytes=s.unwritten_bytes,
                long_bytes_per_s=s.long_bytes_per_s,
                long_records_per_s=s.long_records_per_s,
                histogram=tuple(s.histogram_records_per_s),
            )
            for s in message.segments
        ),
        etcd=read_etcd_access(message.etcd) if message.HasField("etcd") else None,
    )
