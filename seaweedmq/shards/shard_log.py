"""Log of one partition of an internal topic: the last value of every key, loaded once and appended to afterwards.

Each frame is one Kafka record batch without a producer and without compression, so that Kafka's tools read it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from seaweedmq.broker.local import LocalPartition, Tail, TailState
from seaweedmq.codec.frame import HEADER_BYTES, Frame, split_frames
from seaweedmq.codec.kafka.batch import ALIGNMENT, CheckedBatch, frame_of_batch
from seaweedmq.codec.kafka.build import batches_of_rows
from seaweedmq.codec.kafka.header import read_header
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.coordination.view import ClusterView
from seaweedmq.model.config import MIB
from seaweedmq.shards.machine import Pair

READ_BYTES: Final = 1 * MIB
RECORDS_AT_ONCE: Final = 2_000
"""Records read in one step of the event loop."""
RECORD_OVERHEAD_BYTES: Final = 10
_ANY_OFFSET: Final = 0
_NO_EPOCH: Final = -1
_US_PER_MS: Final = 1_000
_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


@dataclass(slots=True)
class ShardContents:
    """The contents of a partition."""

    latest: dict[bytes, bytes] = field(default_factory=dict)
    """The last value of every key that is not deleted."""
    read_bytes: int = 0
    """Bytes read to load the contents."""
    read_frames: int = 0
    """Number of frames read."""


def size_of(pair: Pair) -> int:
    """Return the approximate bytes of a record in a batch."""
    key, value = pair
    return len(key) + (0 if value is None else len(value)) + RECORD_OVERHEAD_BYTES


class ShardLog:
    """A partition that this broker leads, as the log of a state machine, its only writer."""

    def __init__(self, partition: LocalPartition, view: ClusterView, *, frame_bytes_max: int) -> None:
        self.partition = partition
        self._view = view
        self._frame_bytes_max = frame_bytes_max

    async def load(self, start_offset: int | None = None) -> ShardContents:
        """Read all records from an offset (None: the earliest needed) on, once all are committed. There is no deadline.

        They are in memory or files. Raises StaleMetadata if this broker no longer leads the partition, and another
        SeaweedMQError if a record cannot be read, or is not committed at the moment.
        """
        kept = ShardContents()
        position = await self._start() if start_offset is None else start_offset
        while position < self.partition.end:
            await self.partition.committed(self.partition.end)
            position = await self._load_from(position, kept)
        return kept

    async def append(self, pairs: Sequence[Pair], at_us: int) -> int:
        """Append records without others in between; return the offset after the last, which is not committed yet.

        If ``LocalPartition.append`` raises an error, some of the records may be appended.
        """
        end = self.partition.end
        for frame in _frames_of(pairs, self.partition.partition, at_us, self._frame_bytes_max):
            end = (await self.partition.append(frame)).end_offset
        return end

    async def _start(self) -> int:
        partition = self.partition
        topic = self._view.topics.get(
            partition.topic.name, partition.topic
        )  # the low watermark rises while this log is open
        return max(await partition.earliest(), topic.low_watermark(partition.segment.slots))

    async def _load_from(self, position: int, kept: ShardContents) -> int:
        """Load records of one segment; return where the next segment begins, or the end of the committed records."""
        tail = self.partition.tail(position)
        try:
            while await tail.poll() is TailState.READABLE:
                if await tail.ready():
                    await _take_in(tail, kept)
        finally:
            await tail.close()
        return tail.position


async def _take_in(tail: Tail, kept: ShardContents) -> None:
    begins_at = tail.position
    taken = tail.take(READ_BYTES)
    if taken is None:
        return
    data = b"".join(taken.parts)
    kept.read_bytes += len(data)
    for frame in split_frames(data):
        kept.read_frames += 1
        skipped = max(0, begins_at - frame.header.base_offset)
        columns = decode_frame(frame, None)
        if not {"_key", "_value"} <= set(columns.schema.names):
            continue  # written by another client: records of the state machine have a key
        for pairs in _slices(columns, skipped):
            for key, value in pairs:
                if key is None:
                    continue
                if value is None:
                    kept.latest.pop(key, None)
                else:
                    kept.latest[key] = value
            await asyncio.sleep(0)


def _slices(columns: pa.RecordBatch, skipped: int) -> Iterator[Iterator[tuple[bytes | None, bytes | None]]]:
    for at in range(skipped, columns.num_rows, RECORDS_AT_ONCE):
        some = columns.slice(at, RECORDS_AT_ONCE)
        yield zip(some.column("_key").to_pylist(), some.column("_value").to_pylist(), strict=True)


def _frames_of(pairs: Sequence[Pair], slot: int, at_us: int, frame_bytes_max: int) -> Iterator[Frame]:
    """Yield keys and values, all with one timestamp, in as few frames of ``frame_bytes_max`` as possible."""
    at_ms = at_us // _US_PER_MS
    rows = ((at_ms, key, value, _NO_HEADERS) for key, value in pairs)
    at_us = at_ms * _US_PER_MS
    for batch in batches_of_rows(rows, _ANY_OFFSET, _NO_EPOCH, frame_bytes_max - HEADER_BYTES - ALIGNMENT):
        yield frame_of_batch(batch, slot, CheckedBatch(read_header(batch), at_us, at_us))
