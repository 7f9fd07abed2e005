"""A checksum for the footer of a Parquet file. Pages have theirs; the footer, with its statistics, has none.

Arrow takes a damaged footer for what it says: a search by time would miss records, and some single bits end the whole
process (a type that does not match, statistics that are too short; seen with pyarrow 26). So 16 bytes lie in front of
the footer: magic, and the XXH3-64 of everything from the footer to the end of the file. Other readers pass over them.
"""

import os
import struct
from typing import IO

from xxhash import xxh3_64_intdigest

from seaweedmq.errors import Corrupt
from seaweedmq.ports import BlockingInput

_MAGIC = b"SWMQFOOT"
_SEAL = struct.Struct("<8sQ")
_END = struct.Struct("<I4s")
"""Length of the footer and Parquet's magic."""


def seal_footer(file: IO[bytes]) -> None:
    """Put the checksum into a complete Parquet file that is open for reading and writing."""
    size = file.seek(0, os.SEEK_END)
    tail = _tail(file, size)
    if tail is None:
        raise AssertionError("only what a Parquet writer has closed is sealed")
    file.seek(size - len(tail))
    file.write(_SEAL.pack(_MAGIC, xxh3_64_intdigest(tail)) + tail)


def verify_footer(file: BlockingInput, name: str) -> None:
    """Make sure that the footer is as it was written. ``name`` is what messages call the file.

    Raises:
        Corrupt: it is not. OSError: the file can not be read.
    """
    size = file.seek(0, os.SEEK_END)
    tail = _tail(file, size)
    seal = b""
    if tail is not None and len(tail) + _SEAL.size <= size:
        file.seek(size - len(tail) - _SEAL.size)
        seal = file.read(_SEAL.size)
    if tail is None or seal != _SEAL.pack(_MAGIC, xxh3_64_intdigest(tail)):
        raise Corrupt(f"{name} is damaged: its footer is not as it was written; restore it from a copy")


def _tail(file: BlockingInput, size: int) -> bytes | None:
    """Footer, its length and the magic; None if that is not how the file ends."""
    if size < _END.size:
        return None
    file.seek(size - _END.size)
    length, magic = _END.unpack(file.read(_END.size))
    if magic != b"PAR1" or length + _END.size > size:
        return None
    file.seek(size - _END.size - length)
    return file.read()
