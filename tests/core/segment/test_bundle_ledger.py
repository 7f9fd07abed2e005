"""Rolls, checkpoints, the floor and deletions, as transcripts of one writer."""

import pytest

from seaweedmq.core.segment.bundle_ledger import BundleLedger, LedgerLimits, Roll
from seaweedmq.model.bundle import BundledFrame, BundleRun, EntryKind
from seaweedmq.model.segment import ReplicaKey

A, B = ReplicaKey(7, 0), ReplicaKey(7, 1)
LIMITS = LedgerLimits(roll_bytes=100, roll_age_s=600, pinned_bytes_max=150, checkpoint_every=4, full_age_s=600)


class Transcript:
    """A ledger, step by step: bundles are cut with runs of one record."""

    def __init__(self) -> None:
        self.ledger = BundleLedger(LIMITS)
        self.ends = {A: 0, B: 0}
        self.number = 1
        self.lines: list[str] = []
        self.running: list[Roll] = []

    def cut(self, at: float = 0.0, **sizes: int) -> None:
        """Cut a bundle with one run a segment; a negative size is a reference."""
        runs = []
        for name, size in sizes.items():
            key = A if name == "a" else B
            base, self.ends[key] = self.ends[key], self.ends[key] + 1
            runs.append(
                BundleRun(
                    topic_uid=7,
                    segment=key.segment,
                    base_offset=base,
                    end_offset=base + 1,
                    length=abs(size),
                    position=200 if size > 0 else 0,
                    frames=(BundledFrame(1, 0, base, 1),),
                )
            )
        kind = self.ledger.next_kind(self.number, at)
        carried = {s.number: [f"{_name(r.key)}{r.base_offset}" for r in s.runs] for s in self.ledger.carried(kind)}
        tails = {_name(key): end for key, end in self.ledger.tail_ends(kind, runs).items()}
        floor = self.ledger.floor
        self.ledger.cut(self.number, kind, runs, floor, at)
        covers = f", carries {carried}, tails {tails}" if kind.is_checkpoint else f", tails {tails}" if tails else ""
        self.lines.append(f"{self.number}: {kind.name}, floor {floor}{covers}")
        self.number += 1

    def done(self, below: int) -> None:
        self.ledger.done(below)
        self.lines.append(f"done below {below}: delete {list(self.ledger.take_deletable())}")

    def rolls(self, at: float = 0.0, *sealed: ReplicaKey) -> None:
        due = self.ledger.rolls(at, sealed)
        self.running += due
        told = [f"{_name(r.key)}[{r.base_offset},{r.end_offset}) {r.length}" for r in due]
        self.lines.append(f"roll {', '.join(told) or '-'}")

    def rolled(self, number: int) -> None:
        self.ledger.rolled(self.running[number])
        self.lines.append(f"rolled {_name(self.running[number].key)}, floor {self.ledger.floor}")


def _name(key: ReplicaKey) -> str:
    return "ab"[key.segment]


def test_a_checkpoint_covers_the_bundles_since_the_previous_one_and_every_fourth_covers_all() -> None:
    transcript = Transcript()
    for _ in range(2):
        transcript.cut(a=1)
    transcript.cut(b=1)
    transcript.cut(a=1)
    transcript.cut(a=1)
    transcript.cut()
    transcript.cut()
    transcript.cut()
    for _ in range(8):
        transcript.cut()
    assert transcript.lines[3:8] + transcript.lines[11:12] + transcript.lines[15:] == [
        "4: CHECKPOINT, floor 0, carries {1: ['a0'], 2: ['a1'], 3: ['b0']}, tails {'a': 3, 'b': 1}",
        "5: BUNDLE, floor 0",
        "6: BUNDLE, floor 0",
        "7: BUNDLE, floor 0",
        "8: CHECKPOINT, floor 0, carries {5: ['a3']}, tails {'a': 4}",
        "12: CHECKPOINT, floor 0, carries {}, tails {}",
        "16: FULL_CHECKPOINT, floor 0, carries {1: ['a0'], 2: ['a1'], 3: ['b0'], 4: ['a2'], 5: ['a3']}, "
        "tails {'a': 4, 'b': 1}",
    ]


