"""Rows into frames: which segment each row belongs to, and as few copies on the way as there can be."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.client.publish.delivery import Outcome, Rows, subset
from seaweedmq.client.publish.routing import Routes
from seaweedmq.codec.frame import FLAG_KEY, FLAG_TIMESTAMP, RECORDS_MAX, FrameHeader, split_frames
from seaweedmq.codec.payload.batch import decode_frame, encode_frame
from seaweedmq.codec.slots import histogram_of, slots_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.frames import Frames
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, KeyRange
from seaweedmq.rpc.frames import pack_frames

SAMPLE_KEYS = 256
"""Keys looked at for the histogram of a frame that needs no routing: a load figure, on which no correctness rests."""

Slots = npt.NDArray[np.uint16]


@dataclass(slots=True)
class Piece:
    """Rows on their way to frames. ``batch`` has exactly the columns of ``payload_schema(flags, ...)``."""

    batch: pa.RecordBatch
    flags: int
    timestamp: int
    """Microseconds, of every row if there is no ``_timestamp`` column."""
    rows: Rows
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a piece that go to one segment, with their key slots as far as they are known."""

    segment: int
    piece: Piece
    slots: Slots | None
    """Of every row, or None where routing did not need them: then the histogram comes from a sample."""
    sticky: int
    """Slot of the rows without a key."""


def route(piece: Piece, routes: Routes, pick: Callable[[KeyRange], int]) -> list[Share]:
    """Split a piece by segment, keeping the order of rows.

    Args:
        pick: chooses a slot of a range at random; rows without a key go there together, so that frames stay large.
    """
    whole = routes.whole()
    sticky = pick(routes.ring)
    if whole is not None:
        return [Share(whole[0], piece, None, sticky)]
    if not piece.flags & FLAG_KEY:
        return [Share(routes.segment_of(sticky), piece, None, sticky)]
    slots = key_slots(piece.batch.column(0), sticky)
    parts = routes.partition(slots)
    if len(parts) == 1:
        return [Share(parts[0][0], piece, slots, sticky)]
    order = np.concatenate([where for _, where in parts])
    ordered = piece.batch.take(pa.array(order))
    slots = slots[order]
    shares = []
    at = 0
    for segment, where in parts:
        end = at + len(where)
        part = Piece(
            ordered.slice(at, len(where)), piece.flags, piece.timestamp, subset(piece.rows, where), piece.outcome
        )
        shares.append(Share(segment, part, slots[at:end], sticky))
        at = end
    return shares


def key_slots(keys: pa.Array, sticky: int) -> Slots:
    """Slots of a ``_key`` column; null keys get the sticky slot."""
    slots: Slots = slots_of(keys)
    if keys.null_count:
        slots = np.where(keys.is_null().to_numpy(zero_copy_only=False), np.uint16(sticky), slots)
    return slots


@dataclass(frozen=True, slots=True)
class Encoded:
    """A frame and whose rows it carries."""

    data: Frames
    rows: Rows
    outcome: Outcome


def encode(
    share: Share,
    *,
    slots_range: KeyRange,
    producer_id: int,
    first_sequence: int,
    frame_bytes: int,
    frame_bytes_max: int,
) -> Iterator[Encoded]:
    """The frames of a share, in order, sequences counted on from ``first_sequence``.

    Aims for ``frame_bytes`` a frame. A single row over ``frame_bytes_max`` fails with InvalidArgument through its
    outcome and takes no sequence.
    """
    batch = share.piece.batch
    parts = max(1, round(batch.nbytes / frame_bytes))
    step = min(RECORDS_MAX, -(-batch.num_rows // parts))
    todo = [(at, min(step, batch.num_rows - at)) for at in range(0, batch.num_rows, step)][::-1]
    while todo:
        at, count = todo.pop()
        data = _encode(share, at, count, slots_range, producer_id, first_sequence)
        rows = subset(share.piece.rows, range(at, at + count))
        if len(data) <= frame_bytes_max:
            first_sequence += count
            yield Encoded(data, rows, share.piece.outcome)
        elif count > 1:
            half = count // 2
            todo.append((at + half, count - half))
            todo.append((at, half))
        else:
            share.piece.outcome.failed(
                rows,
                InvalidArgument(
                    f"row {int(rows[0])}: a record that takes a frame of {len(data)} bytes is over the limit of "
                    f"{frame_bytes_max} bytes: split it, or raise frame_bytes_max on every broker"
                ),
            )


def _encode(share: Share, at: int, count: int, slots_range: KeyRange, producer_id: int, first_sequence: int) -> Frames:
    piece = share.piece
    batch = piece.batch if count == piece.batch.num_rows else piece.batch.slice(at, count)
    timestamp_min = timestamp_max = piece.timestamp
    if piece.flags & FLAG_TIMESTAMP:
        column = batch.column(1 if piece.flags & FLAG_KEY else 0)
        bounds = pc.min_max(column.view(pa.int64()))
        timestamp_min, timestamp_max = bounds["min"].as_py(), bounds["max"].as_py()
    slot_min, slot_max, histogram = _slot_figures(share, batch, at, count, slots_range)
    return encode_frame(
        batch,
        flags=piece.flags,
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


def _slot_figures(
    share: Share, batch: pa.RecordBatch, at: int, count: int, slots_range: KeyRange
) -> tuple[int, int, tuple[int, ...]]:
    if share.slots is not None:
        slots = share.slots[at : at + count]
        return int(slots.min()), int(slots.max()), histogram_of(slots, slots_range)
    if not share.piece.flags & FLAG_KEY:
        bucket = (share.sticky - slots_range.lo) * HISTOGRAM_BUCKETS // slots_range.width
        return share.sticky, share.sticky, tuple(count if i == bucket else 0 for i in range(HISTOGRAM_BUCKETS))
    # The segment covers the ring: its range bounds the slots, and a sample of keys tells the load.
    keys = batch.column(0)
    stride = max(1, count // SAMPLE_KEYS)
    if stride > 1:
        keys = keys.take(pa.array(np.arange(0, count, stride)))
    sampled = histogram_of(key_slots(keys, share.sticky), slots_range)
    scaled = [c * count // len(keys) for c in sampled]
    scaled[scaled.index(max(scaled))] += count - sum(scaled)  # a frame's histogram counts all of its records
    return slots_range.lo, slots_range.hi - 1, tuple(scaled)


def piece_of(data: Frames, schema: pa.Schema | None, rows: Rows, outcome: Outcome) -> Piece:
    """The rows of a frame that was made here, to be routed again. The topic may have got its schema since.

    Raises:
        Corrupt: the frame has another schema.
    """
    frame = next(split_frames(data, verify=False))
    header: FrameHeader = frame.header
    batch = decode_frame(frame, schema if header.schema_version else None)
    return Piece(batch, header.flags, header.timestamp_min, rows, outcome)
