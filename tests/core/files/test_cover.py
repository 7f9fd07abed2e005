"""Selection of files to read: every offset once, from a log while it exists."""

from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.files.cover import cover, file_at
from seaweedmq.model.files import SegmentFile
from tests.core.files.segment_files import log, table


def story(files: list[SegmentFile], start: int, end: int) -> list[str]:
    return [f"{p.start}-{p.end} {p.table.path if p.table else 'no table'}" for p in cover(files, start, end)]


def tried(files: list[SegmentFile], position: int) -> list[str]:
    """Return the given order if no file holds the offset."""
    passed: list[str] = []
    while (found := file_at(files, position, passed)) is not None:
        passed.append(found.path)
    return passed


def test_pieces_are_of_the_table_that_reaches_furthest_or_of_none() -> None:
    files = [log(0), table(0, 10), log(10), table(20, 30), log(30), log(90)]
    assert story(files, 5, 40) == ["5-10 table 0-10", "10-20 no table", "20-30 table 20-30", "30-40 no table"]
    assert story([table(0, 10), table(0, 30), table(10, 20)], 0, 25) == ["0-25 table 0-30"]
    assert story([table(10, 20)], 0, 15) == ["0-10 no table", "10-15 table 10-20"]
    files = [table(0, 20), log(10), table(20, 30)]
    assert tried(files, 5) == ["table 0-20"]
    assert tried(files, 15) == ["log 10-b-1", "table 0-20"]
    assert tried(files, 25) == ["log 10-b-1", "table 20-30"]
    assert tried(files, 30) == ["log 10-b-1"]
    files = [log(0), log(10, "b-1"), log(10, "b-2", size_bytes=200), log(20), table(0, 16), table(10, 40)]
    assert tried(files, 15) == ["log 10-b-2", "log 10-b-1", "log 0-b-1", "table 10-40", "table 0-16"]


@given(
    tables=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20))),
    logs=st.lists(st.integers(0, 60)),
    start=st.integers(0, 60),
    length=st.integers(0, 60),
)
def test_every_offset_is_in_exactly_one_piece(
    tables: list[tuple[int, int]], logs: list[int], start: int, length: int
) -> None:
    files = [table(b, b + n) for b, n in tables] + [log(b) for b in logs]
    pieces = cover(files, start, start + length)
    assert [o for p in pieces for o in range(p.start, p.end)] == list(range(start, start + length))
    for piece in pieces:
        assert piece.start < piece.end
        inside = {o for b, n in tables for o in range(b, b + n)} & set(range(piece.start, piece.end))
        assert bool(inside) == (piece.table is not None)
        if piece.table is not None:
            assert piece.table.base_offset <= piece.start < piece.end <= (piece.table.end_offset or 0)
