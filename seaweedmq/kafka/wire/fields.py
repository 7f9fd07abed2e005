"""Encoders of fields, for the few replies with handwritten layouts; flexible versions have compact forms (KIP-482)."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LEADER = struct.Struct(">ii")
_TAG_NODE_ENDPOINTS = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a leader that a reply names."""

    node_id: int
    host: str
    port: int


def count(elements: int, flexible: bool) -> bytes:
    """Encode the number of elements of an array."""
    return varint(elements + 1) if flexible else _INT32.pack(elements)


def text(value: str, flexible: bool) -> bytes:
    """Encode a string that is not null."""
    data = value.encode()
    return (varint(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def nullable_text(value: str | None, flexible: bool) -> bytes:
    """Encode a string, or null."""
    if value is None:
        return b"\0" if flexible else _INT16.pack(-1)
    return text(value, flexible)


def leader_tag(tag: int, leader_id: int, leader_epoch: int) -> bytes:
    """Encode the tagged fields of a partition: its leader (KIP-951); none if both numbers are below 0."""
    if leader_id < 0 and leader_epoch < 0:
        return b"\0"
    value = _LEADER.pack(leader_id, leader_epoch) + b"\0"
    return bytes((1, tag, len(value))) + value


def node_endpoints(endpoints: Sequence[Endpoint]) -> bytes:
    """Encode the tagged fields of a reply: the addresses of the leaders that it names."""
    if not endpoints:
        return b"\0"
    value = varint(len(endpoints) + 1) + b"".join(
        _INT32.pack(one.node_id) + text(one.host, True) + _INT32.pack(one.port) + b"\0\0" for one in endpoints
    )
    return bytes((1, _TAG_NODE_ENDPOINTS)) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
