"""Check that every Kafka client can read an LZ4 frame.

Java's client reads a part of the frame format (https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md): one frame
per batch, of independent blocks, without a dictionary. lz4's own libraries link blocks unless the caller requests
independent ones, and read far more than Java's client does. A batch that only they can read would end every Java
consumer of its partition.
"""

import struct
from typing import Final

_MAGIC: Final = 0x184D2204
_VERSION: Final = 1
_HEAD = struct.Struct("<IBB")
_BLOCK_LENGTH = struct.Struct("<I")
_RESERVED, _CONTENT_CHECKSUM, _CONTENT_SIZE, _BLOCK_CHECKSUM, _INDEPENDENT_BLOCKS = 0x03, 0x04, 0x08, 0x10, 0x20
_VERSION_SHIFT: Final = 6
_CONTENT_SIZE_BYTES, _CHECKSUM_BYTES, _HEADER_CHECKSUM_BYTES = 8, 4, 1
_UNCOMPRESSED: Final = 0x80000000
_EMPTY_BLOCK_BYTES: Final = 1
"""Length of a compressed block without data, which Java's client reads beyond."""


def check_frame(data: memoryview) -> None:
    """Check the structure of a frame; decompression checks its checksums and blocks.

    Raises ValueError if Java's client cannot read the frame, or if ``data`` holds anything except one frame.
    """
    try:
        end = _end_of(data)
    except struct.error:
        raise ValueError("the frame has no end mark") from None
    if end > len(data):
        raise ValueError(f"the frame ends at byte {end} of {len(data)}")
    if end < len(data):
        raise ValueError(f"{len(data) - end} bytes follow its first frame: send one frame per batch")


def _end_of(data: memoryview) -> int:
    """Return the position behind the first frame."""
    magic, flags, _ = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic:08x}, which is not a frame")
    if flags >> _VERSION_SHIFT != _VERSION or flags & _RESERVED:
        raise ValueError(f"flags {flags:#04x} require another version or a dictionary, which Java's client cannot read")
    if not flags & _INDEPENDENT_BLOCKS:
        raise ValueError("its blocks are linked, which Java's client cannot read: compress independent blocks")
    at = _HEAD.size + _HEADER_CHECKSUM_BYTES + (_CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE else 0)
    block_checksum_bytes = _CHECKSUM_BYTES if flags & _BLOCK_CHECKSUM else 0
    while True:
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        size = length & ~_UNCOMPRESSED
        if size == 0:
            return at + (_CHECKSUM_BYTES if flags & _CONTENT_CHECKSUM else 0)
        if length == _EMPTY_BLOCK_BYTES:
            raise ValueError("it has a block without data, which Java's client cannot read")
        at += size + block_checksum_bytes
