"""Values of ``model`` as protobuf messages and back: ``write_x(value) -> message``, ``read_x(message) -> value``.

Topics and segments here, brokers in ``cluster_messages``, groups in ``group_messages``.
Reading trusts nothing: the values check themselves (InvalidArgument), and an enum number of a newer protocol is
Unsupported.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.description import SegmentStats, TopicDescription, Which
from seaweedmq.model.publish import FrameAck
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.subscribe import Start, StartKind
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.rpc.v1 import admin_pb2, data_pb2, types_pb2

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


def parse(kind: type[M], data: bytes) -> M:
    """Decode a protobuf message.

    Raises:
        InvalidArgument: the bytes are no such message.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(
            f"{len(data)} bytes received are not a {kind.DESCRIPTOR.full_name} ({error}): "
            "check the client against the .proto files"
        ) from error


def enum_number(value: StrEnum) -> int:
    """Protocol number of an enum value."""
    return _NUMBERS[value]


def enum_value(table: Mapping[int, E], number: int, what: str) -> E:
    """Enum value of a protocol number.

    Raises:
        Unsupported: this build does not know the number.
    """
    value = table.get(number)
    if value is None:
        raise Unsupported(f"{what} {number} is not one this side knows: upgrade the older of client and broker")
    return value


def unknown_kind(message: Message) -> Unsupported:
    """What to raise for a message whose oneof is empty, or of a newer protocol."""
    return Unsupported(
        f"a {message.DESCRIPTOR.full_name} holds none of the kinds this side knows: "
        "fill one field of its oneof, or upgrade the older of client and broker"
    )


def write_start(start: Start) -> types_pb2.Start:
    return types_pb2.Start(kind=types_pb2.StartKind.ValueType(enum_number(start.kind)), value=start.value)


def read_start(message: types_pb2.Start) -> Start:
    return Start(enum_value(START_KINDS, message.kind, "start"), message.value)


# --- topics ---------------------------------------------------------------------------------------------------------


def write_spec(spec: TopicSpec) -> admin_pb2.CreateTopicRequest:
    message = admin_pb2.CreateTopicRequest(
        name=str(spec.name),
        segments=spec.segments,
        replicas=spec.replicas,
        schema=spec.schema,
        retention_s=spec.retention_s,
        retention_bytes=spec.retention_bytes,
        target_bytes_per_s=spec.target_bytes_per_s,
        target_records_per_s=spec.target_records_per_s,
    )
    _set_policies(message, spec.durability, spec.scaling)
    return message


def read_spec(message: admin_pb2.CreateTopicRequest) -> TopicSpec:
    return TopicSpec(
        name=TopicName.parse(message.name),
        segments=message.segments if message.HasField("segments") else 1,
        replicas=message.replicas if message.HasField("replicas") else 1,
        durability=enum_value(DURABILITIES, message.durability, "durability") if message.durability else None,
        scaling=enum_value(SCALINGS, message.scaling, "scaling") if message.scaling else Scaling.AUTO,
        schema=message.schema if message.HasField("schema") else None,
        retention_s=message.retention_s if message.HasField("retention_s") else None,
        retention_bytes=message.retention_bytes if message.HasField("retention_bytes") else None,
        target_bytes_per_s=message.target_bytes_per_s if message.HasField("target_bytes_per_s") else None,
        target_records_per_s=message.target_records_per_s if message.HasField("target_records_per_s") else None,
    )


def write_change(request: tuple[TopicName, TopicChange, int]) -> admin_pb2.AlterTopicRequest:
    name, change, topic_uid = request
    message = admin_pb2.AlterTopicRequest(
        name=str(name),
        retention_s=change.retention_s,
        retention_bytes=change.retention_bytes,
        target_bytes_per_s=change.target_bytes_per_s,
        target_records_per_s=change.target_records_per_s,
        topic_uid=topic_uid,
    )
    _set_policies(message, change.durability, change.scaling)
    return message


def read_change(message: admin_pb2.AlterTopicRequest) -> tuple[TopicName, TopicChange, int]:
    change = TopicChange(
        durability=enum_value(DURABILITIES, message.durability, "durability") if message.durability else None,
        scaling=enum_value(SCALINGS, message.scaling, "scaling") if message.scaling else None,
        retention_s=message.retention_s if message.HasField("retention_s") else None,
        retention_bytes=message.retention_bytes if message.HasField("retention_bytes") else None,
        target_bytes_per_s=message.target_bytes_per_s if message.HasField("target_bytes_per_s") else None,
        target_records_per_s=message.target_records_per_s if message.HasField("target_records_per_s") else None,
    )
    return TopicName.parse(message.name), change, message.topic_uid


