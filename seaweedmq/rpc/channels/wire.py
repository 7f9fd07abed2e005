"""Encoding of envelopes: the hot path.

This module encodes and decodes messages in an ``Envelope`` of ``proto/seaweedmq/v1/channels.proto`` without protobuf.
So a payload is copied once when it is sent and not at all when it is received. The bytes written are those that
protobuf writes. protobuf handles sections of other kinds, and every unusual encoding.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.frames import Frames
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.v1 import channels_pb2

_SECTION_TAG: Final = 1 << 3 | 2
_CHANNEL_TAG: Final = 1 << 3
_MESSAGE_TAG: Final = 2 << 3 | 2
PINNED_PART: Final = 2
"""Divisor of the envelope's size: a smaller message is copied, since a view would keep the envelope in memory."""


class Message(NamedTuple):
    """A message on a channel; the first one with a number opens the channel."""

    channel: int
    data: Frames


class End(NamedTuple):
    """The end of one direction: the sender sends no further message on the channel, and still receives."""

    channel: int


class Status(NamedTuple):
    """The end of a channel in both directions."""

    channel: int
    code: str = ""
    """Code of an error; "" if there is none."""
    text: str = ""


class Credit(NamedTuple):
    """A number of message bytes that the receiver has taken out of its queue."""

    channel: int
    size_bytes: int


class Ahead(NamedTuple):
    """A number of bytes that all channels together may send beyond the window of each."""

    size_bytes: int


Section: TypeAlias = Message | End | Status | Credit | Ahead


def write_envelope(sections: Iterable[Section]) -> bytes:
    """Encode a ``seaweedmq.v1.Envelope``."""
    parts: list[Frames] = []
    for section in sections:
        if isinstance(section, Message):
            size = len(section.data)
            head = b"%c%b%c%b" % (_CHANNEL_TAG, _varint(section.channel), _MESSAGE_TAG, _varint(size))
            parts.append(b"%c%b%b" % (_SECTION_TAG, _varint(len(head) + size), head))
            parts.append(section.data)
        else:
            data = _section(section).SerializeToString()
            parts.append(b"%c%b%b" % (_SECTION_TAG, _varint(len(data)), data))
    return b"".join(parts)


def read_envelope(data: bytes) -> list[Section]:
    """Decode an envelope, or raise InvalidArgument or Unsupported; large messages are views of ``data``."""
    found: list[Section] = []
    at, end = 0, len(data)
    view = memoryview(data)
    try:
        while at < end:
            if data[at] != _SECTION_TAG:
                raise _no_envelope(data)
            length, at = _read_varint(data, at + 1)
            if at + length > end:
                raise _no_envelope(data)
            found.append(_message(data, view, at, at + length) or _read_section(data[at : at + length]))
            at += length
    except IndexError:
        raise _no_envelope(data) from None
    return found


def _message(data: bytes, view: memoryview, at: int, end: int) -> Message | None:
    """Return the section if it is a message as written by this module, otherwise None."""
    if data[at] != _CHANNEL_TAG:
        return None
    channel, at = _read_varint(data, at + 1)
    if at >= end or data[at] != _MESSAGE_TAG:
        return None
    length, at = _read_varint(data, at + 1)
    if at + length != end:
        return None
    return Message(channel, data[at:end] if length * PINNED_PART < len(data) else view[at:end])


def _read_section(data: bytes) -> Section:
    section = types.parse(channels_pb2.Section, data)
    match section.WhichOneof("content"):
        case "message":
            return Message(section.channel, section.message)
        case "end":
            return End(section.channel)
        case "status":
            return Status(section.channel, section.status.code, section.status.text)
        case "credit":
            return Credit(section.channel, section.credit)
        case "ahead":
            return Ahead(section.ahead)
        case _:
            raise types.unknown_kind(section)


def _section(section: End | Status | Credit | Ahead) -> channels_pb2.Section:
    match section:
        case End():
            return channels_pb2.Section(channel=section.channel, end=True)
        case Status():
            status = channels_pb2.Status(code=section.code, text=section.text)
            return channels_pb2.Section(channel=section.channel, status=status)
        case Credit():
            return channels_pb2.Section(channel=section.channel, credit=section.size_bytes)
        case Ahead():
            return channels_pb2.Section(ahead=section.size_bytes)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return b"%c" % number
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number and the position after it; IndexError if the data ends before."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7
        if shift > 63:
            raise IndexError


def _no_envelope(data: bytes) -> InvalidArgument:
    return InvalidArgument(
        f"{len(data)} bytes received are not a {channels_pb2.Envelope.DESCRIPTOR.full_name}: "
        "check the client against the .proto files"
    )
