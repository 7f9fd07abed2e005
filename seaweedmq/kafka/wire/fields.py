"""Fields of the few replies whose layouts are written by hand. Flexible versions have the compact forms of KIP-482."""

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def count(elements: int, flexible: bool) -> bytes:
    """Of an array."""
    return varint(elements + 1) if flexible else _INT32.pack(elements)


def text(value: str, flexible: bool) -> bytes:
    """A string that is not null."""
    data = value.encode()
    return (varint(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def varint(value: int) -> bytes:
    """An unsigned one."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