def write_topic(topic: Topic) -> types_pb2.Topic:
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
    )
    _set_policies(message, topic.durability, topic.scaling)
    return message


def read_topic(message: types_pb2.Topic) -> Topic:
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
    )


def _set_policies(
    message: admin_pb2.CreateTopicRequest | admin_pb2.AlterTopicRequest | types_pb2.Topic,
    durability: Durability | None,
    scaling: Scaling | None,
) -> None:
    if durability is not None:
        message.durability = types_pb2.Durability.ValueType(enum_number(durability))
    if scaling is not None:
        message.scaling = types_pb2.Scaling.ValueType(enum_number(scaling))


# --- segments -------------------------------------------------------------------------------------------------------


def write_sequences(sequences: Iterable[ProducerSequence]) -> list[types_pb2.ProducerSequence]:
    return [
        types_pb2.ProducerSequence(
            producer_id=s.producer_id, producer_epoch=s.producer_epoch, next_sequence=s.next_sequence
        )
        for s in sequences
    ]


def read_sequences(sequences: Iterable[types_pb2.ProducerSequence]) -> tuple[ProducerSequence, ...]:
    return tuple(
        ProducerSequence(producer_id=s.producer_id, producer_epoch=s.producer_epoch, next_sequence=s.next_sequence)
        for s in sequences
    )


def write_segment(segment: Segment) -> types_pb2.Segment:
    """The topic's name is left out: a segment travels inside its topic's description. So are producers' sequences:
    brokers alone need them."""
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
    )


def read_segment(message: types_pb2.Segment, topic: TopicName) -> Segment:
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
    )


def write_description(description: TopicDescription) -> types_pb2.TopicDescription:
    return types_pb2.TopicDescription(
        topic=write_topic(description.topic),
        segments=[write_segment(segment) for segment in description.segments],
        addresses=description.addresses,
        revision=description.revision,
        more_above=description.more_above,
    )


def read_description(message: types_pb2.TopicDescription) -> TopicDescription:
    topic = read_topic(message.topic)
    return TopicDescription(
        topic=topic,
        segments=tuple(read_segment(segment, topic.name) for segment in message.segments),
        addresses=dict(message.addresses),
        revision=message.revision,
        more_above=message.more_above if message.HasField("more_above") else None,
    )


def write_which(request: tuple[TopicName, Which, int]) -> admin_pb2.DescribeTopicRequest:
    name, which, topic_uid = request
    above = which.sealed_above
    return admin_pb2.DescribeTopicRequest(
        name=str(name),
        topic_uid=topic_uid,
        without_open=not which.open,
        without_sealed=above is None,
        sealed_above=None if above is None or above < 0 else above,
        segments=which.ids,
    )


def read_which(message: admin_pb2.DescribeTopicRequest) -> tuple[TopicName, Which, int]:
    above = message.sealed_above if message.HasField("sealed_above") else -1
    which = Which(
        open=not message.without_open,
        sealed_above=None if message.without_sealed else above,
        ids=tuple(message.segments),
    )
    return TopicName.parse(message.name), which, message.topic_uid


def write_stats(stats: SegmentStats) -> types_pb2.SegmentStats:
    return types_pb2.SegmentStats(
        segment=stats.segment,
        start_offset=stats.start_offset,
        high_watermark=stats.high_watermark,
        flushed_offset=stats.flushed_offset,
        bytes_per_s=stats.bytes_per_s,
        records_per_s=stats.records_per_s,
    )


def read_stats(message: types_pb2.SegmentStats) -> SegmentStats:
    return SegmentStats(
        segment=message.segment,
        start_offset=message.start_offset,
        high_watermark=message.high_watermark,
        flushed_offset=message.flushed_offset,
        bytes_per_s=message.bytes_per_s,
        records_per_s=message.records_per_s,
    )


def write_frame_ack(ack: FrameAck) -> data_pb2.FrameAck:
    return data_pb2.FrameAck(
        first_sequence=ack.first_sequence, record_count=ack.record_count, base_offset=ack.base_offset
    )


def read_frame_ack(message: data_pb2.FrameAck) -> FrameAck:
    return FrameAck(message.first_sequence, message.record_count, message.base_offset)
