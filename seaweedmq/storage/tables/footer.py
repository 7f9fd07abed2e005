"""Checksum of a Parquet file's footer; Parquet has checksums for pages only.

Arrow trusts a damaged footer: a search by time would miss records, and some single bits crash the process (a type that
does not match, statistics that are too short; seen with pyarrow 26). So 16 bytes precede the footer: a magic, and the
XXH3-64 of everything from the footer to the end of the file. Other readers skip them.
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
"""Encoding of the footer's length and Parquet's magic."""


def seal_footer(file: IO[bytes]) -> None:
    """Insert the checksum into a complete Parquet file that is open for reading and writing."""
    size = file.seek(0, os.SEEK_END)
    tail = _tail(file, size)
    assert tail is not None, "only a closed Parquet file can be sealed"
    file.seek(size - len(tail))
    file.write(_SEAL.pack(_MAGIC, xxh3_64_intdigest(tail)) + tail)


def verify_footer(file: BlockingInput, name: str) -> None:
    """Raise Corrupt unless the footer matches its checksum; ``name`` is the file's name in messages."""
    size = file.seek(0, os.SEEK_END)
    tail = _tail(file, size)
    seal = b""
    if tail is not None and len(tail) + _SEAL.size <= size:
        file.seek(size - len(tail) - _SEAL.size)
        seal = file.read(_SEAL.size)
    if tail is None or seal != _SEAL.pack(_MAGIC, xxh3_64_intdigest(tail)):
        raise Corrupt(f"{name} is damaged: its footer does not match its checksum; restore it from a copy")


def _tail(file: BlockingInput, size: int) -> bytes | None:
    """Return the footer with its length and the magic; None if the file does not end so."""
    if size < _END.size:
        return None
    file.seek(size - _END.size)
    length, magic = _END.unpack(file.read(_END.size))
    if magic != b"PAR1" or length + _END.size > size:
        return None
    file.seek(size - _END.size - length)
    return file.read()
