"""Encoding of the messages of a stream: each kind of value has its own field in the oneof of the message."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.frames import Frames
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.converter import converter_of
from seaweedmq.rpc.messages.frames import read_frames, write_frames

V = TypeVar("V")


class OneofCodec(Generic[V]):
    """A codec of values of several kinds; a kind whose field is bytes, such as frames, has one attribute, the bytes."""

    def __init__(self, message: type[Message], kinds: Mapping[str, type[Any]]) -> None:
        """Derive the codec of a message from the kind of each field of its oneof."""
        (self._oneof,) = message.DESCRIPTOR.oneofs_by_name
        self._message = message
        self._frames = kinds.get("frames")
        self._writers: dict[type[Any], tuple[str, Callable[[Any], Any]]] = {}
        self._readers: dict[str, Callable[[Any], Any]] = {}
        for name, kind in kinds.items():
            content: Any = message.DESCRIPTOR.fields_by_name[name].message_type
            if content is None:
                self._writers[kind], self._readers[name] = (name, attrgetter(fields(kind)[0].name)), kind
            else:
                converter = converter_of(kind, GetMessageClass(content))
                self._writers[kind], self._readers[name] = (name, converter.write), converter.read

    def encode(self, value: V) -> bytes:
        """Encode a value."""
        if type(value) is self._frames:
            return write_frames(value.data)  # type: ignore[attr-defined]
        name, write = self._writers[type(value)]
        return self._message(**{name: write(value)}).SerializeToString()

    def decode(self, data: Frames) -> V:
        """Decode a message; frames are a view of ``data``.

        Raises:
            InvalidArgument: If the bytes are not such a message.
            Unsupported: If the message has a kind of a newer protocol, or none.
        """
        if self._frames is not None and (frames := read_frames(data)) is not None:
            return self._frames(frames)  # type: ignore[no-any-return]
        message = types.parse(self._message, data)
        name = message.WhichOneof(self._oneof)
        if name is None:
            raise types.unknown_kind(message)
        return self._readers[name](getattr(message, name))  # type: ignore[no-any-return]


class RequestCodec(OneofCodec[V]):
    """A codec of requests, whose values come from callers."""

    def encode(self, value: V) -> bytes:
        """Encode a request; InvalidArgument if a number is out of the protocol's range."""
        try:
            return super().encode(value)
        except ValueError as error:
            raise InvalidArgument(f"{type(value).__name__} was not sent, {error}: correct the value") from error
