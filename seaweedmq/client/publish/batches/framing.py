"""Division of rows among segments, and their encoding into frames, with as few copies as possible."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.client.publish.batches.rows import Rows, Slots
from seaweedmq.client.publish.futures import TableFuture
from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.frame import (
    FLAG_KEY,
    FLAG_TIMESTAMP,
    HEADER_BYTES,
    RECORDS_MAX,
    decode_header,
    encode_header,
    split_frames,
)
from seaweedmq.codec.murmur2 import partitions_of
from seaweedmq.codec.payload.batch import decode_frame, encode_frame
from seaweedmq.codec.slots import histogram_of, slots_of
from seaweedmq.core.publish.outgoing_frame import FrameFailed, OutgoingFrame
from seaweedmq.core.publish.routing import Routes
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, WHOLE_RING, KeyRange
from seaweedmq.rpc.messages.frames import pack_frames

FRAME_BYTES_MAX = 120 * MIB
"""Limit of a frame, which is what clients can receive in a message. Each broker reports its lower limit when a stream
opens."""
FRAME_OVERHEAD_BYTES = HEADER_BYTES + 1024
"""Upper bound of the size of a frame with one record, without the record's bytes."""
SAMPLE_KEYS = 256
"""Number of keys sampled for the histogram of a frame that needs no routing. The histogram is a load figure without
effect on correctness."""


def by_segment(rows: Rows, routes: Routes, keyless_slot: int) -> list[tuple[int, Rows]]:
    """Divide rows among segments, keeping their order.

    All rows without a key have ``keyless_slot``: they stay together, so that frames stay large.
    """
    whole = routes.whole()
    if whole is not None:
        return [(whole, rows)]
    slots = rows.slots
    if slots is None:
        if not rows.flags & FLAG_KEY:
            return [(routes.segment_of(keyless_slot), rows)]
        slots = key_slots(rows.columns.column(0), keyless_slot, routes.ring)
        rows = replace(rows, slots=slots)
    parts = routes.partition(slots)
    if len(parts) == 1:
        return [(parts[0][0], rows)]
    ordered = rows.take(np.concatenate([places for _, places in parts]))
    shares = []
    at = 0
    for segment, places in parts:
        shares.append((segment, ordered.slice(at, len(places))))
        at += len(places)
    return shares


def key_slots(keys: pa.Array, keyless_slot: int, ring: KeyRange) -> Slots:
    """Return the slots of a ``_key`` column, with ``keyless_slot`` for null. A smaller ring consists of partitions."""
    slots: Slots = slots_of(keys) if ring == WHOLE_RING else partitions_of(keys, ring.width)
    if keys.null_count:
        slots = np.where(keys.is_null().to_numpy(zero_copy_only=False), np.uint16(keyless_slot), slots)
    return slots


