"""Duplicate detection, told as what one producer sends and what the table says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.producers import RECENT_FRAMES, ProducerTable
from seaweedmq.errors import Fenced, InvalidArgument
from seaweedmq.model.protocol import FrameAck

ME = 7


class Told:
    """A table at the end of a growing log; frames are ``(first_sequence, count)``."""

    def __init__(self, limit: int = 100) -> None:
        self.table = ProducerTable(limit)
        self.end = 0

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

    def next(self, producer: int = ME, epoch: int = 0) -> int:
        return self.table.state(producer, epoch).next_sequence


def test_a_producer_that_sends_everything_twice() -> None:
    told = Told()
    assert told.send(0, 3) == "stored at 0"
    assert told.send(0, 3) == "repeat of 0"
    assert told.send(3, 2) == "stored at 3"
    assert told.send(0, 3) == "repeat of 0"
    assert told.send(3, 2) == "repeat of 3"
    assert told.next() == 5


def test_what_is_neither_the_next_frame_nor_a_stored_one_is_refused() -> None:
    told = Told()
    assert told.send(1, 1) == "InvalidArgument"
    told.send(0, 3)
    assert told.send(4, 1) == "InvalidArgument"
    assert told.send(0, 2) == "InvalidArgument"
    assert told.send(1, 2) == "InvalidArgument"
    assert told.send(2, 5) == "InvalidArgument"
    assert told.next() == 3


def test_the_refusal_says_where_to_go_on() -> None:
    told = Told()
    told.send(0, 3)
    with pytest.raises(InvalidArgument, match=r"producer 7 sent sequences 5\.\.6, but 3 is next .*: resend from 3"):
        told.table.find_repeat(ME, 0, 5, 2)


def test_a_newer_epoch_begins_anew_and_fences_the_older() -> None:
    told = Told()
    told.send(0, 3, epoch=1)
    assert told.send(3, 1, epoch=2) == "InvalidArgument"
    assert told.send(0, 1, epoch=2) == "stored at 3"
    assert told.send(3, 1, epoch=1) == "Fenced"
    assert told.send(0, 3, epoch=1) == "Fenced"
    assert told.send(0, 1, epoch=2) == "repeat of 3"


def test_asking_with_a_newer_epoch_fences_nobody_until_it_stores() -> None:
    told = Told()
    told.send(0, 3, epoch=1)
    assert told.next(epoch=2) == 0
    assert told.send(3, 1, epoch=1) == "stored at 3"


def test_as_many_frames_are_remembered_as_may_be_in_flight() -> None:
    told = Told()
    told.table.floor = 10**9
    for sequence in range(RECENT_FRAMES + 1):
        told.send(sequence, 1)
    assert told.send(0, 1) == "InvalidArgument"
    assert [told.send(s, 1) for s in range(1, RECENT_FRAMES + 1)] == [
        f"repeat of {s}" for s in range(1, RECENT_FRAMES + 1)
    ]


def test_what_is_not_fsynced_is_remembered_beyond_that() -> None:
    told = Told()
    for sequence in range(3 * RECENT_FRAMES):
        told.send(sequence, 1)
    assert told.send(0, 1) == "repeat of 0"
    told.table.floor = told.end
    told.send(3 * RECENT_FRAMES, 1)
    assert told.send(0, 1) == "InvalidArgument"
    assert len(told.table.state(ME, 0).recent) == RECENT_FRAMES


def test_the_longest_idle_is_forgotten_first() -> None:
    told = Told(limit=2)
    told.send(0, 1, producer=1)
    told.send(0, 1, producer=2)
    told.send(1, 1, producer=1)
    told.send(0, 1, producer=3)
    assert [s.producer_id for s in told.table.snapshot()] == [1, 3]
    assert told.next(producer=2) == 0


def test_a_snapshot_restores_the_table() -> None:
    told = Told()
    for sequence in range(4):
        told.send(sequence, 1, producer=1)
        told.send(2 * sequence, 2, producer=2)
    again = Told()
    again.table, again.end = ProducerTable(100, told.table.snapshot()), told.end
    assert again.send(3, 1, producer=1) == told.send(3, 1, producer=1)
    assert again.send(8, 2, producer=2) == "stored at 12"
    assert again.send(9, 1, producer=1) == "InvalidArgument"


def test_a_snapshot_below_an_offset_leaves_out_what_is_not_written_yet() -> None:
    told = Told()
    told.send(0, 2)
    told.send(2, 2)
    told.send(4, 2)
    (state,) = told.table.snapshot(below=4)
    assert (state.next_sequence, [a.base_offset for a in state.recent]) == (4, [0, 2])
    (state,) = told.table.snapshot(below=0)
    assert (state.next_sequence, state.recent) == (0, ())


@given(
    sends=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=120),
    cut_at=st.floats(0, 1),
    flushed_at=st.floats(0, 1),
)
def test_a_file_that_begins_anywhere_above_the_floor_counts_exactly_what_is_below(
    sends: list[tuple[int, int]], cut_at: float, flushed_at: float
) -> None:
    """Whoever recovers from the snapshot and reads the rest of the log ends where the live table is."""
    told = Told()
    bases, nexts = [], dict.fromkeys((1, 2, 3), 0)
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
    for state in told.table.snapshot(below=bases[cut]):
        assert state.next_sequence == before[cut][state.producer_id]
        assert all(ack.base_offset < bases[cut] for ack in state.recent)
        assert len(state.recent) <= RECENT_FRAMES
        assert not state.recent or state.recent[-1].first_sequence + state.recent[-1].record_count == (
            state.next_sequence
        )
