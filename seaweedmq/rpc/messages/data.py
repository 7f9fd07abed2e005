"""Encoding of the messages of the Data service: publish and subscribe streams."""

from seaweedmq.model.messages.frames import FrameHead
from seaweedmq.model.messages.publish import (
    PublishAck,
    PublishFrames,
    PublishOpen,
    PublishReady,
    PublishReply,
    PublishRequest,
    PublishSealed,
)
from seaweedmq.model.messages.subscribe import (
    SubscribeCredit,
    SubscribeEnd,
    SubscribeFrames,
    SubscribeOpen,
    SubscribeReady,
    SubscribeReply,
    SubscribeRequest,
    SubscribeSkipped,
)
from seaweedmq.rpc.messages.oneof import OneofCodec, RequestCodec
from seaweedmq.rpc.v1 import data_pb2

_PUBLISH_REQUEST = RequestCodec[PublishRequest](
    data_pb2.PublishRequest, {"open": PublishOpen, "frames": PublishFrames, "head": FrameHead}
)
_PUBLISH_REPLY = OneofCodec[PublishReply](
    data_pb2.PublishReply, {"ready": PublishReady, "ack": PublishAck, "sealed": PublishSealed}
)
_SUBSCRIBE_REQUEST = RequestCodec[SubscribeRequest](
    data_pb2.SubscribeRequest, {"open": SubscribeOpen, "credit": SubscribeCredit}
)
_SUBSCRIBE_REPLY = OneofCodec[SubscribeReply](
    data_pb2.SubscribeReply,
    {
        "ready": SubscribeReady,
        "frames": SubscribeFrames,
        "head": FrameHead,
        "skipped": SubscribeSkipped,
        "end": SubscribeEnd,
    },
)

encode_publish_request, decode_publish_request = _PUBLISH_REQUEST.encode, _PUBLISH_REQUEST.decode
encode_publish_reply, decode_publish_reply = _PUBLISH_REPLY.encode, _PUBLISH_REPLY.decode
encode_subscribe_request, decode_subscribe_request = _SUBSCRIBE_REQUEST.encode, _SUBSCRIBE_REQUEST.decode
encode_subscribe_reply, decode_subscribe_reply = _SUBSCRIBE_REPLY.encode, _SUBSCRIBE_REPLY.decode
