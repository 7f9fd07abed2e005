"""Encoding of the messages of the Groups service: the stream of a member."""

from typing import Any

from google.protobuf.message import Message

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.groups import (
    GroupAssignment,
    GroupCommit,
    GroupCommitted,
    GroupLeave,
    GroupOpen,
    GroupReleased,
    GroupReply,
    GroupRequest,
)
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.converter import Converter, converter_of
from seaweedmq.rpc.v1 import groups_pb2

_FIELDS = {
    GroupOpen: "open",
    GroupCommit: "commit",
    GroupReleased: "released",
    GroupLeave: "leave",
    GroupAssignment: "assignment",
    GroupCommitted: "committed",
}
"""Kind of message -> its field in the oneof of ``GroupRequest`` or ``GroupReply``."""
_CONVERTERS: dict[str, Converter[Any, Any]] = {
    name: converter_of(kind, getattr(groups_pb2, kind.__name__)) for kind, name in _FIELDS.items()
}


def encode_group_request(request: GroupRequest) -> bytes:
    """Encode a member's request.

    Raises:
        InvalidArgument: If a number is out of the protocol's range.
    """
    try:
        return _encode(groups_pb2.GroupRequest, request)
    except ValueError as error:
        raise InvalidArgument(f"{type(request).__name__} was not sent, {error}: correct the value") from error


def decode_group_request(data: bytes) -> GroupRequest:
    """Decode a member's request.

    Raises:
        InvalidArgument: If the bytes are not such a request.
        Unsupported: If the request has a kind of a newer protocol, or none.
    """
    message = types.parse(groups_pb2.GroupRequest, data)
    return _read(message, message.WhichOneof("request"))  # type: ignore[no-any-return]


def encode_group_reply(reply: GroupReply) -> bytes:
    """Encode a coordinator's reply."""
    return _encode(groups_pb2.GroupReply, reply)


def decode_group_reply(data: bytes) -> GroupReply:
    """Decode a coordinator's reply.

    Raises:
        InvalidArgument: If the bytes are not such a reply.
        Unsupported: If the reply has a kind of a newer protocol, or none.
    """
    message = types.parse(groups_pb2.GroupReply, data)
    return _read(message, message.WhichOneof("reply"))  # type: ignore[no-any-return]


def _encode(message: type[Message], value: GroupRequest | GroupReply) -> bytes:
    name = _FIELDS[type(value)]
    return message(**{name: _CONVERTERS[name].write(value)}).SerializeToString()


def _read(message: Message, name: str | None) -> Any:
    if name is None:
        raise types.unknown_kind(message)
    return _CONVERTERS[name].read(getattr(message, name))
