"""Reader of a segment's log files, which verifies frames, joins small ones and splits large ones."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa

from seaweedmq.codec.frame import Frame
from seaweedmq.codec.payload.batch import decode_frame, full_batch
from seaweedmq.codec.references import REFERENCE
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import Corrupt
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.scan.batches import BATCH_BYTES, BatchBuilder, Scanned, in_batches
from seaweedmq.storage.scan.columns import PARTITION


class LogScan:
    """One pass over one log file; a torn tail ends the pass."""

    def __init__(self, place: Place, topic: Topic, timestamps: Interval, builder: BatchBuilder) -> None:
        self._place = place
        self._topic = topic
        self._schema = None if topic.schema is None else schema_from_bytes(topic.schema)
        self._timestamps = timestamps
        self._builder = builder
        self._has_references = REFERENCE.name in builder.sources

    def scan(self, file: SegmentFile, start: int, end: int | None) -> Iterator[Scanned]:
        """Yield the records of offsets ``[start, end)`` that the file holds from ``start`` without a gap.

        The last item may have no batch: records up to its ``next_offset`` exist, but outside the requested time. Raises
        Corrupt if the file is damaged otherwise than by a torn tail, and names file and position.
        """
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        waiting_version = 0
        base = position = start
        for frame, path_and_byte in self._frames(file, start, end):
            header = frame.header
            if header.base_offset > position:
                break
            stop = header.end_offset if end is None else min(header.end_offset, end)
            wanted = self._timestamps.overlaps(header.timestamp_min, header.timestamp_max)
            fits = header.schema_version == waiting_version and waiting_bytes + header.payload_length <= BATCH_BYTES
            if waiting and not (wanted and fits):
                yield from self._emit(file.segment, base, waiting)
                waiting, waiting_bytes, base = [], 0, position
            if wanted:
                batch = self._decode(frame, path_and_byte)
                waiting.append(batch.slice(position - header.base_offset, stop - position))
                waiting_bytes += max(header.payload_length, batch.nbytes)  # a payload may be compressed
                waiting_version = header.schema_version
            else:
                base = stop
            position = stop
        if waiting:
            yield from self._emit(file.segment, base, waiting)
        elif position > start:
            yield Scanned(None, position)

    def _emit(self, segment: int, base: int, waiting: list[pa.RecordBatch]) -> Iterator[Scanned]:
        whole = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        return in_batches(self._builder, self._timestamps, segment, base, whole)

    def _frames(self, file: SegmentFile, start: int, end: int | None) -> Iterator[tuple[Frame, str]]:
        scanner = LogScanner(self._topic, file, skip_below=start)
        with closing(self._place.open_input(file)) as source:
            for run in scanner.runs(source):
                for found in run.frames:
                    if end is not None and found.frame.header.base_offset >= end:
                        return
                    yield found.frame, f"{file.path} at byte {found.position}"

    def _decode(self, frame: Frame, where: str) -> pa.RecordBatch:
        schema = self._schema if frame.header.schema_version else None
        try:
            batch = full_batch(decode_frame(frame, schema), frame.header, schema, has_references=self._has_references)
        except (Corrupt, pa.ArrowException) as e:
            raise Corrupt(f"{where} is damaged: {e}") from e
        missing = [s for s in self._builder.sources if s not in batch.schema.names and s != PARTITION]
        if missing and schema is self._schema:
            raise Corrupt(f"{where} has no column {missing[0]!r}: it belongs to another topic")
        return batch if PARTITION not in self._builder.sources else _with_partition(batch, frame.header.slot_min)


def _with_partition(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """Add the partition column: a frame of a topic with partitions holds records of one partition."""
    column = pa.array(np.full(batch.num_rows, partition, np.int32))
    return batch.append_column(pa.field(PARTITION, column.type), column)
