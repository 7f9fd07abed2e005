"""Converters of the messages of types.proto, which all services share, and of types with a form of their own.

Reading trusts no input: values validate themselves (InvalidArgument), and an unknown enum number raises Unsupported,
since it belongs to a newer protocol.
"""

from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.kafka.group_admin import TopicPartition
from seaweedmq.model.messages.subscribe import StartKind
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.model.topic_settings import Configs, configs_of
from seaweedmq.rpc.messages.converter import Converter, converter_of, register
from seaweedmq.rpc.v1 import groups_pb2, types_pb2

M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=StrEnum)


def parse(kind: type[M], data: bytes | memoryview) -> M:
    """Decode a protobuf message; InvalidArgument if the bytes are none."""
    try:
        return kind.FromString(bytes(data))
    except DecodeError as error:
        raise InvalidArgument(
            f"{len(data)} bytes received are not a {kind.DESCRIPTOR.full_name} ({error}): "
            "check the client against the .proto files"
        ) from error


def unknown_kind(message: Message) -> Unsupported:
    """Return the error for a message whose oneof is empty or has a field of a newer protocol."""
    return Unsupported(
        f"a {message.DESCRIPTOR.full_name} holds none of the kinds this side knows: "
        "fill one field of its oneof, or upgrade the older of client and broker"
    )


def _register_enum(kind: type[E], protocol: type[Any], field: str, unspecified: E | None = None) -> None:
    """Register the converter of an enum whose members have the names of the protocol's, after the prefix of those.

    ``field`` is a name for the error message; ``unspecified`` is the value of the number 0, if it has one.
    """
    numbers = {value: number for value in kind for name, number in protocol.items() if name.endswith(f"_{value.name}")}
    values = {number: value for value, number in numbers.items()}
    if unspecified is not None:
        values[0] = unspecified

    def read(number: int) -> E:
        value = values.get(number)
        if value is None:
            raise Unsupported(f"{field} {number} is unknown to this side: upgrade the older of client and broker")
        return value

    register(kind, Converter(numbers.__getitem__, read))


_register_enum(Durability, types_pb2.Durability, "durability")
_register_enum(Scaling, types_pb2.Scaling, "scaling")
_register_enum(SegmentState, types_pb2.SegmentState, "segment state")
_register_enum(StartKind, types_pb2.StartKind, "start", unspecified=StartKind.EARLIEST)
register(TopicName, Converter(str, TopicName.parse))
register(
    Configs,
    Converter(lambda configs: types_pb2.TopicConfigs(values=dict(configs)), lambda message: configs_of(message.values)),
)
register(
    TopicPartition,
    Converter(
        lambda partition: groups_pb2.KafkaPartition(topic=partition[0], partition=partition[1]),
        lambda message: (message.topic, message.partition),
    ),
)

TOPIC = converter_of(Topic, types_pb2.Topic, without=("adopting", "pruned"))
SEGMENT = converter_of(Segment, types_pb2.Segment, without=("sequences", "sequences_complete"), given=("topic",))
"""Its messages have no topic, since a segment travels inside its topic's description."""


def write_description(description: TopicDescription) -> types_pb2.TopicDescription:
    """Convert a topic's description to its message."""
    return types_pb2.TopicDescription(
        topic=TOPIC.write(description.topic),
        segments=map(SEGMENT.write, description.segments),
        addresses=description.addresses,
        revision=description.revision,
        more_above=description.more_above,
        frame_bytes_max=description.frame_bytes_max,
    )


def read_description(message: types_pb2.TopicDescription) -> TopicDescription:
    """Convert a message to a topic's description."""
    topic = TOPIC.read(message.topic)
    return TopicDescription(
        topic=topic,
        segments=tuple(SEGMENT.read(segment, topic.name) for segment in message.segments),
        addresses=dict(message.addresses),
        revision=message.revision,
        more_above=message.more_above if message.HasField("more_above") else None,
        frame_bytes_max=message.frame_bytes_max,
    )


register(TopicDescription, Converter(write_description, read_description))
