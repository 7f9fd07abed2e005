"""Reading one partition on an executor, while files may be converted and expired underneath."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from seaweedmq.core.files.snapshot import SnapshotPiece
from seaweedmq.errors import Corrupt, NotFound, OutOfRange
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import Topic
from seaweedmq.spark.columns import Assembler, Column
from seaweedmq.spark.log_scan import LogScan
from seaweedmq.spark.table_scan import Scanned, opened, scan_table
from seaweedmq.spark.window import Interval
from seaweedmq.storage.snapshot import read_snapshot

REPLANS_MAX = 3
"""Listings made anew for one piece. A file is listed as a log, then as a table, then is gone for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What every partition of a read needs to know. Travels to the executors."""

    root: Path
    topic: Topic
    timestamps: Interval
    columns: tuple[Column, ...]

    def read(self, pieces: Sequence[SnapshotPiece]) -> Iterator[pa.RecordBatch]:
        """The records of the pieces, in order.

        Raises:
            Corrupt: damaged or missing files. OutOfRange: retention removed what was to be read.
        """
        assembler = Assembler(str(self.topic.name), self.columns)
        for piece in pieces:
            for scanned in self._piece(piece, assembler, REPLANS_MAX):
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
                    f"{self.topic.name}#{piece.segment}: {piece.files[0].path} and what replaced it are gone: run the "
                    "query again, with a later start if retention removed them"
                ) from e
        else:
            return
        for part in self._plan_again(replace(piece, start_offset=position)):
            yield from self._piece(part, assembler, replans - 1)

    def _files(self, piece: SnapshotPiece, assembler: Assembler) -> Iterator[Scanned]:
        if piece.kind is FileKind.TABLE:
            (file,) = piece.files
            if piece.end_offset is None:
                raise AssertionError(f"{file.path} is a table, and nobody knows where it ends")
            with opened(self.root, file, self.topic) as table:
                yield from scan_table(table, file, piece.start_offset, piece.end_offset, self.timestamps, assembler)
            return
        logs = LogScan(self.root, self.topic, self.timestamps, assembler)
        position = piece.start_offset
        for file in piece.files:
            for scanned in logs.scan(file, position, piece.end_offset):
                position = scanned.next_offset
                yield scanned
            if position == piece.end_offset:
                return
        if piece.complete:
            raise Corrupt(
                f"{piece.files[0].path} ends with offset {position}, but records up to {piece.end_offset} were stored: "
                "it was damaged or cut, restore it from a copy"
            )

    def _plan_again(self, piece: SnapshotPiece) -> tuple[SnapshotPiece, ...]:
        snapshot = read_snapshot(self.root, self.topic.name)
        if snapshot.topic.uid != self.topic.uid:
            raise NotFound(f"topic {self.topic.name} was deleted and made anew while it was read: run the query again")
        parts = snapshot.plan(piece.segment, piece.start_offset, piece.end_offset)
        found = parts[0].start_offset if parts else None
        if found != piece.start_offset and (piece.complete or found is not None):
            raise OutOfRange(
                f"{self.topic.name}#{piece.segment}: offset {piece.start_offset} was removed by retention while it was "
                "to be read: run the query again, with a later start"
            )
        return parts
