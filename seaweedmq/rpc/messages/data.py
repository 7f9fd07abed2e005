"""Encoding of the messages of the Data service: publish and subscribe streams."""

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, FrameHead, Frames
from seaweedmq.model.messages.publish import (
    FrameAck,
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
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.frames import read_frames, write_frames
from seaweedmq.rpc.v1 import data_pb2


def encode_publish_request(request: PublishRequest) -> bytes:
    """Encode a publish request.

    Raises:
        InvalidArgument: If a number is out of the protocol's range.
    """
    if isinstance(request, PublishFrames):
        return write_frames(request.data)
    if isinstance(request, FrameHead):
        return data_pb2.PublishRequest(head=request.header).SerializeToString()
    try:
        message = data_pb2.PublishRequest(
            open=data_pb2.PublishOpen(
                topic=str(request.topic),
                segment=request.segment,
                epoch=request.epoch,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                first_sequence=request.first_sequence,
                topic_uid=request.topic_uid,
            )
        )
    except ValueError as error:
        raise _out_of_range(request, error) from error
    return message.SerializeToString()


def decode_publish_request(data: Frames) -> PublishRequest:
    """Decode a publish request; ``PublishFrames.data`` is a view of ``data``.

    Raises:
        InvalidArgument: If the bytes are not such a request.
        Unsupported: If the request has a kind of a newer protocol, or none.
    """
    frames = read_frames(data)
    if frames is not None:
        return PublishFrames(frames)
    message = types.parse(data_pb2.PublishRequest, data)
    match message.WhichOneof("request"):
        case "frames":
            return PublishFrames(message.frames)
        case "head":
            return FrameHead(message.head)
        case "open":
            return PublishOpen(
                topic=TopicName.parse(message.open.topic),
                segment=message.open.segment,
                epoch=message.open.epoch,
                producer_id=message.open.producer_id,
                producer_epoch=message.open.producer_epoch,
                first_sequence=message.open.first_sequence,
                topic_uid=message.open.topic_uid,
            )
        case _:
            raise types.unknown_kind(message)


def encode_publish_reply(reply: PublishReply) -> bytes:
    """Encode a publish reply."""
    match reply:
        case PublishAck():
            message = data_pb2.PublishReply(ack=data_pb2.PublishAck(frames=[_write_ack(ack) for ack in reply.frames]))
        case PublishReady():
            message = data_pb2.PublishReply(
                ready=data_pb2.PublishReady(
                    next_sequence=reply.next_sequence,
                    frame_bytes_max=reply.frame_bytes_max,
                    in_flight_frames_max=reply.in_flight_frames_max,
                    in_flight_bytes_max=reply.in_flight_bytes_max,
                    message_bytes_max=reply.message_bytes_max,
                    is_new_epoch=reply.is_new_epoch,
                )
            )
        case PublishSealed():
            message = data_pb2.PublishReply(
                sealed=data_pb2.PublishSealed(
                    end_offset=reply.end_offset,
                    next_sequence=reply.next_sequence,
                    recent=[_write_ack(ack) for ack in reply.recent],
                    successors=reply.successors,
                    is_new_epoch=reply.is_new_epoch,
                )
            )
    return message.SerializeToString()


def decode_publish_reply(data: Frames) -> PublishReply:
    """Decode a publish reply.

    Raises:
        InvalidArgument: If the bytes are not such a reply.
        Unsupported: If the reply has a kind of a newer protocol, or none.
    """
    message = types.parse(data_pb2.PublishReply, data)
    match message.WhichOneof("reply"):
        case "ack":
            return PublishAck(tuple(_read_ack(ack) for ack in message.ack.frames))
        case "ready":
            return PublishReady(
                next_sequence=message.ready.next_sequence,
                frame_bytes_max=message.ready.frame_bytes_max,
                in_flight_frames_max=message.ready.in_flight_frames_max,
                in_flight_bytes_max=message.ready.in_flight_bytes_max,
                message_bytes_max=message.ready.message_bytes_max or LARGE_MESSAGE_BYTES,
                is_new_epoch=message.ready.is_new_epoch,
            )
        case "sealed":
            return PublishSealed(
                end_offset=message.sealed.end_offset,
                next_sequence=message.sealed.next_sequence,
                recent=tuple(_read_ack(ack) for ack in message.sealed.recent),
                successors=tuple(message.sealed.successors),
                is_new_epoch=message.sealed.is_new_epoch,
            )
        case _:
            raise types.unknown_kind(message)


def encode_subscribe_request(request: SubscribeRequest) -> bytes:
    """Encode a subscribe request.

    Raises:
        InvalidArgument: If a number is out of the protocol's range.
    """
    try:
        if isinstance(request, SubscribeCredit):
            message = data_pb2.SubscribeRequest(credit=data_pb2.SubscribeCredit(credit_bytes=request.credit_bytes))
        else:
            message = data_pb2.SubscribeRequest(
                open=data_pb2.SubscribeOpen(
                    topic=str(request.topic),
                    segment=request.segment,
                    start=types.START.write(request.start),
                    credit_bytes=request.credit_bytes,
                    topic_uid=request.topic_uid,
                    skip_missing=request.skip_missing,
                    takes_pieces=request.takes_pieces,
                )
            )
    except ValueError as error:
        raise _out_of_range(request, error) from error
    return message.SerializeToString()


def decode_subscribe_request(data: bytes) -> SubscribeRequest:
    """Decode a subscribe request.

    Raises:
        InvalidArgument: If the bytes are not such a request.
        Unsupported: If the request has a kind of a newer protocol, or none.
    """
    message = types.parse(data_pb2.SubscribeRequest, data)
    match message.WhichOneof("request"):
        case "credit":
            return SubscribeCredit(message.credit.credit_bytes)
        case "open":
            return SubscribeOpen(
                topic=TopicName.parse(message.open.topic),
                segment=message.open.segment,
                start=types.START.read(message.open.start),
                credit_bytes=message.open.credit_bytes,
                topic_uid=message.open.topic_uid,
                skip_missing=message.open.skip_missing,
                takes_pieces=message.open.takes_pieces,
            )
        case _:
            raise types.unknown_kind(message)


def encode_subscribe_reply(reply: SubscribeReply) -> bytes:
    """Encode a subscribe reply."""
    match reply:
        case SubscribeFrames():
            return write_frames(reply.data)
        case FrameHead():
            message = data_pb2.SubscribeReply(head=reply.header)
        case SubscribeReady():
            message = data_pb2.SubscribeReply(
                ready=data_pb2.SubscribeReady(start_offset=reply.start_offset, high_watermark=reply.high_watermark)
            )
        case SubscribeSkipped():
            message = data_pb2.SubscribeReply(
                skipped=data_pb2.SubscribeSkipped(start_offset=reply.start_offset, end_offset=reply.end_offset)
            )
        case SubscribeEnd():
            message = data_pb2.SubscribeReply(
                end=data_pb2.SubscribeEnd(end_offset=reply.end_offset, successors=reply.successors)
            )
    return message.SerializeToString()


def decode_subscribe_reply(data: bytes) -> SubscribeReply:
    """Decode a subscribe reply; ``SubscribeFrames.data`` is a view of ``data``.

    Raises:
        InvalidArgument: If the bytes are not such a reply.
        Unsupported: If the reply has a kind of a newer protocol, or none.
    """
    frames = read_frames(data)
    if frames is not None:
        return SubscribeFrames(frames)
    message = types.parse(data_pb2.SubscribeReply, data)
    match message.WhichOneof("reply"):
        case "frames":
            return SubscribeFrames(message.frames)
        case "head":
            return FrameHead(message.head)
        case "ready":
            return SubscribeReady(start_offset=message.ready.start_offset, high_watermark=message.ready.high_watermark)
        case "skipped":
            return SubscribeSkipped(start_offset=message.skipped.start_offset, end_offset=message.skipped.end_offset)
        case "end":
            return SubscribeEnd(end_offset=message.end.end_offset, successors=tuple(message.end.successors))
        case _:
            raise types.unknown_kind(message)


def _out_of_range(request: object, error: ValueError) -> InvalidArgument:
    return InvalidArgument(f"{type(request).__name__} was not sent, {error}: correct the value")


def _write_ack(ack: FrameAck) -> data_pb2.FrameAck:
    return data_pb2.FrameAck(
        first_sequence=ack.first_sequence, record_count=ack.record_count, base_offset=ack.base_offset
    )


def _read_ack(message: data_pb2.FrameAck) -> FrameAck:
    return FrameAck(message.first_sequence, message.record_count, message.base_offset)
