"""The hand-written wire format matches protobuf, for every message and every spelling."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.messages.publish import PublishFrames, PublishReply, PublishRequest
from seaweedmq.model.messages.subscribe import SubscribeFrames, SubscribeReply, SubscribeRequest
from seaweedmq.rpc.messages import data, frames
from seaweedmq.rpc.v1 import data_pb2
from tests.rpc.any_value import PAYLOADS, any_value

DIRECTIONS = [
    (data.encode_publish_request, data.decode_publish_request, data_pb2.PublishRequest, PublishRequest),
    (data.encode_publish_reply, data.decode_publish_reply, data_pb2.PublishReply, PublishReply),
    (data.encode_subscribe_request, data.decode_subscribe_request, data_pb2.SubscribeRequest, SubscribeRequest),
    (data.encode_subscribe_reply, data.decode_subscribe_reply, data_pb2.SubscribeReply, SubscribeReply),
]
FRAME_DIRECTIONS = [
    (data.decode_publish_request, data_pb2.PublishRequest, data_pb2.PublishOpen(segment=3, topic="a/b"), "open"),
    (data.decode_subscribe_reply, data_pb2.SubscribeReply, data_pb2.SubscribeReady(start_offset=3), "ready"),
]


@pytest.mark.parametrize(("encode", "decode", "kind", "values"), DIRECTIONS)
def test_what_is_written_is_read_back_and_is_what_protobuf_writes(encode, decode, kind, values):
    @given(any_value(values))
    def holds(value):
        data = encode(value)
        assert type(data) is bytes
        assert decode(data) == value
        assert kind.FromString(data).SerializeToString() == data

    holds()


@pytest.mark.parametrize("kind", [data_pb2.PublishRequest, data_pb2.SubscribeReply])
@given(payload=PAYLOADS)
def test_frames_are_written_byte_for_byte_as_protobuf_does(kind, payload):
    as_protobuf = kind(frames=payload).SerializeToString()
    for form in (payload, memoryview(payload)):
        ours = (
            data.encode_publish_request(PublishFrames(form))
            if kind is data_pb2.PublishRequest
            else data.encode_subscribe_reply(SubscribeFrames(form))
        )
        assert ours == as_protobuf


@given(st.lists(st.binary(max_size=100), max_size=4))
def test_packed_frames_are_the_chunks_joined_and_sent_as_they_are(chunks):
    packed = frames.pack_frames(chunks)
    assert packed == b"".join(chunks)
    message = data.encode_publish_request(PublishFrames(packed))
    assert message is packed.obj
    assert message == data.encode_subscribe_reply(SubscribeFrames(b"".join(chunks)))
    received = data.decode_publish_request(message).data
    assert data.encode_subscribe_reply(SubscribeFrames(received)) is message


@pytest.mark.parametrize("length", [0, 3, 200, 20_000])
def test_a_view_of_another_part_of_a_packed_buffer_is_not_taken_for_the_whole(length):
    whole = frames.pack_frames([bytes([0x12] * length)]).obj
    for begin in range(6):
        for end in range(max(begin, len(whole) - 6), len(whole) + 1):
            part = memoryview(whole)[begin:end]
            message = data.encode_publish_request(PublishFrames(part))
            assert message == data_pb2.PublishRequest(frames=bytes(part)).SerializeToString()


def test_a_large_payload_is_a_view_of_the_message_and_an_illegal_topic_name_refused():
    message = data_pb2.PublishRequest(frames=bytes(1 << 20)).SerializeToString()
    request = data.decode_publish_request(message)
    assert isinstance(request.data, memoryview)
    assert request.data.obj is message
    slash = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic="a/../b")).SerializeToString()
    with pytest.raises(InvalidArgument, match="NAMESPACE/NAME"):
        data.decode_publish_request(slash)


@pytest.mark.parametrize(("decode", "kind", "other", "field"), FRAME_DIRECTIONS)
@given(first=st.binary(max_size=200), second=st.binary(max_size=200), data=st.data())
def test_odd_spellings_mean_what_protobuf_says(decode, kind, other, field, first, second, data):
    """The field twice, beside the other kind in either order, beside unknown fields: the last of the oneof wins."""
    spellings = [
        kind(frames=first).SerializeToString(),
        kind(frames=second).SerializeToString(),
        kind(**{field: other}).SerializeToString(),
        b"\x78\x05",  # field 15, varint: of a newer protocol
        b"\x7a\x03abc",  # field 15, bytes
    ]
    message = b"".join(data.draw(st.lists(st.sampled_from(spellings), max_size=4)))
    expected = kind.FromString(message)
    if expected.WhichOneof(kind.DESCRIPTOR.oneofs[0].name) is None:
        with pytest.raises(Unsupported, match=kind.DESCRIPTOR.full_name):
            decode(message)
    elif expected.HasField("frames"):
        assert decode(message).data == expected.frames
    else:
        assert decode(message) == decode(kind(**{field: getattr(expected, field)}).SerializeToString())


@pytest.mark.parametrize(("decode", "kind", "other", "field"), FRAME_DIRECTIONS)
@given(message=st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(lambda tail: b"\x12" + tail)))
@example(message=b"\x12")
@example(message=b"\x12\x80\x00")
@example(message=b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00")
@example(message=b"\x12\xff\xff\xff\xff\x7f")
@example(message=b"\x12\x03ab")
def test_any_bytes_are_refused_or_read_exactly_as_protobuf_does(decode, kind, other, field, message):
    try:
        expected = kind.FromString(message)
    except Exception:  # noqa: BLE001  # protobuf's own errors, of any class
        with pytest.raises(InvalidArgument, match=kind.DESCRIPTOR.full_name):
            decode(message)
        return
    if expected.HasField("frames"):
        assert decode(message).data == expected.frames