def frames_of(
    rows: Rows,
    *,
    segment_slots: KeyRange,
    keyless_slot: int,
    producer_id: int,
    first_sequence: int,
    frame_bytes: int,
    frame_bytes_max: int,
) -> Iterator[OutgoingFrame | FrameFailed]:
    """Encode the rows of one segment into frames, in order, with consecutive sequences from ``first_sequence``.

    ``frame_bytes`` is the target size. A single row above ``frame_bytes_max`` fails and takes no sequence.
    """
    parts = max(1, round(rows.columns.nbytes / frame_bytes))
    count = len(rows)
    step = min(RECORDS_MAX, -(-count // parts))
    todo = [rows.slice(at, min(step, count - at)) for at in range(0, count, step)][::-1]
    while todo:
        part = todo.pop()
        count = len(part.positions)
        data = _encoded(part, segment_slots, keyless_slot, producer_id, first_sequence)
        if len(data) <= frame_bytes_max:
            yield OutgoingFrame(data, first_sequence, part.positions, part.promise)
            first_sequence += count
        elif count > 1:
            half = count // 2
            todo += part.slice(half, count - half), part.slice(0, half)
        else:
            yield FrameFailed(
                part.positions, part.promise, over_limit(f"row {int(part.positions[0])}", len(data), frame_bytes_max)
            )


def over_limit(record: str, size_bytes: int, frame_bytes_max: int) -> InvalidArgument:
    """Make the error of a record whose frame exceeds the brokers' limit."""
    return InvalidArgument(
        f"{record}: a record that takes a frame of {size_bytes} bytes is over the limit of {frame_bytes_max} bytes: "
        "split it, or raise frame_bytes_max on every broker"
    )


def first_over_limit(columns: pa.RecordBatch, flags: int, frame_bytes_max: int) -> tuple[int, int] | None:
    """Find the first row that fits no frame, and return its number and the size of its frame in bytes.

    Encodes only rows that may be too large. ``columns`` are exactly those of ``payload_schema(flags, ...)``.
    """

    def frame_bytes(row: pa.RecordBatch) -> int:
        return len(_encoded(Rows(row, flags, 0, range(1), TableFuture(1)), WHOLE_RING, 0, 0, 0))

    if not columns.num_rows:
        return None
    # A frame has 16 bytes of description and less than 8 of padding per buffer: twice the overhead of one row covers
    # any number of rows.
    spare = 2 * (frame_bytes(columns.slice(0, 1)) - columns.slice(0, 1).nbytes)
    todo = [(0, columns.num_rows)]
    while todo:
        at, count = todo.pop()
        part = columns.slice(at, count)
        if part.nbytes + spare <= frame_bytes_max:
            continue
        half = count // 2
        if half:
            todo += (at + half, count - half), (at, half)
        elif (size := frame_bytes(part)) > frame_bytes_max:
            return at, size
    return None


def _encoded(rows: Rows, segment_slots: KeyRange, keyless_slot: int, producer_id: int, first_sequence: int) -> Frames:
    timestamp_min = timestamp_max = rows.timestamp_us
    if rows.flags & FLAG_TIMESTAMP:
        column = rows.columns.column(1 if rows.flags & FLAG_KEY else 0)
        bounds = pc.min_max(column.view(pa.int64()))
        timestamp_min, timestamp_max = bounds["min"].as_py(), bounds["max"].as_py()
    slot_min, slot_max, histogram = _slot_figures(rows, segment_slots, keyless_slot)
    return encode_frame(
        rows.columns,
        flags=rows.flags,
        producer_id=producer_id,
        producer_epoch=0,
        first_sequence=first_sequence,
        timestamp_min=timestamp_min,
        timestamp_max=timestamp_max,
        slot_min=slot_min,
        slot_max=slot_max,
        histogram=histogram,
        join=pack_frames,
    )


def _slot_figures(rows: Rows, segment_slots: KeyRange, keyless_slot: int) -> tuple[int, int, tuple[int, ...]]:
    if rows.slots is not None:
        return int(rows.slots.min()), int(rows.slots.max()), histogram_of(rows.slots, segment_slots)
    count = len(rows)
    if segment_slots.width == 1:  # a partition
        return segment_slots.lo, segment_slots.lo, (count,) + (0,) * (HISTOGRAM_BUCKETS - 1)
    if not rows.flags & FLAG_KEY:
        bucket = (keyless_slot - segment_slots.lo) * HISTOGRAM_BUCKETS // segment_slots.width
        histogram = (0,) * bucket + (count,) + (0,) * (HISTOGRAM_BUCKETS - 1 - bucket)
        return keyless_slot, keyless_slot, histogram
    # The segment covers the ring: its range bounds the slots, and a sample of keys estimates the load.
    keys = rows.columns.column(0)
    stride = max(1, count // SAMPLE_KEYS)
    if stride > 1:
        keys = keys.take(array_of(np.arange(0, count, stride), pa.int64()))
    sampled = histogram_of(key_slots(keys, keyless_slot, WHOLE_RING), segment_slots)
    scaled = [c * count // len(keys) for c in sampled]
    scaled[scaled.index(max(scaled))] += count - sum(scaled)  # A frame's histogram counts all of its records.
    return segment_slots.lo, segment_slots.hi - 1, tuple(scaled)


def renumbered(data: Frames, first_sequence: int) -> Frames:
    """Return the bytes of a frame with another first sequence."""
    header = decode_header(data)._replace(first_sequence=first_sequence)
    return b"".join((encode_header(header), data[HEADER_BYTES:]))


def rows_of_frame(out: OutgoingFrame, schema: pa.Schema | None, ring: KeyRange) -> Rows:
    """Decode a frame of this publisher into rows that are to be routed again; Corrupt if it has another schema.

    The topic may have adopted a schema since, or more partitions. Rows stay in their partition: in another one they
    would follow later records of their keys.
    """
    frame = next(split_frames(out.data, verify=False))
    header = frame.header
    columns = decode_frame(frame, schema if header.schema_version else None)
    slots = None if ring == WHOLE_RING else np.full(header.record_count, header.slot_min, np.uint16)
    return Rows(columns, header.flags, header.timestamp_min, out.positions, out.promise, slots)
