"""Every request and reply crosses the wire unchanged."""

from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages import groups as g
from seaweedmq.model.messages.blobs import BlobData, BlobRange, UploadReply, UploadRequest
from seaweedmq.model.messages.calls import CreateTopic
from seaweedmq.model.messages.publish import PublishOpen
from seaweedmq.model.messages.replication import ReplicateHeld, ReplicateRequest
from seaweedmq.model.messages.subscribe import Start, StartKind, SubscribeCredit
from seaweedmq.model.topic import TopicName, TopicSpec
from seaweedmq.rpc.messages import blobs, cluster, data, groups
from seaweedmq.rpc.messages.converter import converter_of
from seaweedmq.rpc.methods import METHODS
from seaweedmq.rpc.v1 import admin_pb2, data_pb2, groups_pb2, types_pb2
from tests.rpc.any_value import any_value

STREAMS = {
    "load": (BrokerLoad, cluster.encode_load, cluster.decode_load),
    "group request": (g.GroupRequest, groups.encode_group_request, groups.decode_group_request),
    "group reply": (g.GroupReply, groups.encode_group_reply, groups.decode_group_reply),
    "replicate request": (ReplicateRequest, cluster.encode_replicate_request, cluster.decode_replicate_request),
    "upload request": (UploadRequest, blobs.encode_upload_request, blobs.decode_upload_request),
    "upload reply": (UploadReply, blobs.encode_upload_reply, blobs.decode_upload_reply),
    "range": (BlobRange, blobs.encode_range, blobs.decode_range),
    "blob data": (BlobData, blobs.encode_blob_data, blobs.decode_blob_data),
    "replicate reply": (ReplicateHeld, cluster.encode_replicate_reply, cluster.decode_replicate_reply),
}


def check_round_trips(name, values, encode, decode):
    @settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
    @given(values)
    def holds(value):
        assert decode(encode(value)) == value, name

    holds()


@pytest.mark.parametrize("call", METHODS, ids=lambda call: call.__name__)
def test_requests_and_replies_cross_the_wire(call):
    method = METHODS[call]
    (result,) = get_args(call.__orig_bases__[0])
    check_round_trips("request", any_value(call), method.encode_request, method.decode_request)
    check_round_trips("reply", any_value(result, "end_offsets"), method.encode_reply, method.decode_reply)


def test_messages_of_streams_cross_the_wire():
    for name, (kind, encode, decode) in STREAMS.items():
        check_round_trips(name, any_value(kind), encode, decode)


NEWER_POLICY = admin_pb2.CreateTopicRequest(name="a/b", durability=types_pb2.Durability.ValueType(9))
NEWER_START = data_pb2.SubscribeRequest(open=data_pb2.SubscribeOpen(topic="a/b", start=types_pb2.Start(kind=9)))


@pytest.mark.parametrize(
    ("decode", "message", "says"),
    [
        (groups.decode_group_request, b"\x7a\x03abc", "seaweedmq.v1.GroupRequest holds none of the kinds"),  # field 15
        (groups.decode_group_reply, b"\x7a\x03abc", "seaweedmq.v1.GroupReply holds none of the kinds"),
        (cluster.decode_replicate_request, b"\x78\x05", "seaweedmq.v1.ReplicateRequest holds none of the kinds"),
        (cluster.decode_replicate_request, b"", "seaweedmq.v1.ReplicateRequest holds none of the kinds"),
        (METHODS[CreateTopic].decode_request, NEWER_POLICY.SerializeToString(), "durability 9"),
        (data.decode_subscribe_request, NEWER_START.SerializeToString(), "start 9"),
    ],
)
def test_messages_of_a_newer_protocol_are_unsupported(decode, message, says):
    with pytest.raises(Unsupported, match=says):
        decode(message)


NAME = TopicName("a", "b")
BELOW_ZERO = g.Position(segment=0, generation=1, offset=-1, deliveries={})


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (groups.encode_group_request, g.GroupCommit(1, (BELOW_ZERO,))),
        (METHODS[CreateTopic].encode_request, CreateTopic(TopicSpec(name=NAME, retention_bytes=-1))),
        (data.encode_subscribe_request, SubscribeCredit(-1)),
        (
            data.encode_publish_request,
            PublishOpen(topic=NAME, segment=1 << 32, epoch=1, producer_id=0, producer_epoch=0),
        ),
    ],
)
def test_numbers_beyond_the_protocol_are_refused_before_they_are_sent(encode, value):
    with pytest.raises(InvalidArgument, match=f"{type(value).__name__} was not sent"):
        encode(value)


def test_fields_left_out_get_the_defaults_and_bytes_that_are_no_message_are_the_callers_fault():
    opening = groups_pb2.GroupOpen(group="billing", topic="shop/orders", member="m-1")
    request = groups.decode_group_request(groups_pb2.GroupRequest(open=opening).SerializeToString())
    assert isinstance(request, g.GroupOpen)
    assert request.start == Start(StartKind.EARLIEST)
    request = admin_pb2.CreateTopicRequest(name="shop/orders").SerializeToString()
    assert METHODS[CreateTopic].decode_request(request) == CreateTopic(TopicSpec(name=TopicName("shop", "orders")))
    with pytest.raises(InvalidArgument, match=r"seaweedmq\.v1\.CreateTopicRequest"):
        METHODS[CreateTopic].decode_request(b"\xff\xff")


# --- converters follow the fields of values
@dataclass(frozen=True)
class Range:
    lo: int
    hi: int = 7


@dataclass(frozen=True)
class Half:
    lo: int


@dataclass(frozen=True)
class Wide:
    lo: int
    hi: int
    step: int


@dataclass(frozen=True)
class Named:
    range: Range


def test_a_value_without_a_field_lies_in_the_message_and_one_on_one_side_alone_is_an_error() -> None:
    converter = converter_of(Named, types_pb2.KeyRange)
    message = types_pb2.KeyRange(lo=1, hi=2)
    assert converter.write(Named(Range(1, 2))) == message
    assert converter.read(message) == Named(Range(1, 2))
    assert converter_of(Range, types_pb2.KeyRange).read(types_pb2.KeyRange(lo=0)) == Range(0, 7)
    with pytest.raises(TypeError, match=r"KeyRange has fields without a value: \['hi'\]"):
        converter_of(Half, types_pb2.KeyRange)
    with pytest.raises(TypeError, match=r"KeyRange has no field for Wide\.step"):
        converter_of(Wide, types_pb2.KeyRange)
    assert converter_of(Wide, types_pb2.KeyRange, given=("step",)).read(types_pb2.KeyRange(hi=3), 1) == Wide(0, 3, 1)
