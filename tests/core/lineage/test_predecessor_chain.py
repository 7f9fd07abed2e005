"""Predecessors that a segment queries for unknown producers, and the gaps that count as lost."""

from dataclasses import replace

import pytest

from seaweedmq.core.lineage.predecessor_chain import GENERATIONS_MAX, leaves_gap, predecessor_chain
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.producer import KAFKA_SEQUENCES
from seaweedmq.model.segment import ProducerState, Segment
from tests.support.segments import make_segment

IDLE_S = 900.0
DAY_US = 86_400 * US_PER_S


def generations(count: int) -> dict[int, Segment]:
    """``count`` sealed segments and the open one that follows them, stamped by unrelated clocks."""
    return {
        number: replace(
            make_segment(None if number == count else 0),
            id=number,
            predecessors=(number - 1,) if number else (),
            successors=() if number == count else (number + 1,),
            opened_us=(number * 7 % 5) * 10_000 * DAY_US,
            sealed_us=0 if number == count else (number * 3 % 5) * 10_000 * DAY_US,
        )
        for number in range(count + 1)
    }


def asked(known: dict[int, Segment], *sealed_for_s: float) -> list[int]:
    """Return the predecessors of the newest segment. Each is known to be sealed that long; the others: since now."""
    ages = dict(enumerate(sealed_for_s))
    return [
        s.id for s in predecessor_chain(known[max(known)], known, lambda segment: ages.get(segment.id, 0.0), IDLE_S)
    ]


def test_the_nearest_are_asked_first_back_to_one_that_was_pruned_or_sealed_for_long_enough() -> None:
    assert asked(generations(4), 5_000, IDLE_S, 899, 10) == [3, 2]
    assert asked(generations(4), 5_000, 899, 899, 10) == [3, 2, 1]
    assert asked(generations(1), IDLE_S) == []
    assert asked(generations(5)) == [4, 3, 2, 1, 0]
    assert asked(generations(0)) == []
    known = generations(3)
    del known[1]
    assert asked(known) == [2]
    assert len(asked(generations(GENERATIONS_MAX + 10))) == GENERATIONS_MAX


@pytest.mark.parametrize(
    ("epoch", "sequence", "is_gap"),
    [
        (2, 30, False),
        (2, 29, False),
        (2, 0, False),
        (2, 31, True),
        (2, 90, True),
        (2, KAFKA_SEQUENCES - 1, False),
        (3, 0, False),
        (3, 1, True),
        (1, 90, False),
    ],
)
def test_a_gap_is_what_lies_beyond_the_next_sequence_or_behind_the_beginning_of_an_epoch(
    epoch: int, sequence: int, is_gap: bool
) -> None:
    state = ProducerState(producer_id=5_000, producer_epoch=2, next_sequence=30)
    assert leaves_gap(state, epoch, sequence) is is_gap
