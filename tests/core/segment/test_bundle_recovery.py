"""Recovery of a dead broker's segments from its entries, and its leftovers, as transcripts."""

from dataclasses import replace

import pytest

from seaweedmq.core.segment.bundle_fence import FenceFound
from seaweedmq.core.segment.bundle_recovery import (
    DeleteEntries,
    LeftoverLog,
    Leftovers,
    LeftoversDone,
    LocatedRun,
    ReadIndexes,
    Recovered,
    RecoveredSegment,
    Recovery,
    SearchAgain,
    WrittenOut,
    leftover_logs,
    needed_entries,
    recovered_segments,
)
from seaweedmq.errors import Corrupt
from seaweedmq.model.bundle import (
    BundledFrame,
    BundleRun,
    BundleSection,
    EntryHeader,
    EntryIndex,
    EntryKind,
    SegmentTail,
)
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState, ReplicaKey

A, B = ReplicaKey(7, 0), ReplicaKey(7, 1)
MIB = 1024 * 1024


def run(key: ReplicaKey, base: int, end: int, *, position: int = 200, sequence: int | None = None) -> BundleRun:
    """A run of one frame of producer 5, whose sequences equal offsets unless said otherwise."""
    frame = BundledFrame(5, 0, base if sequence is None else sequence, end - base)
    return BundleRun(
        topic_uid=key.topic_uid,
        segment=key.segment,
        base_offset=base,
        end_offset=end,
        length=end - base,
        position=position,
        frames=(frame,),
    )


def entry(
    number: int,
    *runs: BundleRun,
    kind: EntryKind = EntryKind.BUNDLE,
    checkpoint: int = 0,
    carried: dict[int, tuple[BundleRun, ...]] | None = None,
    tails: tuple[SegmentTail, ...] = (),
) -> EntryIndex:
    header = EntryHeader(
        kind=kind,
        number=number,
        floor=0,
        done=number,
        checkpoint=checkpoint,
        nonce=bytes(16),
        time_us=0,
        checkpoint_every=4,
    )
    sections = (
        BundleSection(number=number, runs=runs),
        *(
            BundleSection(number=n, runs=tuple(replace(each, frames=()) for each in older))
            for n, older in (carried or {}).items()
        ),
    )
    return EntryIndex(header=header, sections=sections, tails=tails)


def tail(key: ReplicaKey, end: int, *states: ProducerState) -> SegmentTail:
    return SegmentTail(topic_uid=key.topic_uid, segment=key.segment, end_offset=end, producers=states)


def state(next_sequence: int, producer: int = 5, recent: tuple[FrameAck, ...] = ()) -> ProducerState:
    return ProducerState(producer_id=producer, producer_epoch=0, next_sequence=next_sequence, recent=recent)


def places(segment: RecoveredSegment) -> list[tuple[int, int, int]]:
    return [(each.number, each.run.base_offset, each.run.end_offset) for each in segment.runs]


FIRST = entry(0, kind=EntryKind.FULL_CHECKPOINT)


def test_the_entries_of_a_recovery_are_a_full_checkpoint_the_checkpoints_and_the_bundles_after_them() -> None:
    assert needed_entries(0, 4, 4) == [0, 1, 2, 3]
    assert needed_entries(0, 5, 4) == [0, 4]
    assert needed_entries(2, 11, 4) == [2, 4, 8, 9, 10]
    assert needed_entries(9, 12, 4) == [9, 10, 11]
    assert len(needed_entries(0, 64 * 64, 64)) == 127


def test_a_segment_is_recovered_from_bundles_alone() -> None:
    found = recovered_segments(
        [FIRST, entry(1, run(A, 0, 3), run(B, 10, 12)), entry(2, run(A, 3, 4), run(A, 4, 9))], floor=0
    )
    assert (found[A].end_offset, found[B].end_offset) == (9, 12)
    assert places(found[A]) == [(1, 0, 3), (2, 3, 4), (2, 4, 9)]
    assert [(p.producer_id, p.next_sequence) for p in found[A].producers] == [(5, 9)]
    assert found[A].producers[0].recent == (FrameAck(0, 3, 0), FrameAck(3, 1, 3), FrameAck(4, 5, 4))


