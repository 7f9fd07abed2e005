"""Calls of the Cluster service between brokers, and the messages of replicate streams and load reports."""

from typing import Any

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.calls import (
    Fence,
    LocalStats,
    LogEnds,
    NoteProgress,
    ReportEmptied,
    ReportSuspicions,
    Seal,
    WriteOut,
)
from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES, FrameHead, Frames
from seaweedmq.model.messages.replication import (
    FenceReply,
    ReplicateFrames,
    ReplicateHeld,
    ReplicateOpen,
    ReplicateReply,
    ReplicateRequest,
    SealedLog,
    SegmentRef,
)
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.frames import read_frames, write_frames
from seaweedmq.rpc.messages.unary import Unary, nothing
from seaweedmq.rpc.transport import CLUSTER_SERVICE
from seaweedmq.rpc.v1 import cluster_pb2, types_pb2


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
    assert sealed.sequences_complete, (
        "a log sealed from memory has all producer states: the protocol cannot express a partial set"
    )
    return cluster_pb2.SealedLog(end_offset=sealed.end_offset, sequences=types.write_sequences(sealed.sequences))


def _read_sealed(message: cluster_pb2.SealedLog) -> SealedLog:
    return SealedLog(end_offset=message.end_offset, sequences=types.read_sequences(message.sequences))


CALLS: tuple[Unary[Any, Any], ...] = (
    Unary(
        call=LocalStats,
        service=CLUSTER_SERVICE,
        name="LocalStats",
        request=cluster_pb2.LocalStatsRequest,
        reply=cluster_pb2.LocalStatsReply,
        write_request=lambda c: cluster_pb2.LocalStatsRequest(name=str(c.name), topic_uid=c.topic_uid),
        read_request=lambda m: LocalStats(TopicName.parse(m.name), m.topic_uid),
        write_reply=lambda stats: cluster_pb2.LocalStatsReply(segments=[types.write_stats(s) for s in stats]),
        read_reply=lambda m: tuple(types.read_stats(stats) for stats in m.segments),
    ),
    Unary(
        call=LogEnds,
        service=CLUSTER_SERVICE,
        name="LogEnds",
        request=cluster_pb2.LogEndsRequest,
        reply=cluster_pb2.LogEndsReply,
        write_request=lambda c: cluster_pb2.LogEndsRequest(topic=str(c.name), uid=c.topic_uid, revision=c.revision),
        read_request=lambda m: LogEnds(TopicName.parse(m.topic), m.uid, m.revision),
        write_reply=lambda ends: cluster_pb2.LogEndsReply(end_offsets=ends),
        read_reply=lambda m: dict(m.end_offsets),
    ),
    Unary(
        call=NoteProgress,
        service=CLUSTER_SERVICE,
        name="NoteProgress",
        request=cluster_pb2.Progress,
        reply=cluster_pb2.ProgressReply,
        write_request=lambda c: cluster_pb2.Progress(ref=_write_ref(c.ref), committed=c.committed, flushed=c.flushed),
        read_request=lambda m: NoteProgress(ref=_read_ref(m.ref), committed=m.committed, flushed=m.flushed),
        write_reply=lambda _: cluster_pb2.ProgressReply(),
        read_reply=nothing,
    ),
    Unary(
        call=Fence,
        service=CLUSTER_SERVICE,
        name="Fence",
        request=cluster_pb2.SegmentRef,
        reply=cluster_pb2.FenceReply,
        write_request=lambda c: _write_ref(c.ref),
        read_request=lambda m: Fence(_read_ref(m)),
        write_reply=lambda reply: cluster_pb2.FenceReply(end_offset=reply.end_offset),
        read_reply=lambda m: FenceReply(end_offset=m.end_offset if m.HasField("end_offset") else None),
    ),
    Unary(
        call=WriteOut,
        service=CLUSTER_SERVICE,
        name="WriteOut",
        request=cluster_pb2.WriteOutRequest,
        reply=cluster_pb2.SealedLog,
        write_request=lambda c: cluster_pb2.WriteOutRequest(ref=_write_ref(c.ref), end_offset=c.end_offset),
        read_request=lambda m: WriteOut(_read_ref(m.ref), m.end_offset),
        write_reply=_write_sealed,
        read_reply=_read_sealed,
    ),
    Unary(
        call=Seal,
        service=CLUSTER_SERVICE,
        name="Seal",
        request=cluster_pb2.SegmentRef,
        reply=cluster_pb2.SealedLog,
        write_request=lambda c: _write_ref(c.ref),
        read_request=lambda m: Seal(_read_ref(m)),
        write_reply=_write_sealed,
        read_reply=_read_sealed,
    ),
    Unary(
        call=ReportSuspicions,
        service=CLUSTER_SERVICE,
        name="Suspect",
        request=cluster_pb2.Suspicions,
        reply=cluster_pb2.SuspectReply,
        write_request=lambda c: cluster_pb2.Suspicions(
            refs=map(_write_ref, c.refs), suspect=c.suspect, reason=c.reason
        ),
        read_request=lambda m: ReportSuspicions(refs=tuple(map(_read_ref, m.refs)), suspect=m.suspect, reason=m.reason),
        write_reply=lambda _: cluster_pb2.SuspectReply(),
        read_reply=nothing,
    ),
    Unary(
        call=ReportEmptied,
        service=CLUSTER_SERVICE,
        name="ReportEmptied",
        request=cluster_pb2.Emptied,
        reply=cluster_pb2.ReportEmptiedReply,
        write_request=lambda c: cluster_pb2.Emptied(topic=str(c.topic), topic_uid=c.topic_uid, segments=c.segments),
        read_request=lambda m: ReportEmptied(
            topic=TopicName.parse(m.topic), topic_uid=m.topic_uid, segments=tuple(m.segments)
        ),
        write_reply=lambda _: cluster_pb2.ReportEmptiedReply(),
        read_reply=nothing,
    ),
)


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
        opening = cluster_pb2.ReplicateOpen(ref=_write_ref(request.ref), primary=request.primary)
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
            return ReplicateOpen(ref=_read_ref(message.open.ref), primary=message.open.primary)
        case _:
            raise types.unknown_kind(message)


def encode_replicate_reply(reply: ReplicateReply) -> bytes:
    """Encode a replicate reply."""
    message = cluster_pb2.ReplicateReply(end_offset=reply.end_offset, message_bytes_max=reply.message_bytes_max)
    return message.SerializeToString()


def decode_replicate_reply(data: Frames) -> ReplicateReply:
    """Decode a replicate reply.

    Raises:
        InvalidArgument: If the bytes are not such a reply.
    """
    message = types.parse(cluster_pb2.ReplicateReply, data)
    return ReplicateHeld(
        end_offset=message.end_offset, message_bytes_max=message.message_bytes_max or SMALL_MESSAGE_BYTES
    )


def encode_load(load: BrokerLoad) -> bytes:
    """Encode a load report."""
    return types.write_load(load).SerializeToString()


def decode_load(data: bytes) -> BrokerLoad:
    """Decode a load report.

    Raises:
        InvalidArgument: If the bytes are not such a report.
    """
    return types.read_load(types.parse(types_pb2.BrokerLoad, data))