def test_the_floor_waits_for_rolls_and_for_the_full_checkpoint_and_deletion_for_the_floor() -> None:
    transcript = Transcript()
    transcript.cut(a=60)
    transcript.cut(a=60, b=10)
    transcript.done(3)
    transcript.rolls()
    transcript.rolled(0)
    transcript.cut(at=600, b=5)
    transcript.cut(at=600.1)
    transcript.done(5)
    transcript.rolls(600.2)
    transcript.rolled(1)
    transcript.cut(at=601)
    transcript.done(6)
    assert transcript.lines == [
        "1: BUNDLE, floor 0, tails {'a': 1}",
        "2: BUNDLE, floor 0, tails {'b': 1}",
        "done below 3: delete []",
        "roll a[0,2) 120",
        "rolled a, floor 0",
        "3: FULL_CHECKPOINT, floor 0, carries {2: ['b0']}, tails {'a': 2, 'b': 2}",
        "4: CHECKPOINT, floor 0, carries {}, tails {}",
        "done below 5: delete []",
        "roll b[0,2) 15",
        "rolled b, floor 3",
        "5: BUNDLE, floor 3",
        "done below 6: delete [0, 1, 2]",
    ]


def test_a_bundle_that_is_not_done_is_neither_rolled_nor_below_the_floor() -> None:
    transcript = Transcript()
    transcript.cut(at=600)
    transcript.cut(at=601, a=200)
    transcript.rolls(601)
    transcript.done(2)
    transcript.cut(at=602)
    transcript.done(3)
    transcript.rolls(602)
    assert transcript.lines == [
        "1: FULL_CHECKPOINT, floor 0, carries {}, tails {}",
        "2: BUNDLE, floor 0, tails {'a': 1}",
        "roll -",
        "done below 2: delete []",
        "3: BUNDLE, floor 1",
        "done below 3: delete []",
        "roll a[0,1) 200",
    ]


def test_a_segment_is_rolled_by_size_by_age_and_when_it_is_sealed_and_once() -> None:
    transcript = Transcript()
    transcript.cut(a=99, b=1)
    transcript.done(2)
    transcript.rolls(1)
    transcript.rolls(599)
    transcript.rolls(599, B)
    transcript.rolls(600)
    transcript.rolls(601)
    assert transcript.lines[2:] == ["roll -", "roll -", "roll b[0,1) 1", "roll a[0,1) 99", "roll -"]


def test_beyond_half_of_the_budget_the_largest_are_rolled_first() -> None:
    transcript = Transcript()
    for _ in range(3):
        transcript.cut(a=20, b=32)
    transcript.done(4)
    transcript.rolls()
    transcript.rolls()
    transcript.rolled(0)
    assert transcript.lines[4:] == ["roll b[0,3) 96", "roll -", "rolled b, floor 0"]
    assert transcript.ledger.pinned_bytes == 60


def test_a_reference_pins_nothing_and_ends_a_roll() -> None:
    transcript = Transcript()
    transcript.cut(a=60)
    transcript.cut(a=-8_000)
    transcript.cut(a=60)
    transcript.done(4)
    transcript.rolls(600)
    transcript.rolled(0)
    transcript.rolls(600)
    assert transcript.lines[4:] == ["roll a[0,1) 60", "rolled a, floor 0", "roll a[2,3) 60"]
    assert transcript.ledger.pinned_bytes == 60


def test_a_sealed_segment_leaves_later_full_checkpoints_once_nothing_of_it_is_pinned() -> None:
    transcript = Transcript()
    transcript.cut(a=1, b=1)
    transcript.done(2)
    with pytest.raises(AssertionError, match="no log object holds"):
        transcript.ledger.forget(A)
    transcript.rolls(0, A)
    transcript.rolled(0)
    transcript.ledger.forget(A)
    transcript.cut(at=600)
    assert transcript.lines[-1] == "2: FULL_CHECKPOINT, floor 0, carries {1: ['b0']}, tails {'b': 1}"


def test_a_follower_needs_no_roll_once_the_primary_has_flushed_and_says_where_it_continues() -> None:
    transcript = Transcript()
    transcript.cut(a=60)
    transcript.cut(a=60)
    transcript.done(3)
    transcript.ledger.release(A, 1)
    assert transcript.ledger.pinned_bytes == 60
    transcript.ledger.release(A, 9)
    transcript.rolls(600)
    transcript.ends[A] = 9
    transcript.cut(a=60)
    assert transcript.lines == [
        "1: BUNDLE, floor 0, tails {'a': 1}",
        "2: BUNDLE, floor 0",
        "done below 3: delete []",
        "roll -",
        "3: BUNDLE, floor 0, tails {'a': 10}",
    ]


def test_a_floor_above_the_own_one_is_not_declared() -> None:
    ledger = BundleLedger(LIMITS)
    with pytest.raises(AssertionError, match="declares floor 1, above 0"):
        ledger.cut(1, EntryKind.BUNDLE, (), 1, 0.0)
