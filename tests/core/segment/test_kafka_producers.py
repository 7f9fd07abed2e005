"""Kafka producers, as their frames and the answers of the table: KIP-98 and KIP-360."""

from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.segment.producer_limits import ProducerLimits, ProducerPool
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.errors import Fenced, InvalidArgument, ResourceExhausted
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.producer import (
    KAFKA_PRODUCERS,
    KAFKA_SEQUENCES,
    NATIVE_PRODUCER_BIT,
    NO_PRODUCER,
    is_kafka_producer,
    unwrapped,
)
from seaweedmq.model.segment import ProducerState

ME = 5_000
FRAMES = 16
IDLE_S = 900.0
LAST = KAFKA_SEQUENCES - 1


class Partition:
    """A table at the end of a growing log, and a follower's table, which sees the frames alone."""

    def __init__(self, *, start: int = 0, limit: int = 100, pool: ProducerPool | None = None) -> None:
        self.limits = ProducerLimits(producers=limit, idle_s=IDLE_S, frames=FRAMES)
        self.table = ProducerTable(self.limits, pool)
        self.follower = ProducerTable(self.limits)
        self.table.floor = self.follower.floor = 10**12  # all of it is flushed
        self.end = start
        self.now = 0.0

    def send(self, first: int, count: int = 1, *, producer: int = ME, epoch: int = 0) -> str:
        try:
            repeat = self.table.find_repeat(producer, epoch, first, count, self.now)
        except (Fenced, InvalidArgument, ResourceExhausted) as error:
            return type(error).__name__
        if repeat is not None:
            assert (repeat.first_sequence, repeat.record_count) == (first, count)
            return f"repeat of {repeat.base_offset}"
        ack = FrameAck(first, count, self.end)
        self.table.record(producer, epoch, ack, self.now)
        self.follower.follow(producer, epoch, ack, self.now)
        self.end += count
        return f"stored at {self.end - count}"


def state(next_sequence: int, *recent: tuple[int, int, int], epoch: int = 0) -> ProducerState:
    frames = tuple(FrameAck(*ack) for ack in recent)
    return ProducerState(producer_id=ME, producer_epoch=epoch, next_sequence=next_sequence, recent=frames)


def test_ids_of_both_worlds_never_meet_and_who_has_none_repeats_as_it_likes() -> None:
    assert [is_kafka_producer(n) for n in (0, 999, 1_000, 2**48 - 1, 2**48)] == [False, False, True, True, False]
    assert NATIVE_PRODUCER_BIT not in KAFKA_PRODUCERS
    assert NATIVE_PRODUCER_BIT | (2**62 - 1) < 2**63
    told = Partition()
    assert [told.send(0, 3, producer=NO_PRODUCER) for _ in range(3)] == ["stored at 0", "stored at 3", "stored at 6"]
    assert len(told.table) == len(told.follower) == 0
    assert told.table.unsettled(0.0) == ()


def test_frames_sent_again_are_stored_once_and_gaps_overlaps_and_old_duplicates_refused() -> None:
    told = Partition()
    assert [told.send(first, 10) for first in range(0, 50, 10)] == [f"stored at {n}" for n in range(0, 50, 10)]
    assert [told.send(first, 10) for first in range(0, 50, 10)] == [f"repeat of {n}" for n in range(0, 50, 10)]
    assert told.send(50) == "stored at 50"
    told = Partition()
    told.send(0, 10)
    assert told.send(11) == "OutOfOrderSequence"
    assert told.send(5, 10) == "OutOfOrderSequence"
    assert told.send(0, 9) == "OutOfOrderSequence"
    assert told.send(10) == "stored at 10"
    told = Partition()
    for first in range(FRAMES + 2):
        told.send(first)
    assert told.send(1) == "DuplicateSequence"
    assert told.send(0, 2) == "DuplicateSequence"
    assert told.send(2) == "repeat of 2"


def test_who_is_unknown_begins_anywhere_and_what_lies_below_was_never_seen() -> None:
    told = Partition()
    assert told.send(70, 10) == "stored at 0"
    assert told.send(60, 10) == "OutOfOrderSequence", "an answer of duplicate would lose it"
    assert told.send(80) == "stored at 10"
    for first in range(81, 81 + FRAMES):
        told.send(first)
    assert told.send(70, 10) == "DuplicateSequence"
    assert told.send(60, 10) == "OutOfOrderSequence"


def test_after_the_last_sequence_comes_the_first_and_a_frame_may_lie_across() -> None:
    told = Partition()
    told.send(LAST - 14, 10)
    assert told.send(LAST - 4, 5) == "stored at 10", "up to the last one"
    assert told.send(0, 5) == "stored at 15"
    assert told.send(LAST - 14, 10) == "repeat of 0"
    assert told.send(0, 5) == "repeat of 15"
    told = Partition()
    assert told.send(LAST - 2, 10) == "stored at 0"
    assert told.send(LAST - 2, 10) == "repeat of 0"
    assert told.send(6) == "OutOfOrderSequence"
    assert told.send(7) == "stored at 10"
    assert told.send(LAST) == "OutOfOrderSequence"


def test_a_new_epoch_begins_at_0_and_fences_the_older_in_later_segments_too() -> None:
    told = Partition()
    told.send(0, 10)
    assert told.send(10, 1, epoch=1) == "OutOfOrderSequence"
    assert told.send(10) == "stored at 10", "a rejected frame changes nothing"
    assert told.send(0, 5, epoch=1) == "stored at 11"
    assert told.send(11) == "Fenced"
    assert told.send(0, 10) == "Fenced"
    assert told.send(0, 5, epoch=1) == "repeat of 11"
    assert told.send(LAST, 1, epoch=1) == "OutOfOrderSequence"
    assert told.send(5, 1, epoch=1) == "stored at 16"
    told = Partition(start=100)
    told.table.adopt(state(30, epoch=3), told.now)
    assert told.send(30, epoch=2) == "Fenced"
    assert told.send(0, epoch=4) == "stored at 100"


