"""Encoding of the streams of the Cluster service: replicate streams and load reports."""

from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.frames import FrameHead, Frames
from seaweedmq.model.messages.replication import (
    ReplicateFrames,
    ReplicateHeld,
    ReplicateOpen,
    ReplicateReply,
    ReplicateRequest,
)
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.converter import converter_of
from seaweedmq.rpc.messages.oneof import RequestCodec
from seaweedmq.rpc.v1 import cluster_pb2, types_pb2

_REQUEST = RequestCodec[ReplicateRequest](
    cluster_pb2.ReplicateRequest, {"open": ReplicateOpen, "frames": ReplicateFrames, "head": FrameHead}
)
_HELD = converter_of(ReplicateHeld, cluster_pb2.ReplicateReply)
_LOAD = converter_of(BrokerLoad, types_pb2.BrokerLoad)

encode_replicate_request, decode_replicate_request = _REQUEST.encode, _REQUEST.decode


def encode_replicate_reply(reply: ReplicateReply) -> bytes:
    """Encode a replicate reply."""
    return _HELD.write(reply).SerializeToString()


def decode_replicate_reply(data: Frames) -> ReplicateReply:
    """Decode a replicate reply."""
    return _HELD.read(types.parse(cluster_pb2.ReplicateReply, data))


def encode_load(load: BrokerLoad) -> bytes:
    """Encode a load report."""
    return _LOAD.write(load).SerializeToString()


def decode_load(data: bytes) -> BrokerLoad:
    """Decode a load report."""
    return _LOAD.read(types.parse(types_pb2.BrokerLoad, data))
