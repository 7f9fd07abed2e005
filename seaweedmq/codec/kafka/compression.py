"""Decompression of Kafka's four codecs into a buffer of bounded size: 8 KiB of zstd may unpack to gigabytes.

Snappy comes in the blocks of snappy-java ("xerial") from Java clients and as one raw block from some others; LZ4 is the
frame format.
"""

import struct
from typing import Any, Final

import cramjam
import numpy as np

from seaweedmq.codec.kafka.batch_errors import BatchErrorCode, InvalidBatch
from seaweedmq.codec.kafka.lz4_frame import check_frame
from seaweedmq.model.messages.frames import Frames

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_MODULES: Final = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
"""Header with version and lowest compatible version: no others were ever written, and readers disagree about them."""
_BLOCK_LENGTH = struct.Struct(">i")


def unpack(compression: int, data: Frames, bytes_max: int) -> memoryview:
    """Return a batch's records; InvalidBatch for an unknown codec, damage, or more than ``bytes_max`` bytes."""
    if compression >= len(NAMES):
        raise InvalidBatch(
            BatchErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"a batch is compressed by codec {compression}, which is unknown: use one of {', '.join(NAMES)}",
        )
    try:
        if compression == NONE:
            return _within(memoryview(data), bytes_max)
        if compression == SNAPPY:
            return _unpack_snappy(memoryview(data), bytes_max)
        return _unpack_whole(_MODULES[compression], memoryview(data), bytes_max)
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise InvalidBatch(
            BatchErrorCode.INVALID_RECORD,
            f"{len(data)} bytes of a batch are not sound {NAMES[compression]} of at most {bytes_max} bytes of records: "
            f"{error}",
        ) from error


def check_readable(compression: int, data: Frames) -> None:
    """Raise InvalidBatch, before the records of a batch are unpacked, if other clients cannot unpack them."""
    if compression == LZ4:
        try:
            check_frame(memoryview(data))
        except ValueError as error:
            raise InvalidBatch(
                BatchErrorCode.INVALID_RECORD,
                f"{len(data)} bytes of a batch are not lz4 that every client can read: {error}",
            ) from error


def _unpack_whole(module: Any, data: memoryview, bytes_max: int) -> memoryview:
    # Not a bytearray, which is filled with zeros: of 64 MiB only the written part becomes memory.
    unpacked = np.empty(bytes_max, np.uint8)
    try:
        size: int = module.decompress_into(data, unpacked)
    except (cramjam.DecompressionError, ValueError):
        del unpacked  # the traceback of the error keeps this frame alive
        raise
    return unpacked.data[:size]


def _within(data: memoryview, bytes_max: int) -> memoryview:
    if len(data) > bytes_max:
        raise ValueError(f"they have {len(data)}")
    return data


def _unpack_snappy(data: memoryview, bytes_max: int) -> memoryview:
    if data[: len(_XERIAL)] != _XERIAL:
        return _unpack_blocks([data], bytes_max)
    if data[: len(_XERIAL_HEADER)] != _XERIAL_HEADER:
        raise ValueError("its version is not 1")
    blocks = []
    at = len(_XERIAL_HEADER)
    while at < len(data):
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - at:
            raise ValueError(f"a block of {length} bytes where {len(data) - at} are left")
        blocks.append(data[at : at + length])
        at += length
    return _unpack_blocks(blocks, bytes_max)


def _unpack_blocks(blocks: list[memoryview], bytes_max: int) -> memoryview:
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > bytes_max:
        raise ValueError(f"it has a length of {sum(sizes)} bytes")
    unpacked = np.empty(sum(sizes), np.uint8)
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        written = cramjam.snappy.decompress_raw_into(block, unpacked.data[at : at + size])
        if written != size:
            raise ValueError(f"a block has {written} bytes instead of {size}")
        at += size
    return unpacked.data
