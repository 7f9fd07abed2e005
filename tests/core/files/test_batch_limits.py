"""Reach of a batch limit of files or bytes."""

from seaweedmq.core.files.batch_limits import ByteLimit, FileLimit
from seaweedmq.core.files.snapshot import SnapshotPiece
from tests.core.files.segment_files import log, table


def piece(start: int, end: int | None, size_bytes: int) -> SnapshotPiece:
    file = log(start, size_bytes=size_bytes) if end is None else table(start, end, size_bytes=size_bytes)
    return SnapshotPiece(segment=0, start_offset=start, end_offset=end, files=(file,), complete=True)


PIECES = {0: [piece(10, 20, 1_000), piece(20, 40, 400), piece(40, None, 600)]}


def test_files_are_taken_whole() -> None:
    files = FileLimit(9, PIECES)
    assert files.reach(0, 10, 100, 1) == (20, 1)
    assert files.reach(0, 15, 100, 2) == (40, 2)
    assert files.reach(0, 15, 100, 9) == (100, 3)
    assert files.reach(0, 15, 30, 9) == (30, 2)
    assert files.reach(7, 3, 30, 1) == (30, 1)  # no file is known


def test_bytes_are_counted_by_the_size_of_files_and_a_record_is_read_however_large_it_is() -> None:
    size = ByteLimit(9, PIECES)
    assert size.reach(0, 10, 100, 500) == (15, 500)
    assert size.reach(0, 10, 100, 1_200) == (30, 1_200)
    assert size.reach(0, 40, 100, 300) == (70, 300)
    assert size.reach(0, 40, 100, 9_000) == (100, 600)
    assert ByteLimit(1, PIECES).reach(0, 10, 100, 1) == (11, 100)
    assert ByteLimit(1, PIECES).reach(0, 19, 100, 1) == (20, 100)