def test_a_checkpoint_stands_for_the_bundles_before_it_and_its_own_frames_count_once() -> None:
    entries = [
        FIRST,
        entry(
            4,
            run(A, 6, 8),
            kind=EntryKind.CHECKPOINT,
            carried={2: (run(A, 0, 3),), 3: (run(A, 3, 6), run(B, 0, 1))},
            tails=(tail(A, 8, state(8)), tail(B, 1, state(1))),
        ),
        entry(5, run(A, 8, 9)),
    ]
    found = recovered_segments(entries, floor=0)
    assert (found[A].end_offset, places(found[A])) == (9, [(2, 0, 3), (3, 3, 6), (4, 6, 8), (5, 8, 9)])
    assert [(p.next_sequence, p.recent) for p in found[A].producers] == [(9, (FrameAck(8, 1, 8),))]
    assert (found[B].end_offset, places(found[B])) == (1, [(3, 0, 1)])


def test_an_idle_segment_is_known_by_its_tail_alone_and_idle_producers_stay() -> None:
    entries = [
        entry(
            8,
            kind=EntryKind.FULL_CHECKPOINT,
            checkpoint=8,
            tails=(tail(A, 100, state(7, producer=6), state(40)), tail(B, 5)),
        ),
        entry(9, checkpoint=8),
        entry(12, kind=EntryKind.CHECKPOINT, checkpoint=8, tails=(tail(A, 110, state(50)),)),
        entry(13, run(A, 110, 111, sequence=50), checkpoint=8),
    ]
    found = recovered_segments(entries, floor=8)
    assert (found[B].end_offset, found[B].runs, found[B].producers) == (5, (), ())
    assert found[A].end_offset == 111
    assert [(p.producer_id, p.next_sequence) for p in found[A].producers] == [(6, 7), (5, 51)]


def test_runs_below_the_floor_are_in_log_objects_and_references_stay() -> None:
    entries = [
        entry(
            8,
            kind=EntryKind.FULL_CHECKPOINT,
            checkpoint=8,
            carried={3: (run(A, 0, 3),), 5: (run(A, 3, 6),)},
            tails=(tail(A, 6, state(6)),),
        ),
        entry(9, run(A, 6, 60, position=0), checkpoint=8),
    ]
    found = recovered_segments(entries, floor=5)
    assert places(found[A]) == [(5, 3, 6), (9, 6, 60)]
    assert (found[A].end_offset, found[A].producers[0].next_sequence) == (60, 60)


def test_a_follower_bundles_now_and_then_and_says_what_the_primary_flushed_between() -> None:
    entries = [
        FIRST,
        entry(1, run(A, 0, 3), tails=(tail(A, 3, state(3)),)),
        entry(2, run(A, 500, 510), tails=(tail(A, 510, state(77, producer=6), state(510)),)),
        entry(3, run(A, 510, 511)),
    ]
    found = recovered_segments(entries, floor=0)
    assert (found[A].end_offset, places(found[A])) == (511, [(1, 0, 3), (2, 500, 510), (3, 510, 511)])
    assert [(p.producer_id, p.next_sequence) for p in found[A].producers] == [(6, 77), (5, 511)]


def test_a_gap_is_not_passed_over() -> None:
    with pytest.raises(Corrupt, match=r"bundle 2: its run of .* begins at offset 4, but the segment ends at 3"):
        recovered_segments([FIRST, entry(1, run(A, 0, 3)), entry(2, run(A, 4, 5))], floor=0)


class Reading:
    """A recovery step by step in a store that answers at once."""

    def __init__(self, *entries: EntryIndex) -> None:
        self.entries = {each.header.number: each for each in entries}
        self.recovery = Recovery()
        self.lines: list[str] = []

    def begin(self, fence: int, floor: int = 0, *, has_bundles: bool = True) -> None:
        action = self.recovery.begin(FenceFound(fence, floor, has_bundles))
        self.lines.append(f"fence {fence}, floor {floor}")
        while isinstance(action, ReadIndexes):
            self.lines.append(f"read {list(action.numbers)}")
            action = self.recovery.read({number: self.entries.get(number) for number in action.numbers})
        match action:
            case Recovered(segments):
                self.lines.append(f"recovered {sorted(each.end_offset for each in segments.values())}")
            case SearchAgain():
                self.lines.append("search again")
            case WrittenOut():
                self.lines.append("written out")


