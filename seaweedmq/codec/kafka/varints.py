"""Kafka's variable-length integers: zigzag, seven bits per byte, lowest first; one at a time, or as a column."""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from seaweedmq.model.messages.frames import Frames

Longs: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]

INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10
_LAST_SHIFT: Final = 63
"""Shift of a tenth byte, which has one bit."""


def read_varint(data: Frames, at: int, bytes_max: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it.

    Raises ValueError beyond ``bytes_max`` bytes or 64 bits, and IndexError if the data ends inside it.
    """
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    high = data[at + 1]
    if high < 0x80:
        value = byte & 0x7F | high << 7
        return (value >> 1) ^ -(value & 1), at + 2
    value = byte & 0x7F | (high & 0x7F) << 7
    for number in range(2, bytes_max):
        byte = data[at + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return (value >> 1) ^ -(value & 1), at + number + 1
    raise _too_long(bytes_max)


def read_varints(octets: Octets, at: Longs, bytes_max: int) -> tuple[Longs, Longs]:
    """Return the same for many positions; raises like ``read_varint``."""
    byte = octets[at]
    next_at = at + 1
    more = np.flatnonzero(byte & 0x80)
    if not len(more):
        short = byte.astype(np.int64)
        return (short >> 1) ^ -(short & 1), next_at
    value = (byte & 0x7F).astype(np.uint64)
    shift = 7
    while len(more):
        if shift == 7 * bytes_max:
            raise _too_long(bytes_max)
        places = next_at[more]
        byte = octets[places]
        if shift == _LAST_SHIFT and (byte > 1).any():
            raise _too_long(bytes_max)
        next_at[more] = places + 1
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        more = more[byte >= 0x80]
        shift += 7
    return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64), next_at


def octets_of(data: Frames) -> Octets:
    """Return a view of the bytes."""
    octets: npt.NDArray[Any] = np.frombuffer(data, np.uint8)
    return octets


def _too_long(bytes_max: int) -> ValueError:
    return ValueError(f"a number has more than {bytes_max} bytes, or does not fit 64 bits")
