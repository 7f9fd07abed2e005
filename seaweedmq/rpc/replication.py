"""Replication on the wire: the unary calls between replicas and the leader, and the replicate stream."""

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.frames import SMALL_MESSAGE_BYTES, FrameHead
from seaweedmq.model.replication import (
    Emptied,
    FenceReply,
    Progress,
    ReplicateFrames,
    ReplicateHeld,
    ReplicateOpen,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
    Suspicion,
)
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc import messages
from seaweedmq.rpc.methods import Unary
from seaweedmq.rpc.transport import CLUSTER_SERVICE
from seaweedmq.rpc.v1 import cluster_pb2
from seaweedmq.rpc.wire import read_frames, write_frames


def _write_ref(ref: SegmentRef) -> cluster_pb2.SegmentRef:
    return cluster_pb2.SegmentRef(topic=str(ref.topic), segment=ref.segment, epoch=ref.epoch, topic_uid=ref.topic_uid)


def _read_ref(message: cluster_pb2.SegmentRef) -> SegmentRef:
    return SegmentRef(
        topic=TopicName.parse(message.topic),
        topic_uid=message.topic_uid,
        segment=message.segment,
        epoch=message.epoch,
    )


def _write_sealed(sealed: SealedLog) -> cluster_pb2.SealedLog:
    return cluster_pb2.SealedLog(end_offset=sealed.end_offset, sequences=messages.write_sequences(sealed.sequences))


def _read_sealed(message: cluster_pb2.SealedLog) -> SealedLog:
    return SealedLog(end_offset=message.end_offset, sequences=messages.read_sequences(message.sequences))


NOTE_PROGRESS: Unary[Progress, None] = Unary(
    service=CLUSTER_SERVICE,
    name="NoteProgress",
    request=cluster_pb2.Progress,
    reply=cluster_pb2.ProgressReply,
    write_request=lambda p: cluster_pb2.Progress(ref=_write_ref(p.ref), committed=p.committed, flushed=p.flushed),
    read_request=lambda m: Progress(ref=_read_ref(m.ref), committed=m.committed, flushed=m.flushed),
    write_reply=lambda _: cluster_pb2.ProgressReply(),
    read_reply=lambda _: None,
)
FENCE: Unary[SegmentRef, FenceReply] = Unary(
    service=CLUSTER_SERVICE,
    name="Fence",
    request=cluster_pb2.SegmentRef,
    reply=cluster_pb2.FenceReply,
    write_request=_write_ref,
    read_request=_read_ref,
    write_reply=lambda reply: cluster_pb2.FenceReply(end_offset=reply.end_offset),
    read_reply=lambda m: FenceReply(end_offset=m.end_offset if m.HasField("end_offset") else None),
)
WRITE_OUT: Unary[tuple[SegmentRef, int], SealedLog] = Unary(
    service=CLUSTER_SERVICE,
    name="WriteOut",
    request=cluster_pb2.WriteOutRequest,
    reply=cluster_pb2.SealedLog,
    write_request=lambda r: cluster_pb2.WriteOutRequest(ref=_write_ref(r[0]), end_offset=r[1]),
    read_request=lambda m: (_read_ref(m.ref), m.end_offset),
    write_reply=_write_sealed,
    read_reply=_read_sealed,
)
SEAL: Unary[SegmentRef, SealedLog] = Unary(
    service=CLUSTER_SERVICE,
    name="Seal",
    request=cluster_pb2.SegmentRef,
    reply=cluster_pb2.SealedLog,
    write_request=_write_ref,
    read_request=_read_ref,
    write_reply=_write_sealed,
    read_reply=_read_sealed,
)
SUSPECT: Unary[Suspicion, None] = Unary(
    service=CLUSTER_SERVICE,
    name="Suspect",
    request=cluster_pb2.Suspicion,
    reply=cluster_pb2.SuspectReply,
    write_request=lambda s: cluster_pb2.Suspicion(ref=_write_ref(s.ref), suspect=s.suspect, reason=s.reason),
    read_request=lambda m: Suspicion(ref=_read_ref(m.ref), suspect=m.suspect, reason=m.reason),
    write_reply=lambda _: cluster_pb2.SuspectReply(),
    read_reply=lambda _: None,
)
REPORT_EMPTIED: Unary[Emptied, None] = Unary(
    service=CLUSTER_SERVICE,
    name="ReportEmptied",
    request=cluster_pb2.Emptied,
    reply=cluster_pb2.ReportEmptiedReply,
    write_request=lambda e: cluster_pb2.Emptied(topic=str(e.topic), topic_uid=e.uid, segments=e.segments),
    read_request=lambda m: Emptied(topic=TopicName.parse(m.topic), uid=m.topic_uid, segments=tuple(m.segments)),
    write_reply=lambda _: cluster_pb2.ReportEmptiedReply(),
    read_reply=lambda _: None,
)


def encode_replicate_request(request: ReplicateRequest) -> bytes:
    """Raises InvalidArgument if a number is out of the protocol's range."""
    if isinstance(request, ReplicateFrames):
        return write_frames(request.data)
    if isinstance(request, FrameHead):
        return cluster_pb2.ReplicateRequest(head=request.header).SerializeToString()
    try:
        ref = SegmentRef(topic=request.topic, topic_uid=request.topic_uid, segment=request.segment, epoch=request.epoch)
        opening = cluster_pb2.ReplicateOpen(ref=_write_ref(ref), primary=request.primary)
    except ValueError as error:
        raise InvalidArgument(f"ReplicateOpen refused before it was sent: {error}; correct the value") from error
    return cluster_pb2.ReplicateRequest(open=opening).SerializeToString()


def decode_replicate_request(data: bytes) -> ReplicateRequest:
    """``ReplicateFrames.data`` is a view of ``data``. Raises InvalidArgument."""
    frames = read_frames(data)
    if frames is not None:
        return ReplicateFrames(frames)
    message = messages.parse(cluster_pb2.ReplicateRequest, data)
    match message.WhichOneof("request"):
        case "frames":
            return ReplicateFrames(message.frames)
        case "head":
            return FrameHead(message.head)
    ref = _read_ref(message.open.ref)
    return ReplicateOpen(
        topic=ref.topic,
        topic_uid=ref.topic_uid,
        segment=ref.segment,
        epoch=ref.epoch,
        primary=message.open.primary,
    )


def encode_replicate_reply(reply: ReplicateReply) -> bytes:
    """Protobuf bytes."""
    message = cluster_pb2.ReplicateReply(end_offset=reply.end_offset, message_bytes_max=reply.message_bytes_max)
    return message.SerializeToString()


def decode_replicate_reply(data: bytes) -> ReplicateReply:
    """Raises InvalidArgument."""
    message = messages.parse(cluster_pb2.ReplicateReply, data)
    return ReplicateHeld(
        end_offset=message.end_offset, message_bytes_max=message.message_bytes_max or SMALL_MESSAGE_BYTES
    )
