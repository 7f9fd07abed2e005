"""Java's ``String.hashCode``, by which Kafka chooses the partition of a group in ``__consumer_offsets``."""

import sys
from array import array
from typing import Final

_MULTIPLIER: Final = 31
_MASK: Final = 0xFFFF_FFFF
_LOWEST: Final = -(2**31)


def java_hash(text: str) -> int:
    """The hash of a text, as a signed number of 32 bits: that of its UTF-16 code units."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if sys.byteorder == "big":
        units.byteswap()
    total = 0
    for unit in units:
        total = (_MULTIPLIER * total + unit) & _MASK
    return total - 2**32 if total >= 2**31 else total


def partition_of_group(group: str, partitions: int) -> int:
    """Which of so many partitions has the group."""
    found = java_hash(group)
    return (0 if found == _LOWEST else abs(found)) % partitions
