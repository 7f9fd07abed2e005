"""Stager of a task's rows: takes Spark's batches and writes frames for each segment to shared storage."""

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from seaweedmq.client.publish.batches.framing import by_segment, frames_of
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.outbox import SEGMENTS_PER_BATCH_MAX
from seaweedmq.core.publish.outgoing_frame import OutgoingFrame, Positions
from seaweedmq.core.publish.routing import Routes
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.config import MIB
from seaweedmq.model.producer import NATIVE_PRODUCER_BIT
from seaweedmq.model.ring import KeyRange
from seaweedmq.ports import Environment
from seaweedmq.spark.write.sink_columns import SinkColumns
from seaweedmq.storage.staging import StagingFile

FRAME_BYTES: Final = 1 * MIB
"""Target size of a frame in bytes, the same as publishers'."""


class _NoPromise:
    """A promise that is never settled here: the driver settles the rows of tasks."""

    deadline_s = 0.0

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        raise AssertionError("a task publishes nothing")

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        raise AssertionError("a task publishes nothing")


class Stager:
    """The rows of one task, gathered into large frames. Memory is bounded by some frames for each segment."""

    def __init__(
        self,
        file: StagingFile,
        columns: SinkColumns,
        ring: KeyRange,
        ranges: Sequence[KeyRange],
        frame_bytes_max: int,
        env: Environment,
    ) -> None:
        self._file = file
        self._columns = columns
        self._frame_bytes_max = frame_bytes_max
        self._ranges = dict(enumerate(ranges))
        self._routes = Routes(ring, ((slots, number) for number, slots in self._ranges.items()))
        self._env = env
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._flags = 0
        self._rows = 0
        self._rows_bytes = FRAME_BYTES * min(SEGMENTS_PER_BATCH_MAX, len(ranges))

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Stage every row; InvalidArgument if one does not fit the topic or exceeds the brokers' frame limit."""
        for batch in batches:
            fitted, flags = self._columns.fit(batch)
            if self._waiting and flags != self._flags:
                self._stage_frames()
            self._flags = flags
            for part in fitted:
                self._waiting.append(part)
                self._waiting_bytes += part.nbytes
            if self._waiting_bytes >= self._rows_bytes:
                self._stage_frames()
        self._stage_frames()

    def _stage_frames(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return
        whole = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        step = max(1, whole.num_rows * self._rows_bytes // max(1, whole.nbytes))
        for at in range(0, whole.num_rows, step):
            self._put_rows(whole.slice(at, step))

    def _put_rows(self, columns: pa.RecordBatch) -> None:
        ring = self._routes.ring
        keyless_slot = self._env.rng.randrange(ring.lo, ring.hi)
        positions = range(self._rows, self._rows + columns.num_rows)
        self._rows = positions.stop
        rows = Rows(columns, self._flags, self._env.wall_us(), positions, _NoPromise())
        frames: list[OutgoingFrame] = []
        for number, part in by_segment(rows, self._routes, keyless_slot):
            for frame in frames_of(
                part,
                segment_slots=self._ranges[number],
                keyless_slot=keyless_slot,
                producer_id=NATIVE_PRODUCER_BIT,
                first_sequence=0,
                frame_bytes=FRAME_BYTES,
                frame_bytes_max=self._frame_bytes_max,
            ):
                if not isinstance(frame, OutgoingFrame):
                    raise frame.error
                frames.append(frame)
        self._file.write([frame.data for frame in frames], sum(frame.record_count for frame in frames))
