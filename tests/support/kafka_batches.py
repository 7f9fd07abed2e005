"""Kafka record batches for tests: valid ones of aiokafka, and invalid ones."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import cramjam
import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from seaweedmq.codec.frame import Frame, stamp
from seaweedmq.codec.kafka.batch import check_batch, frame_of_batch
from seaweedmq.codec.kafka.header import HEADER_BYTES, BatchHeader, read_header

UNPACKED_BYTES_MAX = 1 << 20
T0_MS = 1_700_000_000_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_HEADER = struct.Struct(">qiibIhiqqqhii")


class Record(NamedTuple):
    """A record as clients know it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = T0_MS


def batch_of(
    records: Sequence[Record], compression: int = NONE, *, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """Return the batch that aiokafka's producer would send."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, *producer, 1 << 30)
    for number, record in enumerate(records):
        builder.append(number, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def batch_around(records: bytes, count: int = 1, **changes: int) -> bytes:
    """Return a batch of any bytes with a header that is valid, including the CRC, except for the changes."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, T0_MS, T0_MS, -1, -1, -1, count)
    header = header._replace(batch_length=HEADER_BYTES - 12 + len(records))._replace(**changes)
    unsigned = _HEADER.pack(*header) + records
    if "crc" in changes:
        return unsigned
    return unsigned[:17] + struct.pack(">I", google_crc32c.value(unsigned[21:])) + unsigned[21:]


def varint(number: int) -> bytes:
    """Encode a number as records encode lengths and counts."""
    zigzag, octets = number << 1 ^ number >> 63, bytearray()
    while zigzag > 0x7F:
        octets.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes((*octets, zigzag))


def changed(batch: bytes, **changes: int) -> bytes:
    """Return the same records under another header."""
    header = read_header(batch)._asdict() | changes
    if "crc" not in changes:
        del header["crc"]
    return batch_around(batch[HEADER_BYTES:], 1, **header)


def records_in(batch: bytes) -> list[Record]:
    """Return the records that aiokafka reads."""
    return [
        Record(r.key, r.value, tuple(r.headers), -1 if r.timestamp is None else r.timestamp)
        for r in DefaultRecordBatch(batch)
    ]


def packed(compression: int, data: bytes) -> bytes:
    """Compress data, with snappy as one raw block."""
    if compression == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if compression == LZ4:
        return lz4_frame(data)
    return bytes({GZIP: cramjam.gzip, ZSTD: cramjam.zstd}[compression].compress(data))


def lz4_frame(data: bytes, *, linked: bool = False, content_checksum: bool = False) -> bytes:
    """Return an LZ4 frame. Kafka clients do not link its blocks; lz4's own libraries do by default."""
    packer = cramjam.lz4.Compressor(block_linked=linked, content_checksum=content_checksum)
    packer.compress(data)
    return bytes(packer.finish())


def frame_bytes(batch: bytes, base_offset: int = 0, slot: int = 0) -> bytes:
    """Return the frame of a valid batch as a broker stores it."""
    frame: Frame = frame_of_batch(batch, slot, check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX))
    return stamp(frame.header_bytes, base_offset) + bytes(frame.payload)
