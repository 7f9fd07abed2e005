"""Encoding of the messages of the Data service: publish and subscribe streams."""

from seaweedmq.model.messages import publish, subscribe
from seaweedmq.model.messages.frames import FrameHead
from seaweedmq.rpc.messages.oneof import OneofCodec, RequestCodec
from seaweedmq.rpc.v1 import data_pb2

_PUBLISH_REQUEST = RequestCodec[publish.PublishRequest](
    data_pb2.PublishRequest, {"open": publish.PublishOpen, "frames": publish.PublishFrames, "head": FrameHead}
)
_PUBLISH_REPLY = OneofCodec[publish.PublishReply](
    data_pb2.PublishReply, {"ready": publish.PublishReady, "ack": publish.PublishAck, "sealed": publish.PublishSealed}
)
_SUBSCRIBE_REQUEST = RequestCodec[subscribe.SubscribeRequest](
    data_pb2.SubscribeRequest, {"open": subscribe.SubscribeOpen, "credit": subscribe.SubscribeCredit}
)
_SUBSCRIBE_REPLY = OneofCodec[subscribe.SubscribeReply](
    data_pb2.SubscribeReply,
    {
        "ready": subscribe.SubscribeReady,
        "frames": subscribe.SubscribeFrames,
        "head": FrameHead,
        "skipped": subscribe.SubscribeSkipped,
        "end": subscribe.SubscribeEnd,
    },
)

encode_publish_request, decode_publish_request = _PUBLISH_REQUEST.encode, _PUBLISH_REQUEST.decode
encode_publish_reply, decode_publish_reply = _PUBLISH_REPLY.encode, _PUBLISH_REPLY.decode
encode_subscribe_request, decode_subscribe_request = _SUBSCRIBE_REQUEST.encode, _SUBSCRIBE_REQUEST.decode
encode_subscribe_reply, decode_subscribe_reply = _SUBSCRIBE_REPLY.encode, _SUBSCRIBE_REPLY.decode
