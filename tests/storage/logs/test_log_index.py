"""Cached knowledge of log files, and its lifetime."""

from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.storage.logs.log_index import LogIndex, Mark

UID = 7


def index_of(*marks: Mark, path: str = "a.log") -> LogIndex:
    index = LogIndex()
    for mark in marks:
        index.note(UID, path, mark)
    return index


def test_reading_begins_at_the_last_mark_at_or_below_the_offset() -> None:
    index = index_of(Mark(10, 1_000), Mark(20, 2_000))
    found = [index.begin(UID, "a.log", offset) for offset in (9, 10, 19, 20, 99)]
    assert found == [None, *[Mark(10, 1_000)] * 2, *[Mark(20, 2_000)] * 2]


def test_of_a_log_that_nobody_read_nothing_is_known_nor_of_one_of_a_later_topic() -> None:
    index = index_of(Mark(0, 100))
    assert index.begin(UID, "b.log", 5) is None
    assert index.begin(UID + 1, "a.log", 5) is None


def test_the_log_that_was_not_read_for_longest_is_forgotten() -> None:
    index = LogIndex(marks_max=3)
    for path, offset in (("a", 0), ("b", 0), ("a", 1), ("c", 0)):
        index.note(UID, path, Mark(offset, offset))
    assert [index.begin(UID, path, 5) for path in "abc"] == [Mark(1, 1), None, Mark(0, 0)]


@given(noted=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30))), offset=st.integers(0, 40))
def test_marks_are_few_and_never_beyond_the_offset(noted: list[tuple[str, int]], offset: int) -> None:
    index = LogIndex(marks_max=5)
    for path, at in noted:
        index.note(UID, path, Mark(at, at * 100))
    found = [index.begin(UID, path, offset) for path in "abc"]
    assert all(mark is None or (mark.offset <= offset and mark.position == mark.offset * 100) for mark in found)
    marks = {(path, index.begin(UID, path, at)) for path in "abc" for at in range(31)}
    assert len([mark for _, mark in marks if mark is not None]) <= 5
