"""The log of one open segment: short transcripts, then any order of events against a model of lists."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.core.segment.segment_log import ENTRY_OVERHEAD_BYTES, LogEntry, SegmentLog
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.topic import Durability

ME = 1
HELD = 10 + ENTRY_OVERHEAD_BYTES
"""Memory of an entry of 10 bytes."""


def entry(base: int, count: int, size: int = 10) -> LogEntry:
    return LogEntry(base, base + count, 1, b"h" * 4, bytes(size - 4))


def new_log(start: int = 0, durability: Durability = Durability.STORED) -> SegmentLog:
    log = SegmentLog(start_offset=start, durability=durability, producers=ProducerTable())
    log.producers.open(ME, 0, 0, 0.0)
    return log


def next_sequence(log: SegmentLog) -> int:
    (state,) = log.producers.snapshot()
    return state.next_sequence


def append(log: SegmentLog, *counts: int) -> None:
    for count in counts:
        log.append(ME, 0, next_sequence(log), entry(log.end, count))


def write_all(log: SegmentLog) -> None:
    entries = log.take_unwritten(10**9)
    log.on_written(entries[-1].end_offset, sum(e.size_bytes for e in entries))


def offsets(entries: list[LogEntry]) -> list[int]:
    return [e.base_offset for e in entries]


def test_a_stored_frame_is_visible_only_after_its_fsync_a_replicated_one_once_it_is_in_the_file() -> None:
    log = new_log(100)
    append(log, 5)
    assert (log.end, log.unwritten_bytes, log.committable) == (105, 10, 100)
    write_all(log)
    assert (log.written, log.unwritten_bytes, log.committable, log.read(100, 99)) == (105, 0, 100, [])
    log.on_flushed(105)
    assert (log.flushed, log.committable, log.read(100, 99)) == (105, 105, [])
    log.on_committed(105)
    assert offsets(log.read(100, 99)) == [100]
    log = new_log(durability=Durability.REPLICATED)
    append(log, 5)
    assert log.committable == 0
    write_all(log)
    assert (log.committable, log.flushed) == (5, 0)
    log.on_committed(5)
    assert offsets(log.read(0, 99)) == [0]


def test_nothing_is_committed_written_or_appended_that_can_not_be() -> None:
    log = new_log()
    append(log, 5)
    with pytest.raises(AssertionError):
        log.on_committed(5)
    with pytest.raises(AssertionError):
        log.on_flushed(5)
    with pytest.raises(AssertionError):
        log.on_written(6, 10)
    log = new_log()
    with pytest.raises(AssertionError):
        log.append(ME, 0, 0, entry(1, 1))
    assert log.end == 0


def test_writes_are_taken_in_bounded_portions_and_at_hand_until_the_segment_is_not_served() -> None:
    log = new_log()
    append(log, 1, 1, 1, 1, 1)
    assert offsets(log.take_unwritten(20)) == [0, 1]
    assert offsets(log.take_unwritten(1)) == [2]
    assert offsets(log.take_unwritten(100)) == [3, 4]
    assert log.take_unwritten(100) == []
    log = new_log()
    append(log, 1, 1)
    write_all(log)
    log.on_flushed(2)
    append(log, 1, 1)
    write_all(log)
    append(log, 1)
    assert offsets(log.written_entries(log.flushed)) == [2, 3]
    log = new_log()
    append(log, 1, 1)
    assert log.release_all() == 2 * HELD
    assert (log.cached_bytes, log.cache_start) == (0, log.end)
    assert log.release_all() == 0


def test_only_what_is_committed_and_fsynced_is_evicted() -> None:
    log = new_log(durability=Durability.REPLICATED)
    append(log, 5, 5)
    write_all(log)
    log.on_committed(5)
    assert log.evict(10_000) == 0, "a failed fsync would have nothing to write it from"
    log.on_flushed(5)
    assert log.evict(10_000) == HELD
    assert (log.cache_start, log.cached_bytes) == (5, HELD)
    log.on_flushed(10)
    assert log.evict(10_000) == 0, "it is not committed"
    log.on_committed(10)
    assert log.evict(1) == HELD
    assert (log.cache_start, log.cached_bytes) == (10, 0)
    append(log, 2)
    assert offsets(log.take_unwritten(99)) == [10]


def test_what_was_there_at_a_check_that_is_old_enough_is_forgotten_once_it_is_safe() -> None:
    log = new_log()
    append(log, 5)
    write_all(log)
    assert log.forget_older(30.0, 0.0) == 0, "the first fence check sees it"
    append(log, 5)
    write_all(log)
    assert log.forget_older(30.0, 20.0) == 0, "the second check sees more"
    log.on_flushed(10)
    log.on_committed(10)
    assert log.forget_older(30.0, 29.9) == 0
    assert (log.forget_older(30.0, 30.0), log.cache_start) == (HELD, 5)
    assert (log.forget_older(30.0, 50.0), log.cache_start, log.cached_bytes) == (HELD, 10, 0)
    assert log.forget_older(30.0, 1_000.0) == 0, "nothing is left, and checks continue"
    log = new_log()
    append(log, 5)
    log.forget_older(30.0, 0.0)
    assert log.forget_older(30.0, 40.0) == 0, "it is in no file"
    write_all(log)
    log.on_flushed(5)
    log.on_committed(5)
    assert log.forget_older(30.0, 80.0) == HELD


class AnyOrder(RuleBasedStateMachine):
    """Reports of a shell, in any order, against plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.log = new_log(50)
        self.appended: list[LogEntry] = []
        self.taken: list[LogEntry] = []
        self.now = 0.0
        self.seen_s: dict[int, float] = {}
        """Time at which a fence check first saw an entry, by its offset."""

    @rule(count=st.integers(1, 4), size=st.integers(4, 40))
    def append(self, count: int, size: int) -> None:
        new = entry(self.log.end, count, size)
        first = next_sequence(self.log)
        assert self.log.append(ME, 0, first, new) == FrameAck(first, count, new.base_offset)
        self.appended.append(new)

    @rule(size=st.integers(0, 100))
    def take(self, size: int) -> None:
        if not self.taken:
            self.taken = self.log.take_unwritten(size)

    @precondition(lambda self: self.taken)
    @rule()
    def written(self) -> None:
        self.log.on_written(self.taken[-1].end_offset, sum(e.size_bytes for e in self.taken))
        self.taken = []

    @rule(back=st.integers(0, 2))
    def synced(self, back: int) -> None:
        below = [e.end_offset for e in self.appended if e.end_offset <= self.log.written]
        if len(below) > back:
            self.log.on_flushed(below[-1 - back])

    @precondition(lambda self: self.log.committable >= self.log.committed)
    @rule()
    def committed(self) -> None:
        self.log.on_committed(self.log.committable)

    @rule(durability=st.sampled_from(Durability))
    def altered(self, durability: Durability) -> None:
        self.log.durability = durability

    @rule(size=st.integers(0, 3 * ENTRY_OVERHEAD_BYTES))
    def evict(self, size: int) -> None:
        before = self.log.cached_bytes
        freed = self.log.evict(size)
        assert self.log.cached_bytes == before - freed

    @rule(later_s=st.floats(0, 5), age_s=st.floats(0, 10))
    def look(self, later_s: float, age_s: float) -> None:
        self.now += later_s
        before = self.log.cached_bytes
        freed = self.log.forget_older(age_s, self.now)
        assert self.log.cached_bytes == before - freed
        young = [e for e in self.appended if self.now - self.seen_s.setdefault(e.base_offset, self.now) < age_s]
        if young and freed:
            assert self.log.cache_start <= young[0].base_offset

    @rule(back=st.integers(0, 100), size=st.integers(1, 100))
    def read(self, back: int, size: int) -> None:
        offset = max(self.log.cache_start, self.log.end - back)
        found = self.log.read(offset, size)
        visible = [e for e in self.appended if e.end_offset > offset and e.end_offset <= self.log.committed]
        assert found == visible[: len(found)]
        assert bool(found) == bool(visible)
        assert len(found) <= 1 or sum(e.size_bytes for e in found) <= size

    @invariant()
    def positions_are_in_order(self) -> None:
        log = self.log
        assert log.committed <= log.written <= log.end
        assert log.flushed <= log.written
        assert log.producers.floor == log.flushed

    @invariant()
    def memory_is_counted(self) -> None:
        held = [e for e in self.appended if e.base_offset >= self.log.cache_start]
        assert self.log.cached_bytes == sum(e.memory_bytes for e in held)
        assert self.log.unwritten_bytes == sum(e.size_bytes for e in self.appended if e.end_offset > self.log.written)
        assert self.log.cache_start <= self.log.committed or self.log.cache_start == self.log.end

    @invariant()
    def nothing_unwritten_counts_as_stored(self) -> None:
        for state in self.log.producers_below(self.log.written):
            assert state.next_sequence == self.log.written - 50


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_a_flushed_frame_that_no_log_file_has_is_not_evicted() -> None:
    log = new_log()
    append(log, 1, 1, 1)
    write_all(log)
    log.on_flushed(3, readable=1)
    log.on_committed(3)
    assert log.evict(10**9) == HELD
    assert (log.cache_start, log.readable, log.flushed) == (1, 1, 3)
    assert offsets(log.entries_between(1, 3)) == [1, 2]
    assert offsets(log.entries_between(2, 3)) == [2]
    with pytest.raises(AssertionError):
        log.on_flushed(3, readable=4)
    log.on_flushed(3, readable=3)
    assert log.evict(10**9) == 2 * HELD
