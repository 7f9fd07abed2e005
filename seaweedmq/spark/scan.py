"""Reader of one partition on an executor, while files may be converted and removed."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from seaweedmq.core.files.holes import loss_text, missing_records
from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import NotFound, OutOfRange
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import Topic
from seaweedmq.spark.columns import Assembler, Column
from seaweedmq.spark.log_scan import LogScan
from seaweedmq.spark.table_scan import Scanned, in_batches, opened, scan_table
from seaweedmq.storage.plan.scan_ranges import BrokerRange, ScanRange
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.snapshot import read_snapshot

log = logging.getLogger(__name__)

REPLANS_MAX = 3
"""Maximum number of new listings for one piece: a file is listed as a log file, then as a table, then removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The data that every partition of a read needs; sent to the executors."""

    root: Path | None
    """Root of the storage; None if brokers serve all records."""
    topic: Topic
    timestamps: Interval
    columns: tuple[Column, ...]
    bootstrap: str | None = None
    """Brokers, which serve the records behind the end of the files; None if only files are read."""
    fail_on_data_loss: bool = True
    """Whether lost records are an error; otherwise each gap is logged, and the read continues behind it."""

    def read(self, pieces: Sequence[ScanRange]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the pieces, in order.

        Raises:
            Corrupt: If a file is damaged.
            DataLoss: If records are lost.
            OutOfRange: If retention removed records of the pieces.
        """
        assembler = Assembler(str(self.topic.name), self.columns)
        for piece in pieces:
            scan = (
                self._broker(piece, assembler)
                if isinstance(piece, BrokerRange)
                else self._piece(piece, assembler, REPLANS_MAX)
            )
            for scanned in scan:
                if scanned.batch is not None and scanned.batch.num_rows > 0:
                    yield scanned.batch

    def _piece(self, piece: SnapshotPiece, assembler: Assembler, replans: int) -> Iterator[Scanned]:
        position = piece.start_offset
        try:
            for scanned in self._files(piece, assembler):
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
        for part in self._plan_again(replace(piece, start_offset=position)):
            position = part.end_offset or position
            yield from self._piece(part, assembler, replans - 1)
        yield from self._rest(piece, position, assembler)

    def _rest(self, piece: SnapshotPiece, position: int, assembler: Assembler) -> Iterator[Scanned]:
        """Yield the records that are in no file, of a piece that is committed up to its end."""
        if self.bootstrap is not None and piece.end_offset is not None and position < piece.end_offset:
            rest = BrokerRange(segment=piece.segment, start_offset=position, end_offset=piece.end_offset)
            yield from self._broker(rest, assembler)

    def _broker(self, piece: BrokerRange, assembler: Assembler) -> Iterator[Scanned]:
        # Lazy import: file-only reads need no network.
        from seaweedmq.spark.live import read_range

        if self.bootstrap is None:
            raise AssertionError(f"{piece} is on brokers, and no brokers are given")
        start = None if piece.from_earliest else piece.start_offset
        for batch in read_range(
            self.bootstrap,
            self.topic.name,
            piece.segment,
            start,
            piece.end_offset,
            "fail" if self.fail_on_data_loss else "skip",
        ):
            base = batch.column("_offset")[0].as_py()
            yield from in_batches(assembler, self.timestamps, piece.segment, base, batch)

    def _files(self, piece: SnapshotPiece, assembler: Assembler) -> Iterator[Scanned]:
        if piece.kind is FileKind.TABLE:
            (file,) = piece.files
            if piece.end_offset is None:
                raise AssertionError(f"{file.path} is a table without an end offset")
            if self.root is None:
                raise AssertionError(f"{file.path} was listed without a storage")
            with opened(self.root, file, self.topic) as table:
                yield from scan_table(table, file, piece.start_offset, piece.end_offset, self.timestamps, assembler)
            return
        if self.root is None:
            raise AssertionError(f"{piece.files[0].path} was listed without a storage")
        logs = LogScan(self.root, self.topic, self.timestamps, assembler)
        position = piece.start_offset
        for file in piece.files:
            for scanned in logs.scan(file, position, piece.end_offset):
                position = scanned.next_offset
                yield scanned
            if position == piece.end_offset:
                return
        if self.bootstrap is not None:
            yield from self._rest(piece, position, assembler)
            return
        if piece.complete and piece.end_offset is not None:
            loss = missing_records(self.topic, piece.segment, position, piece.end_offset, piece.files[0])
            if self.fail_on_data_loss:
                raise loss
            log.warning("%s; skipped, since failOnDataLoss is false", loss)

    def _plan_again(self, piece: SnapshotPiece) -> tuple[SnapshotPiece, ...]:
        if self.root is None:
            raise AssertionError(f"{piece.files[0].path} was listed without a storage")
        snapshot = read_snapshot(self.root, self.topic.name)
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
