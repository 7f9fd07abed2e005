"""Conversion of a batch to columns: keys, timestamps, headers and values, sliced from its bytes by Arrow."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.kafka.batch_errors import BatchErrorCode, InvalidBatch
from seaweedmq.codec.kafka.compression import unpack
from seaweedmq.codec.kafka.header import HEADER_BYTES, BatchHeader, read_header
from seaweedmq.codec.kafka.records import Records, find_records, joined
from seaweedmq.codec.kafka.varints import Longs
from seaweedmq.model.messages.frames import Frames

US_PER_MS: Final = 1_000
UNSOUND: Final = (ValueError, IndexError, pa.ArrowInvalid)
"""Exceptions of reading records that break the format."""
_DELTA_MAX_MS: Final = 1 << 60
"""Limit that keeps sums within 64 bits; times of the years 1 to 9999 lie far below."""


class Columns(NamedTuple):
    """The columns of a batch, with one item per record."""

    key: pa.Array
    timestamp_us: Longs
    headers: pa.Array
    """map<string, binary>, null without any."""
    value: pa.Array


def unpacked_records(header: BatchHeader, data: Frames, bytes_max: int) -> memoryview:
    """Return the unpacked records of exactly one batch; InvalidBatch if not sound, or more than ``bytes_max``."""
    return unpack(header.compression, data[HEADER_BYTES:], bytes_max)


def timestamps_of(header: BatchHeader, records: Records) -> Longs:
    """Return the timestamps of all records in milliseconds; raises like ``timestamps_between``."""
    delta = records.timestamp_delta
    timestamps_between(header, int(delta.min()), int(delta.max()))
    if header.has_append_time:
        return np.full(len(delta), header.max_timestamp_ms, np.int64)
    return delta + header.first_timestamp_ms


def timestamps_between(header: BatchHeader, delta_min: int, delta_max: int) -> tuple[int, int]:
    """Return the lowest and highest timestamp in milliseconds of records with these lowest and highest deltas.

    Raises InvalidBatch if they exceed any calendar.
    """
    if header.has_append_time:
        return header.max_timestamp_ms, header.max_timestamp_ms
    reach = max(abs(delta_min), abs(delta_max), abs(header.first_timestamp_ms))
    if reach > _DELTA_MAX_MS:
        raise InvalidBatch(BatchErrorCode.INVALID_TIMESTAMP, f"timestamps of a batch are up to {reach} ms apart")
    return header.first_timestamp_ms + delta_min, header.first_timestamp_ms + delta_max


def columns_of(data: Frames, *, unpacked_bytes_max: int) -> Columns:
    """Return the columns of a batch; InvalidBatch if unreadable, which none is that passed ``batch.check_batch``."""
    header = read_header(data)
    unpacked = unpacked_records(header, data, unpacked_bytes_max)
    buffer = pa.py_buffer(unpacked)
    try:
        records = joined(find_records(unpacked, header.record_count))
        return Columns(
            _cut(buffer, records.key_at, records.key_length),
            timestamps_of(header, records) * US_PER_MS,
            _headers(buffer, records),
            _cut(buffer, records.value_at, records.value_length),
        )
    except UNSOUND as error:
        raise not_sound(error) from error


def not_sound(error: Exception) -> InvalidBatch:
    """Return the error for records that cannot be read."""
    why = "they end in the middle of one" if isinstance(error, IndexError) else error
    return InvalidBatch(BatchErrorCode.INVALID_RECORD, f"the records of a batch are not sound: {why}")


def _cut(buffer: pa.Buffer, at: Longs, length: Longs) -> pa.Array:
    """Return pieces of the buffer as a binary column, null where the length is -1.

    The whole buffer becomes one column of pieces and the gaps between them, and Arrow takes every other item.
    """
    count = len(at)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = at
    edges[1::2] = at + np.maximum(length, 0)
    everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), buffer])
    pieces = everything.take(array_of(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))
    if length.min() >= 0:
        return pieces
    _, offsets, content = pieces.buffers()
    return pa.Array.from_buffers(pa.binary(), count, [_present(length >= 0), offsets, content])


def _headers(buffer: pa.Buffer, records: Records) -> pa.Array:
    count = records.header_count
    kind = pa.map_(pa.string(), pa.binary())
    if not len(records.name_at):
        return pa.nulls(len(count), kind)
    ends = np.zeros(len(count) + 1, np.int32)
    np.cumsum(count, out=ends[1:])
    names = _names(buffer, records)
    items = _cut(buffer, records.item_at, records.item_length)
    entries = pa.StructArray.from_arrays([names, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(count), [_present(count > 0), pa.py_buffer(ends)], children=[entries])


def _names(buffer: pa.Buffer, records: Records) -> pa.Array:
    """Return the names of headers as Java's client reads them: with U+FFFD for bytes that are not UTF-8."""
    octets = _cut(buffer, records.name_at, records.name_length)
    names = octets.view(pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([str(name, "utf-8", "replace") for name in octets.to_pylist()], pa.string())
    return names


def _present(mask: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