def test_one_is_forgotten_a_while_after_its_last_frame_and_not_before() -> None:
    told = Partition(limit=2)
    for producer in (2_001, 2_002, 2_003):
        told.send(0, producer=producer)
        told.now += IDLE_S / 3
    told.send(1, producer=2_001)
    assert told.send(0, producer=2_002) == "repeat of 1", "all three may still repeat"
    assert [s.producer_id for s in told.table.unsettled(told.now)] == [2_002, 2_003, 2_001]
    told.now += IDLE_S / 2
    assert [s.producer_id for s in told.table.unsettled(told.now)] == [2_003, 2_001]
    told.send(0, producer=2_004)
    assert [s.producer_id for s in told.table.snapshot()] == [2_003, 2_001, 2_004]
    assert [s.producer_id for s in told.follower.snapshot()] == [2_003, 2_001, 2_004]


def test_a_full_broker_refuses_the_next_one_and_nobody_else() -> None:
    told = Partition(pool=ProducerPool(2))
    told.send(0, producer=2_001)
    told.send(0, producer=2_002)
    assert told.send(0, producer=2_003) == "ResourceExhausted"
    assert told.send(1, producer=2_001) == "stored at 2"
    assert told.send(0, producer=NO_PRODUCER) == "stored at 3"
    told.now += IDLE_S + 1
    assert told.send(0, producer=2_003) == "stored at 4"


def test_a_producer_goes_on_where_the_earlier_segment_ended() -> None:
    told = Partition(start=100)
    told.table.adopt(state(30), told.now)
    assert told.send(31) == "OutOfOrderSequence"
    assert told.send(30, 5) == "stored at 100"
    assert told.send(25, 5) == "DuplicateSequence", "its offset is unknown here"
    assert told.table.may_be_older(ME, 0, 25, 5)
    told.table.put_before(ME, 0, state(30, (10, 10, 75), (20, 5, 90), (25, 5, 95)).recent)
    assert [told.send(10, 10), told.send(20, 5), told.send(25, 5)] == ["repeat of 75", "repeat of 90", "repeat of 95"]
    assert told.send(35) == "stored at 105"
    assert told.send(5, 5) == "DuplicateSequence"


def test_older_frames_count_only_as_far_as_they_join_even_across_the_end_of_the_numbers() -> None:
    told = Partition(start=100)
    told.table.adopt(state(30, (25, 5, 95)), told.now)
    told.table.put_before(ME, 0, state(20, (10, 10, 75)).recent)
    assert told.send(10, 10) == "DuplicateSequence"
    told.table.put_before(ME, 0, state(30, (5, 10, 60), (15, 10, 80), (25, 5, 95)).recent)
    assert [told.send(5, 10), told.send(15, 10), told.send(25, 5)] == ["repeat of 60", "repeat of 80", "repeat of 95"]
    told.table.put_before(ME, 1, state(5, (0, 5, 50), epoch=1).recent)
    assert told.send(0, 5) == "DuplicateSequence", "an epoch's frames are its own"
    told = Partition(start=100)
    told.table.adopt(state(5), told.now)
    told.table.put_before(ME, 0, state(KAFKA_SEQUENCES + 5, (LAST - 9, 10, 85), (0, 5, 95)).recent)
    assert told.send(LAST - 9, 10) == "repeat of 85"
    assert told.send(0, 5) == "repeat of 95"
    assert told.send(5) == "stored at 100"
    assert told.table.snapshot()[0].next_sequence % KAFKA_SEQUENCES == 6


def test_nothing_is_looked_for_in_earlier_segments_without_need() -> None:
    told = Partition()
    told.send(50, 10)
    assert not told.table.may_be_older(ME, 0, 40, 10), "it began here"
    told.table.adopt(ProducerState(producer_id=2_001, producer_epoch=0, next_sequence=10), told.now)
    assert not told.table.may_be_older(2_001, 0, 10, 1), "it is the next one"
    assert not told.table.may_be_older(2_001, 1, 0, 1), "it is of another epoch"
    assert told.table.may_be_older(2_001, 0, 9, 1)
    for first in range(10, 10 + FRAMES):
        told.send(first, producer=2_001)
    assert not told.table.may_be_older(2_001, 0, 9, 1), "it is older than every remembered frame"


@given(
    start=st.integers(0, LAST),
    counts=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    back=st.integers(0, FRAMES - 1),
)
def test_a_follower_and_a_snapshot_end_where_the_primary_is(start: int, counts: list[int], back: int) -> None:
    told = Partition()
    sent: list[FrameAck] = []
    sequence = start
    for count in counts:
        sent.append(FrameAck(sequence, count, told.end))
        assert told.send(sequence, count) == f"stored at {told.end - count}"
        sequence = (sequence + count) % KAFKA_SEQUENCES
    read_again = sent[-1 - min(back, len(sent) - 1) :]
    restored = ProducerTable(told.limits, states=told.table.snapshot(below=read_again[0].base_offset))
    for ack in read_again:
        restored.follow(ME, 0, ack)
    for table in (told.follower, restored):
        assert table.find_repeat(ME, 0, sequence, 1) is None
        assert table.find_repeat(ME, 0, sent[-1].first_sequence, counts[-1]) == sent[-1]


@given(near=st.integers(0, 2**40), apart=st.integers(-(2**29), 2**29))
def test_sequences_are_counted_on_over_the_end_of_the_numbers(near: int, apart: int) -> None:
    assert unwrapped((near + apart) % KAFKA_SEQUENCES, near) == near + apart
