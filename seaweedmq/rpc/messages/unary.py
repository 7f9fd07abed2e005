"""Description of a unary call for both sides: the encodings of its request and reply, and its deadline."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.calls import Call
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.converter import Converter, converter_of, result_converter

Q = TypeVar("Q", bound=Call[Any])
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Generic[Q, R]):
    """A method that takes a call ``Q`` and returns an ``R``; on the wire both are protobuf messages."""

    call: type[Q]
    service: str
    name: str
    request: type[Message]
    reply: type[Message]
    call_converter: Converter[Q, Message]
    result_converter: Converter[R, Message]
    timeout_s: float | None = None
    """Deadline in seconds of a slow call; None: the dialer's."""

    @property
    def path(self) -> str:
        """Path of the method in the HTTP/2 header."""
        return f"/{self.service}/{self.name}"

    def encode_request(self, value: Q) -> bytes:
        """Encode a call; InvalidArgument if a number is out of the protocol's range."""
        try:
            return self.call_converter.write(value).SerializeToString()
        except ValueError as error:
            raise InvalidArgument(f"{self.name} was not sent, {error}: correct the value") from error

    def decode_request(self, data: bytes) -> Q:
        """Decode a call; InvalidArgument if the bytes are not one, Unsupported if it needs a newer protocol."""
        return self.call_converter.read(types.parse(self.request, data))

    def encode_reply(self, value: R) -> bytes:
        """Encode a reply."""
        return self.result_converter.write(value).SerializeToString()

    def decode_reply(self, data: bytes) -> R:
        """Decode a reply, with the errors of :meth:`decode_request`."""
        return self.result_converter.read(types.parse(self.reply, data))


def unary(service: str, call: type[Call[R]], name: str = "", *, timeout_s: float | None = None) -> Unary[Any, R]:
    """Return the method of a call; its encodings follow from the fields of the call and from the type of its result."""
    method = Default().FindMethodByName(f"{service}.{name or call.__name__}")
    request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    (result,) = get_args(call.__orig_bases__[0])  # type: ignore[attr-defined]
    return Unary(
        call=call,
        service=service,
        name=method.name,
        request=request,
        reply=reply,
        call_converter=converter_of(call, request),
        result_converter=result_converter(result, reply),
        timeout_s=timeout_s,
    )
