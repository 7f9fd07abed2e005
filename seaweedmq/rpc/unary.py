"""A unary call, described once for both sides: how its request and its reply travel, and how long it may take."""

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
    """One method: a call ``Q`` that is answered with an ``R``; on the wire both are protobuf messages."""

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
    """Deadline of a call that may take longer than others."""

    @property
    def path(self) -> str:
        """As in the HTTP/2 header."""
        return f"/{self.service}/{self.name}"

    def encode_request(self, value: Q) -> bytes:
        """Raises InvalidArgument if a number is out of the protocol's range."""
        try:
            return self.write_request(value).SerializeToString()
        except ValueError as error:
            raise InvalidArgument(f"{self.name} refused before it was sent: {error}; correct the value") from error

    def decode_request(self, data: bytes) -> Q:
        """Raises InvalidArgument or Unsupported if the bytes are no such request."""
        return self.read_request(types.parse(self.request, data))

    def encode_reply(self, value: R) -> bytes:
        return self.write_reply(value).SerializeToString()

    def decode_reply(self, data: bytes) -> R:
        return self.read_reply(types.parse(self.reply, data))


def nothing(_: Message) -> None:
    """Reads a reply that says no more than that it was done."""
