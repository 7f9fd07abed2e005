"""Description of a unary call for both sides: the encodings of its request and reply, and its deadline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.calls import Call
from seaweedmq.rpc.messages import types

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
    write_request: Callable[[Q], Message]
    read_request: Callable[[Any], Q]
    write_reply: Callable[[R], Message]
    read_reply: Callable[[Any], R]
    timeout_s: float | None = None
    """Deadline in seconds of a slow call; None: the dialer's."""

    @property
    def path(self) -> str:
        """Path of the method in the HTTP/2 header."""
        return f"/{self.service}/{self.name}"

    def encode_request(self, value: Q) -> bytes:
        """Encode a call.

        Raises:
            InvalidArgument: If a number is out of the protocol's range.
        """
        try:
            return self.write_request(value).SerializeToString()
        except ValueError as error:
            raise InvalidArgument(f"{self.name} was not sent, {error}: correct the value") from error

    def decode_request(self, data: bytes) -> Q:
        """Decode a call.

        Raises:
            InvalidArgument: If the bytes are not such a request.
            Unsupported: If the request needs a newer protocol.
        """
        return self.read_request(types.parse(self.request, data))

    def encode_reply(self, value: R) -> bytes:
        """Encode a reply."""
        return self.write_reply(value).SerializeToString()

    def decode_reply(self, data: bytes) -> R:
        """Decode a reply.

        Raises:
            InvalidArgument: If the bytes are not such a reply.
            Unsupported: If the reply needs a newer protocol.
        """
        return self.read_reply(types.parse(self.reply, data))


def nothing(_: Message) -> None:
    """Decode an empty reply."""
