"""The rows of a staged batch for each segment: whole frames as staged, or rows selected from them.

A frame whose slots all belong to the segment is sent unchanged, except for three numbers in its header. Keys are read
only where the segments differ from those at the time of staging.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.client.publish.batches.framing import key_slots
from seaweedmq.client.publish.batches.rows import Slots
from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.frame import FLAG_KEY, FLAG_TIMESTAMP, Frame, encode_header
from seaweedmq.codec.payload.batch import decode_frame, encode_frame
from seaweedmq.codec.slots import histogram_of
from seaweedmq.core.publish.in_flight import SentFrame
from seaweedmq.core.replay import Replay
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import PublishReady
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.staged import Manifest
from seaweedmq.rpc.messages.frames import pack_frames
from seaweedmq.storage.staged_frames import StagedFrame

Picked = npt.NDArray[np.int64]
"""The numbers of selected rows in a frame."""


class StagedFrameReader(Protocol):
    """A reader of the frames of a batch, in order. Blocking."""

    def headers(self, lo: int, hi: int) -> Iterator[StagedFrame]:
        """Yield the frames whose slots overlap ``[lo, hi)``."""

    def payload(self, frame: StagedFrame) -> bytes:
        """Read the bytes after the header."""


class RowSelection(NamedTuple):
    """A selection of rows of one staged frame, which become one frame."""

    frame: StagedFrame
    rows: Picked | None
    """The row numbers in the frame; None for all."""

    @property
    def record_count(self) -> int:
        """The number of rows."""
        return self.frame.header.record_count if self.rows is None else len(self.rows)


class StagedMessage(NamedTuple):
    """Frames that are sent together."""

    parts: Sequence[Frames]
    sent: Sequence[SentFrame]
    """The same frames, as they are in flight."""


class StagedRows:
    """The rows of each segment, as a replay of the manifest assigns them. One thread at a time may use it."""

    def __init__(self, staged: StagedFrameReader, manifest: Manifest, replay: Replay, schema: pa.Schema | None) -> None:
        self._staged = staged
        self.manifest = manifest
        self._replay = replay
        self._schema = schema
        self._decoded: tuple[StagedFrame, pa.RecordBatch, Slots] | None = None
        """The last decoded frame, with its slots: several selections of it may follow."""

    def of(self, segment: int) -> Iterator[RowSelection]:
        """Yield the rows of a segment that is ready or has begun, in order. Every call yields the same rows."""
        sources = self._replay.sources(segment)
        if sources.origins:
            for before, kept in sources.origins:
                for piece in self.beyond(self.of(before), kept):
                    yield from self._within(piece, sources.slots)
        else:
            for frame in self._staged.headers(sources.slots.lo, sources.slots.hi):
                yield from self._within(RowSelection(frame, None), sources.slots)

    def beyond(self, pieces: Iterator[RowSelection], count: int) -> Iterator[RowSelection]:
        """Yield the rows after the first ``count``."""
        for piece in pieces:
            if count >= piece.record_count:
                count -= piece.record_count
            elif count:
                rows = np.arange(piece.record_count, dtype=np.int64) if piece.rows is None else piece.rows
                yield RowSelection(piece.frame, rows[count:])
                count = 0
            else:
                yield piece

    def messages(self, segment: int, ready: PublishReady, message_bytes: int) -> Iterator[StagedMessage]:
        """Yield the messages of a stream, which begins with the segment's next sequence.

        Rows that the segment already has may not be committed yet; the acknowledgement of a later frame shows that they
        are. Without a later frame the last one is sent again. ``message_bytes`` limits several frames together;
        InvalidArgument is raised if a frame exceeds the broker's limit.
        """
        slots = self._replay.staged(segment).slots
        parts: list[Frames] = []
        sent: list[SentFrame] = []
        size = 0
        for piece, at in self.rest(segment, ready.next_sequence):
            data = self._encoded(piece, slots, at)
            if len(data) > ready.frame_bytes_max:
                raise InvalidArgument(
                    f"a frame of {len(data)} bytes with rows of batch {self.manifest.batch} exceeds the "
                    f"limit of {ready.frame_bytes_max} bytes: raise frame_bytes_max on every broker, then start again"
                )
            if parts and size + len(data) > message_bytes:
                yield StagedMessage(parts, sent)
                parts, sent, size = [], [], 0
            parts.append(data)
            sent.append(SentFrame(at, piece.record_count, len(data)))
            size += len(data)
            if len(sent) >= ready.in_flight_frames_max:
                yield StagedMessage(parts, sent)
                parts, sent, size = [], [], 0
        if parts:
            yield StagedMessage(parts, sent)

    def rest(self, segment: int, first_sequence: int) -> Iterator[tuple[RowSelection, int]]:
        """Yield a segment's rows from a sequence on, each selection with its first sequence; at least the last one."""
        at, last = 0, None
        for piece in self.of(segment):
            if at + piece.record_count <= first_sequence:
                last = piece, at
                at += piece.record_count
                continue
            behind = first_sequence - at
            for part in self.beyond(iter((piece,)), behind) if behind > 0 else (piece,):
                at = max(at, first_sequence)
                yield part, at
                at += part.record_count
        if first_sequence >= at and last is not None:
            yield last

    def _encoded(self, piece: RowSelection, slots: KeyRange, first_sequence: int) -> Frames:
        """Encode a selection as a frame for a segment with the range ``slots``."""
        header = piece.frame.header
        producer_id, producer_epoch = self.manifest.producer_id, self.manifest.batch
        if piece.rows is None:
            header = header._replace(
                producer_id=producer_id, producer_epoch=producer_epoch, first_sequence=first_sequence
            )
            return pack_frames((encode_header(header), self._staged.payload(piece.frame)))
        batch, frame_slots = self._unpacked(piece.frame)
        batch = batch.take(array_of(np.ascontiguousarray(piece.rows), pa.int64()))
        picked = frame_slots[piece.rows]
        lowest, highest = header.timestamp_min, header.timestamp_max
        if header.flags & FLAG_TIMESTAMP:
            bounds = pc.min_max(batch.column("_timestamp").view(pa.int64()))
            lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
        return encode_frame(
            batch,
            flags=header.flags,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            first_sequence=first_sequence,
            timestamp_min=lowest,
            timestamp_max=highest,
            slot_min=int(picked.min()),
            slot_max=int(picked.max()),
            histogram=histogram_of(picked, slots),
            join=pack_frames,
        )

    def _within(self, piece: RowSelection, slots: KeyRange) -> Iterator[RowSelection]:
        header = piece.frame.header
        if slots.covers(header.slot_min, header.slot_max):
            yield piece
        elif header.slot_max >= slots.lo and header.slot_min < slots.hi:
            _, frame_slots = self._unpacked(piece.frame)
            is_inside = (frame_slots >= slots.lo) & (frame_slots < slots.hi)
            rows = np.flatnonzero(is_inside) if piece.rows is None else piece.rows[is_inside[piece.rows]]
            if len(rows):
                yield RowSelection(piece.frame, rows)

    def _unpacked(self, frame: StagedFrame) -> tuple[pa.RecordBatch, Slots]:
        if self._decoded is None or self._decoded[0] != frame:
            header = frame.header
            whole = Frame(header, b"", memoryview(self._staged.payload(frame)))
            batch = decode_frame(whole, self._schema if header.schema_version else None)
            slots = np.full(header.record_count, header.slot_min, np.uint16)
            if header.slot_min != header.slot_max and header.flags & FLAG_KEY:
                # Rows without a key stay together, in the first slot: the slot drawn for them was not recorded.
                slots = key_slots(batch.column("_key"), header.slot_min, self.manifest.ring)
            self._decoded = frame, batch, slots
        return self._decoded[1], self._decoded[2]
