"""Reader of scan ranges, while files may be converted and removed."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from seaweedmq.core.files.holes import loss_text, missing_records
from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import NotFound, OutOfRange
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import Topic
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.scan_ranges import BrokerRange, ScanRange
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.scan.batches import BatchBuilder, Scanned, in_batches
from seaweedmq.storage.scan.columns import Column
from seaweedmq.storage.scan.log_scan import LogScan
from seaweedmq.storage.scan.table_scan import scan_table
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.tables.row_groups import opened

log = logging.getLogger(__name__)

BrokerReader: TypeAlias = Callable[[int, int | None, int], Iterator[pa.RecordBatch]]
"""Segment, first offset and end offset, to the committed records in order, with the columns that subscribers get. A
first offset of None is the earliest retained one.
"""

REPLANS_MAX = 3
"""Maximum number of new listings for one piece: a file is listed as a log file, then as a table, then removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeScan:
    """A scan of ranges of one topic, with the same columns."""

    place: Place | None
    """Root of the storage; None if brokers serve all records."""
    topic: Topic
    timestamps: Interval
    columns: tuple[Column, ...]
    schema: pa.Schema
    """Arrow schema of the batches, to which the columns of files are cast."""
    brokers: BrokerReader | None = None
    """Reader of the records behind the end of the files; None if only files are read."""
    fail_on_data_loss: bool = True
    """Whether lost records are an error; otherwise each gap is logged, and the read continues behind it."""

    def read(self, pieces: Sequence[ScanRange]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the pieces, in order; raises DataLoss if some are lost, OutOfRange if removed."""
        builder = BatchBuilder(str(self.topic.name), self.columns, self.schema)
        for piece in pieces:
            scan = (
                self._broker(piece, builder)
                if isinstance(piece, BrokerRange)
                else self._piece(piece, builder, REPLANS_MAX)
            )
            for scanned in scan:
                if scanned.batch is not None and scanned.batch.num_rows > 0:
                    yield scanned.batch

    def _piece(self, piece: SnapshotPiece, builder: BatchBuilder, replans: int) -> Iterator[Scanned]:
        position = piece.start_offset
        try:
            for scanned in self._files(piece, builder):
                position = scanned.next_offset
                yield scanned
        except NotFound as e:
            if replans == 0:
                raise OutOfRange(
                    f"{self.topic.name}#{piece.segment}: {piece.files[0].path} and its replacements were removed: run "
                    "the query again, with a later start if retention removed them"
                ) from e
        else:
            return
        for part in self._replan(replace(piece, start_offset=position)):
            position = part.end_offset or position
            yield from self._piece(part, builder, replans - 1)
        yield from self._rest(piece, position, builder)

    def _rest(self, piece: SnapshotPiece, position: int, builder: BatchBuilder) -> Iterator[Scanned]:
        """Yield the records that are in no file, of a piece that is committed up to its end."""
        if self.brokers is not None and piece.end_offset is not None and position < piece.end_offset:
            rest = BrokerRange(segment=piece.segment, start_offset=position, end_offset=piece.end_offset)
            yield from self._broker(rest, builder)

    def _broker(self, piece: BrokerRange, builder: BatchBuilder) -> Iterator[Scanned]:
        assert self.brokers is not None, f"{piece} is on brokers, and no brokers are given"
        start = None if piece.from_earliest else piece.start_offset
        for batch in self.brokers(piece.segment, start, piece.end_offset):
            base = batch.column("_offset")[0].as_py()
            yield from in_batches(builder, self.timestamps, piece.segment, base, batch)

    def _files(self, piece: SnapshotPiece, builder: BatchBuilder) -> Iterator[Scanned]:
        if piece.kind is FileKind.TABLE:
            (file,) = piece.files
            assert piece.end_offset is not None, f"{file.path} is a table without an end offset"
            assert self.place is not None, f"{file.path} was listed without a storage"
            with opened(self.place, file, self.topic) as table:
                yield from scan_table(table, file, piece.start_offset, piece.end_offset, self.timestamps, builder)
            return
        assert self.place is not None, f"{piece.files[0].path} was listed without a storage"
        logs = LogScan(self.place, self.topic, self.timestamps, builder)
        position = piece.start_offset
        for file in piece.files:
            for scanned in logs.scan(file, position, piece.end_offset):
                position = scanned.next_offset
                yield scanned
            if position == piece.end_offset:
                return
        if self.brokers is not None:
            yield from self._rest(piece, position, builder)
            return
        if piece.complete and piece.end_offset is not None:
            loss = missing_records(self.topic, piece.segment, position, piece.end_offset, piece.files[0])
            if self.fail_on_data_loss:
                raise loss
            log.warning("%s; skipped, since failOnDataLoss is false", loss)

    def _replan(self, piece: SnapshotPiece) -> tuple[SnapshotPiece, ...]:
        assert self.place is not None, f"{piece.files[0].path} was listed without a storage"
        snapshot = read_snapshot(self.place, self.topic.name)
        if snapshot.topic.uid != self.topic.uid:
            raise NotFound(f"topic {self.topic.name} was recreated during the read: run the query again")
        gaps: list[range] = []
        missing = None if self.fail_on_data_loss else gaps
        parts = snapshot.plan(piece.segment, piece.start_offset, piece.end_offset, missing=missing)
        for gap in gaps:
            log.warning(
                "%s; skipped, since failOnDataLoss is false", loss_text(self.topic, piece.segment, gap.start, gap.stop)
            )
        found = parts[0].start_offset if parts else None
        if self.fail_on_data_loss and found != piece.start_offset and (piece.complete or found is not None):
            raise OutOfRange(
                f"{self.topic.name}#{piece.segment}: offset {piece.start_offset} was removed by retention during the "
                "read: run the query again, with a later start"
            )
        return parts