def test_the_entry_below_the_fence_names_the_others_and_those_are_read_side_by_side() -> None:
    reading = Reading(FIRST, entry(1, run(A, 0, 1)), entry(2, run(A, 1, 2)), entry(3, run(B, 0, 7)))
    reading.begin(4)
    assert reading.lines == ["fence 4, floor 0", "read [3]", "read [0, 1, 2]", "recovered [2, 7]"]


def test_an_entry_that_its_writer_deleted_is_below_the_floor_of_the_next_search() -> None:
    reading = Reading(entry(9, checkpoint=6))
    reading.begin(10, 5)
    reading.entries |= {8: entry(8, kind=EntryKind.FULL_CHECKPOINT, checkpoint=8), 9: entry(9, checkpoint=8)}
    reading.begin(10, 8)
    assert reading.lines == [
        "fence 10, floor 5",
        "read [9]",
        "read [6, 8]",
        "search again",
        "fence 10, floor 8",
        "read [9]",
        "read [8]",
        "recovered []",
    ]


def test_an_entry_that_is_absent_above_the_same_floor_was_written_out_by_another_broker() -> None:
    reading = Reading(entry(9, checkpoint=6))
    reading.begin(10, 5)
    reading.begin(10, 5)
    assert reading.lines[-2:] == ["fence 10, floor 5", "written out"]
    reading = Reading()
    reading.begin(10, has_bundles=False)
    assert reading.lines == ["fence 10, floor 0", "written out"]


def test_a_fence_that_came_late_stands_for_a_bundle_that_was_written_out() -> None:
    reading = Reading(entry(9, kind=EntryKind.FENCE))
    reading.begin(10, 5)
    reading.begin(10, 5)
    assert reading.lines == ["fence 10, floor 5", "read [9]", "search again", "fence 10, floor 5", "written out"]


def test_a_broker_without_entries_left_nothing() -> None:
    reading = Reading()
    reading.begin(0, has_bundles=False)
    assert reading.lines == ["fence 0, floor 0", "recovered []"]


def segment(*sizes_mib: int, key: ReplicaKey = A) -> RecoveredSegment:
    """A segment with one record a run, one run a bundle; a size of 0 is a reference."""
    runs = tuple(
        LocatedRun(i, replace(run(key, i, i + 1, position=200 if size else 0), length=size * MIB))
        for i, size in enumerate(sizes_mib)
    )
    return RecoveredSegment(key=key, end_offset=len(sizes_mib), producers=(), runs=runs)


@pytest.mark.parametrize(
    ("sizes", "readable", "end", "logs"),
    [
        ((8, 8, 8), 0, 3, [(0, 2), (2, 3)]),  # 16 MiB a log object
        ((20, 1), 0, 2, [(0, 1), (1, 2)]),
        ((1, 1, 1), 2, 3, [(2, 3)]),  # the rest was rolled
        ((1, 1, 1), 0, 2, [(0, 2)]),  # sealed below what this broker had
        ((1, 0, 1), 0, 3, [(0, 1), (2, 3)]),  # a reference has its log object
        ((1, 1), 2, 2, []),
    ],
)
def test_the_leftovers_of_a_segment(
    sizes: tuple[int, ...], readable: int, end: int, logs: list[tuple[int, int]]
) -> None:
    made = leftover_logs(segment(*sizes), readable, end)
    assert [(log.base_offset, log.end_offset) for log in made] == logs


def test_entries_are_deleted_after_the_last_log_object() -> None:
    other = segment(1, key=B)
    work = Leftovers([segment(16, 1), other], {}, {A: 2, B: 1})
    logs = work.begin()
    assert [type(log) for log in logs] == [LeftoverLog] * 3
    one, two, three = (log for log in logs if isinstance(log, LeftoverLog))
    assert [*work.written(two), *work.written(one), *work.written(one)] == []
    assert work.written(three) == (DeleteEntries(),)
    assert work.deleted() == (LeftoversDone(),)


def test_without_leftovers_entries_are_deleted_at_once_and_a_deleted_topic_leaves_none() -> None:
    assert Leftovers([segment(1)], {A: 1}, {A: 1}).begin() == (DeleteEntries(),)
    assert Leftovers([segment(1)], {}, {}).begin() == (DeleteEntries(),)
