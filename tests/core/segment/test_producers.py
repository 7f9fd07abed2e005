"""Duplicate detection, as frames of producers and the answers of the table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.core.segment.producers import SNAPSHOT_FRAMES_MAX, ProducerTable
from seaweedmq.errors import Fenced, InvalidArgument, ResourceExhausted
from seaweedmq.model.messages.publish import FrameAck

ME = 7
FRAMES = 16
IDLE_S = 900.0


class Told:
    """A table at the end of a growing log; frames are ``(first_sequence, count)``."""

    def __init__(self, limit: int = 100, pool: ProducerPool | None = None) -> None:
        self.table = ProducerTable(ProducerLimits(producers=limit, idle_s=IDLE_S, frames=FRAMES), pool)
        self.end = 0
        self.now = 0.0

    def open(self, first: int = 0, *, producer: int = ME, epoch: int = 0) -> int | str:
        try:
            return self.table.open(producer, epoch, first, self.now)
        except (Fenced, ResourceExhausted) as error:
            return type(error).__name__

    def close(self, producer: int = ME) -> None:
        self.table.close(producer, self.now)

    def send(self, first: int, count: int, *, producer: int = ME, epoch: int = 0) -> str:
        try:
            repeat = self.table.find_repeat(producer, epoch, first, count)
        except (Fenced, InvalidArgument) as error:
            return type(error).__name__
        if repeat is not None:
            return f"repeat of {repeat.base_offset}"
        self.table.record(producer, epoch, FrameAck(first, count, self.end))
        self.end += count
        return f"stored at {self.end - count}"

    def visit(self, producer: int, first: int = 0) -> None:
        """One stream with one record."""
        self.open(first, producer=producer)
        self.send(first, 1, producer=producer)
        self.close(producer)

    @property
    def known(self) -> list[int]:
        """Return the producers, the longest idle first."""
        return [s.producer_id for s in self.table.snapshot()]


def opened(**more: int) -> Told:
    told = Told(**more)  # type: ignore[arg-type]
    told.open()
    return told


def test_what_is_sent_twice_is_stored_once_and_remembered_until_it_is_fsynced() -> None:
    told = opened()
    assert told.send(0, 3) == "stored at 0"
    assert told.send(0, 3) == "repeat of 0"
    assert told.send(3, 2) == "stored at 3"
    assert told.send(0, 3) == "repeat of 0"
    assert told.send(3, 2) == "repeat of 3"
    assert told.open() == 5
    told = opened()
    for sequence in range(3 * FRAMES):
        told.send(sequence, 1)
    assert told.send(0, 1) == "repeat of 0"
    told.table.floor = told.end
    told.send(3 * FRAMES, 1)
    assert told.send(0, 1) == "InvalidArgument"
    state = told.table.state(ME)
    assert len(state.recent) == FRAMES


def test_frames_without_a_stream_or_neither_next_nor_stored_are_refused_and_told_where_to_continue() -> None:
    told = opened()
    assert told.send(1, 1) == "InvalidArgument"
    told.send(0, 3)
    for first, count in ((4, 1), (0, 2), (1, 2), (2, 5)):
        assert told.send(first, count) == "InvalidArgument"
    assert told.open() == 3
    with pytest.raises(InvalidArgument, match=r"producer 7 sent sequences 5\.\.6, but 3 is next .*: resend from 3"):
        told.table.find_repeat(ME, 0, 5, 2)
    told = Told()
    assert told.send(0, 1) == "InvalidArgument"
    with pytest.raises(InvalidArgument, match="open one before sending frames"):
        told.table.find_repeat(ME, 0, 0, 1)


def test_a_newer_epoch_begins_anew_and_fences_the_older() -> None:
    told = Told()
    told.open(epoch=1)
    told.send(0, 3, epoch=1)
    assert told.open(epoch=2) == 0
    assert told.send(3, 1, epoch=2) == "InvalidArgument"
    assert told.send(3, 1, epoch=1) == "Fenced"
    assert told.send(0, 1, epoch=2) == "stored at 3"
    assert told.send(0, 3, epoch=1) == "Fenced"
    assert told.open(epoch=1) == "Fenced"
    assert told.send(0, 1, epoch=2) == "repeat of 3"


# --- who is forgotten -------------------------------------------------------------------------------------------------
def test_nobody_is_forgotten_while_a_stream_of_his_is_open_or_was_a_moment_ago() -> None:
    told = Told(limit=2)
    told.open(producer=1)
    told.send(0, 1, producer=1)
    told.now += 2 * IDLE_S
    told.visit(2)
    told.now += IDLE_S
    for producer in (3, 4, 5):
        told.visit(producer)
    assert told.known == [1, 2, 3, 4, 5], "far more than two, but each may still repeat what it sent"
    assert told.send(0, 1, producer=1) == "repeat of 0"
    assert told.open(producer=2) == 1


def test_with_too_many_the_longest_idle_are_forgotten_and_go_on_where_they_say_they_repeat_nothing_below() -> None:
    told = Told(limit=2)
    for producer in (1, 2, 3):
        told.visit(producer)
        told.now += 1
    told.now += IDLE_S
    assert told.known == [1, 2, 3], "no new producer needs the room"
    told.visit(4)
    assert told.known == [3, 4]
    told = Told(limit=1)
    told.visit(1)
    told.now += IDLE_S + 1
    told.visit(2)
    assert told.known == [2]
    assert told.open(1, producer=1) == 1
    assert told.send(0, 1, producer=1) == "InvalidArgument"
    assert told.send(1, 1, producer=1) == "stored at 2"


def test_who_is_known_goes_on_where_the_table_says_and_streams_that_stored_nothing_leave_nothing() -> None:
    told = opened()
    told.send(0, 5)
    assert told.open(3) == 5, "the acknowledgement of the last two was lost"
    assert told.open(9) == 5, "it dropped four records before they arrived"
    told = Told()
    told.open(5)
    told.close()
    assert told.known == []
    told = Told(limit=1)
    told.open()
    told.send(0, 1)
    told.open()
    told.close()
    told.now += 2 * IDLE_S
    told.visit(1)
    assert ME in told.known


def test_one_producer_too_many_for_the_broker_is_refused_with_a_remedy_and_the_others_go_on() -> None:
    pool = ProducerPool(3)
    here, there = Told(pool=pool), Told(pool=pool)
    here.visit(1)
    here.open(producer=2)
    there.open(producer=1)
    assert there.open(producer=2) == "ResourceExhausted"
    assert here.send(0, 1, producer=2) == "stored at 1"
    assert here.open(1, producer=1) == 1, "it is not new"
    here.close(1)
    here.now = there.now = IDLE_S + 1
    assert there.open(producer=2) == 0, "producer 1 is dropped there, though that table has room"
    assert here.known == [2]
    here.table.release()
    assert (pool.used, there.open(producer=3)) == (2, 0)
    here.close(2)  # its stream ends after the segment did
    assert pool.used == 3
    told = Told(pool=ProducerPool(0))
    with pytest.raises(ResourceExhausted, match=r"its limit is 0 \(producers_max.*raise the limits") as refused:
        told.table.open(1, 0, 0, 0.0)
    assert refused.value.retryable


# --- followers, and readers of a log ----------------------------------------------------------------------------------
def test_a_follower_takes_what_its_primary_took_and_forgets_by_the_frames_it_sees() -> None:
    table = ProducerTable(ProducerLimits(producers=1, idle_s=IDLE_S, frames=FRAMES), ProducerPool(1))
    table.follow(1, 0, FrameAck(40, 2, 0), 0.0)  # the primary had dropped it
    table.follow(2, 0, FrameAck(0, 1, 2), 1.0)  # more than this broker would take
    table.follow(1, 0, FrameAck(42, 1, 3), 2.0)
    assert [(s.producer_id, s.next_sequence, len(s.recent)) for s in table.snapshot()] == [(2, 1, 1), (1, 43, 2)]
    table.follow(1, 0, FrameAck(41, 5, 4), 3.0)  # it dropped 41 and 42, which are stored, and was dropped meanwhile
    state = table.state(1)
    assert (state.next_sequence, state.recent) == (46, (FrameAck(41, 5, 4),))
    table = ProducerTable(ProducerLimits(producers=2, idle_s=IDLE_S, frames=FRAMES))
    for producer in (1, 2, 1, 3):
        state = table.state(producer)
        table.follow(producer, 0, FrameAck(state.next_sequence if state else 0, 1, producer), float(producer))
    assert len(table) == 3
    table.follow(4, 0, FrameAck(0, 1, 9), IDLE_S + 2.5)
    assert [s.producer_id for s in table.snapshot()] == [3, 4], "1 and 2 sent nothing for so long"


def test_the_record_of_a_sealed_segment_names_who_may_not_have_heard_of_all_he_stored() -> None:
    told = Told()
    told.visit(1)
    told.open(producer=2)
    told.send(0, 2, producer=2)
    told.open(producer=3)
    told.now += IDLE_S + 1
    told.visit(4)
    assert [(s.producer_id, s.next_sequence) for s in told.table.unsettled(told.now)] == [(2, 2), (4, 1)]


# --- snapshots --------------------------------------------------------------------------------------------------------
def test_a_snapshot_of_very_many_producers_names_all_of_them_and_few_frames() -> None:
    told = Told(limit=10_000)
    for producer in range(1, 3_001):
        told.open(producer=producer)
        for sequence in range(FRAMES):
            told.send(sequence, 1, producer=producer)
    states = told.table.snapshot()
    assert {s.next_sequence for s in states} == {FRAMES}
    assert {len(s.recent) for s in states} == {SNAPSHOT_FRAMES_MAX // 3_000}
    assert all(s.recent[-1].first_sequence == FRAMES - 1 for s in states), "the last ones"


@given(
    sends=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=120),
    cut_at=st.floats(0, 1),
    flushed_at=st.floats(0, 1),
)
def test_a_file_that_begins_anywhere_above_the_floor_counts_exactly_what_is_below(
    sends: list[tuple[int, int]], cut_at: float, flushed_at: float
) -> None:
    """Recovery from the snapshot and the rest of the log ends with the state of the live table."""
    told = Told()
    bases, nexts = [], dict.fromkeys((1, 2, 3), 0)
    for producer in nexts:
        told.open(producer=producer)
    flush_index = int(flushed_at * (len(sends) - 1))
    before: list[dict[int, int]] = []
    for index, (producer, count) in enumerate(sends):
        if index == flush_index:
            told.table.floor = told.end
        before.append(dict(nexts))
        bases.append(told.end)
        assert told.send(nexts[producer], count, producer=producer) == f"stored at {bases[-1]}"
        nexts[producer] += count
    cut = flush_index + int(cut_at * (len(sends) - flush_index - 1))
    recovered = ProducerTable(states=told.table.snapshot(below=bases[cut]))
    for state in recovered.snapshot():
        assert state.next_sequence == before[cut][state.producer_id]
        assert all(ack.base_offset < bases[cut] for ack in state.recent)
        assert len(state.recent) <= FRAMES
        assert not state.recent or state.recent[-1].first_sequence + state.recent[-1].record_count == (
            state.next_sequence
        )
    firsts = dict(before[cut])
    for (producer, count), base in list(zip(sends, bases, strict=True))[cut:]:
        recovered.follow(producer, 0, FrameAck(firsts[producer], count, base))
        firsts[producer] += count
    live = {s.producer_id: s for s in told.table.snapshot()}
    for state in recovered.snapshot():
        assert state.next_sequence == live[state.producer_id].next_sequence
        assert state.recent[-FRAMES:] == live[state.producer_id].recent


@given(st.data())
def test_any_number_of_frames_is_found_again_and_none_else(data: st.DataObject) -> None:
    limit = data.draw(st.sampled_from((1, 3, 16, 200)))
    table = ProducerTable(ProducerLimits(producers=1, idle_s=IDLE_S, frames=limit))
    table.open(ME, 0, 0, 0.0)
    stored: list[FrameAck] = []
    first = 0
    for base, count in enumerate(data.draw(st.lists(st.integers(1, 5), max_size=600)), 100):
        stored.append(FrameAck(first, count, base * 10))
        table.record(ME, 0, stored[-1])
        first += count
        table.floor = base * 10
    for ack in stored[-limit:]:
        assert table.find_repeat(ME, 0, ack.first_sequence, ack.record_count) == ack
        with pytest.raises(InvalidArgument):
            table.find_repeat(ME, 0, ack.first_sequence, ack.record_count + 1)
    assert table.find_repeat(ME, 0, first, 1) is None
    for ack in stored[: -2 * limit]:
        with pytest.raises(InvalidArgument):
            table.find_repeat(ME, 0, ack.first_sequence, ack.record_count)
