"""Limits of a batch in bytes or files, estimated from the names and sizes of files.

The estimate has limits: only a log file's content shows where it ends, and compressed records are assumed to have equal
sizes. It decides once how far a batch reaches. The content of the batch does not depend on files.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import attrgetter

from seaweedmq.core.files.snapshot import SnapshotPiece


class _Pieces:
    """The snapshot pieces of some segments, in the order of their offsets."""

    def __init__(self, budget: int, pieces: Mapping[int, Iterable[SnapshotPiece]]) -> None:
        self.budget = budget
        self._pieces = {segment: tuple(found) for segment, found in pieces.items()}

    def _at(self, segment: int, offset: int) -> SnapshotPiece | None:
        """Return the piece that holds the offset, or the next one; None if no file is known to hold it."""
        found = self._pieces.get(segment, ())
        index = bisect_right(found, offset, key=attrgetter("start_offset")) - 1
        for piece in found[max(0, index) : index + 2]:
            if piece.end_offset is None or offset < piece.end_offset:
                return piece
        return None


class FileLimit(_Pieces):
    """A limit of ``budget`` whole files per batch."""

    def reach(self, segment: int, start: int, end: int, budget: int) -> tuple[int, int]:
        """See :class:`~seaweedmq.core.lineage.frontier.BatchLimit`."""
        offset = start
        for count in range(max(1, budget)):
            piece = self._at(segment, offset)
            if piece is None or piece.end_offset is None or piece.end_offset >= end:
                return end, count + 1
            offset = piece.end_offset
        return offset, max(1, budget)


class ByteLimit(_Pieces):
    """A limit of about ``budget`` bytes per batch, as stored in files."""

    def reach(self, segment: int, start: int, end: int, budget: int) -> tuple[int, int]:
        """See :class:`~seaweedmq.core.lineage.frontier.BatchLimit`."""
        offset, cost = start, 0.0
        while offset < end and (cost < budget or offset == start):
            piece = self._at(segment, offset)
            if piece is None:
                return end, int(cost)
            stop = end if piece.end_offset is None else min(end, piece.end_offset)
            each = _record_bytes(piece, end)
            fitting = stop - offset if each <= 0 else min(stop - offset, int((budget - cost) / each))
            if offset == start:
                fitting = max(1, fitting)
            if fitting <= 0:
                break
            offset += fitting
            cost += fitting * each
        return offset, int(cost)


def _record_bytes(piece: SnapshotPiece, end: int) -> float:
    stop = end if piece.end_offset is None else piece.end_offset
    return piece.size_bytes / max(1, stop - piece.start_offset)
