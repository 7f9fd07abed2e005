"""Encoding of the streams of the Cluster service: replicate streams and load reports."""

from seaweedmq.errors import InvalidArgument
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
from seaweedmq.rpc.messages.frames import read_frames, write_frames
from seaweedmq.rpc.v1 import cluster_pb2, types_pb2

_OPEN = converter_of(ReplicateOpen, cluster_pb2.ReplicateOpen)
_HELD = converter_of(ReplicateHeld, cluster_pb2.ReplicateReply)
_LOAD = converter_of(BrokerLoad, types_pb2.BrokerLoad)


def encode_replicate_request(request: ReplicateRequest) -> bytes:
    """Encode a replicate request.

    Raises:
        InvalidArgument: If a number is out of the protocol's range.
    """
    if isinstance(request, ReplicateFrames):
        return write_frames(request.data)
    if isinstance(request, FrameHead):
        return cluster_pb2.ReplicateRequest(head=request.header).SerializeToString()
    try:
        opening = _OPEN.write(request)
    except ValueError as error:
        raise InvalidArgument(f"ReplicateOpen was not sent, {error}: correct the value") from error
    return cluster_pb2.ReplicateRequest(open=opening).SerializeToString()


def decode_replicate_request(data: Frames) -> ReplicateRequest:
    """Decode a replicate request; ``ReplicateFrames.data`` is a view of ``data``.

    Raises:
        InvalidArgument: If the bytes are not such a request.
        Unsupported: If the request has a kind of a newer protocol, or none.
    """
    frames = read_frames(data)
    if frames is not None:
        return ReplicateFrames(frames)
    message = types.parse(cluster_pb2.ReplicateRequest, data)
    match message.WhichOneof("request"):
        case "frames":
            return ReplicateFrames(message.frames)
        case "head":
            return FrameHead(message.head)
        case "open":
            return _OPEN.read(message.open)
        case _:
            raise types.unknown_kind(message)


def encode_replicate_reply(reply: ReplicateReply) -> bytes:
    """Encode a replicate reply."""
    return _HELD.write(reply).SerializeToString()


def decode_replicate_reply(data: Frames) -> ReplicateReply:
    """Decode a replicate reply.

    Raises:
        InvalidArgument: If the bytes are not such a reply.
    """
    return _HELD.read(types.parse(cluster_pb2.ReplicateReply, data))


def encode_load(load: BrokerLoad) -> bytes:
    """Encode a load report."""
    return _LOAD.write(load).SerializeToString()


def decode_load(data: bytes) -> BrokerLoad:
    """Decode a load report.

    Raises:
        InvalidArgument: If the bytes are not such a report.
    """
    return _LOAD.read(types.parse(types_pb2.BrokerLoad, data))
