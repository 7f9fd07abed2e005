"""Timing of conversions of logs to tables: at once while idle, else as late as allowed."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.files.conversion import BUSY_CPU_SHARE, STEP_BYTES, ConversionBounds, Waiting, first_step, next_due
from seaweedmq.model.files import SegmentFile
from tests.core.files.segment_files import log
from tests.support.segments import NAME

BOUNDS = ConversionBounds(backlog_bytes_max=1_000, delay_s_max=60.0)
CALM, BUSY = BUSY_CPU_SHARE - 0.01, BUSY_CPU_SHARE


def waiting(segment: int, size_bytes: int, since_s: float) -> Waiting:
    return Waiting(topic=NAME, segment=segment, size_bytes=size_bytes, since_s=since_s)


def due(backlog: list[Waiting], now_s: float, cpu_share: float) -> int | None:
    found = next_due(backlog, now_s, cpu_share, BOUNDS)
    return None if found is None else found.segment


def test_a_calm_broker_converts_at_once_and_a_busy_one_as_late_and_as_little_as_it_may() -> None:
    assert due([waiting(1, 10, since_s=5.0), waiting(2, 10, since_s=4.0)], 5.0, CALM) == 2
    assert due([], 5.0, CALM) is None
    backlog = [waiting(1, 10, since_s=5.0), waiting(2, 10, since_s=4.0)]
    assert due(backlog, 64.0, BUSY) is None
    assert due(backlog, 64.1, BUSY) == 2
    assert due(backlog[:1], 64.1, BUSY) is None
    much = [waiting(1, 600, since_s=5.0), waiting(2, 400, since_s=6.0), waiting(3, 1, since_s=6.0)]
    assert due(much, 6.0, BUSY) == 1
    assert due(much[:2], 6.0, BUSY) is None
    assert due(much[1:], 6.0, BUSY) is None


@given(
    backlog=st.lists(st.builds(waiting, st.integers(0, 9), st.integers(0, 600), st.floats(0, 100))),
    now_s=st.floats(100, 200),
    cpu_share=st.floats(0, 1),
)
def test_what_is_left_is_within_the_bounds_or_the_broker_is_calm_and_nothing_is(
    backlog: list[Waiting], now_s: float, cpu_share: float
) -> None:
    left = list(backlog)
    while found := next_due(left, now_s, cpu_share, BOUNDS):
        assert found.since_s == min(w.since_s for w in left)
        left.remove(found)
    assert not left or cpu_share >= BUSY_CPU_SHARE
    assert sum(w.size_bytes for w in left) <= BOUNDS.backlog_bytes_max
    assert all(now_s - w.since_s <= BOUNDS.delay_s_max for w in left)


def bases(*logs: SegmentFile) -> list[int]:
    return [f.base_offset for f in first_step(logs)]


def test_a_step_is_about_a_table_and_nothing_that_is_sealed_meanwhile() -> None:
    full, half = STEP_BYTES, STEP_BYTES // 2
    assert bases(log(0, size_bytes=full), log(10, size_bytes=full)) == [0]
    assert bases(*(log(base, size_bytes=half) for base in (0, 10, 20))) == [0, 10]
    assert bases(log(0, size_bytes=half)) == [0]
    sealed = [log(0, size_bytes=1)]
    step = first_step(sealed)
    sealed.append(log(10, size_bytes=1))
    assert [f.base_offset for f in step] == [0]


def test_a_file_that_failed_and_its_copy_are_one_step() -> None:
    """The copy is sealed first, and begins where the failed one was fsynced last."""
    full = STEP_BYTES
    copied = [log(15, "b-1.1", size_bytes=full), log(10, size_bytes=full), log(20, size_bytes=full)]
    assert bases(*copied) == [15, 10]
    assert bases(log(0, size_bytes=full), *copied) == [0]
    assert bases(*(replace(f, size_bytes=1) for f in copied)) == [15, 10, 20]
