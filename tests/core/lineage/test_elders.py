"""How far back a segment asks for producers that it does not know."""

from seaweedmq.core.lineage.elders import GENERATIONS_MAX, elders
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment, SegmentState
from seaweedmq.model.topic import TopicName

IDLE_S = 900.0
T0_US = 1_700_000_000 * US_PER_S


def generations(*lived_s: float) -> dict[int, Segment]:
    """Segments that came after one another, the last one open; how long the others lived."""
    found, now_us = {}, T0_US
    for number, lived in enumerate((*lived_s, None)):
        sealed_us = 0 if lived is None else now_us + int(lived * US_PER_S)
        found[number] = Segment(
            topic=TopicName("app", "orders"),
            id=number,
            slots=KeyRange(0, 1),
            epoch=1,
            state=SegmentState.OPEN if lived is None else SegmentState.SEALED,
            replicas=("b1",),
            predecessors=(number - 1,) if number else (),
            successors=() if lived is None else (number + 1,),
            end_offset=None if lived is None else 0,
            opened_us=now_us,
            sealed_us=sealed_us,
        )
        now_us = sealed_us
    return found


def asked(known: dict[int, Segment], within_s: float = IDLE_S) -> list[int]:
    return [segment.id for segment in elders(known[max(known)], known, within_s)]


def test_the_nearest_first_back_to_one_after_which_all_may_be_forgotten() -> None:
    assert asked(generations(5000, 100, 700, 150)) == [3, 2, 1]
    assert asked(generations(5000, 100, 700, 50)) == [3, 2, 1, 0]
    assert asked(generations(10, 1000)) == [1]


def test_an_old_segment_asks_nobody() -> None:
    known = generations(10, 10)
    assert asked(known, within_s=5.0) == [1]
    assert asked(known, within_s=0.0) == [1]
    assert asked(known, within_s=-1.0) == []


def test_the_first_one_of_a_partition_and_what_was_pruned_have_no_elders() -> None:
    assert asked(generations()) == []
    known = generations(1, 1, 1)
    del known[1]
    assert asked(known) == [2]


def test_a_clock_that_was_set_back_does_not_end_the_search_early() -> None:
    assert asked(generations(10, -5000, 10)) == [2, 1, 0]


def test_the_search_is_bounded() -> None:
    assert len(asked(generations(*[0.0] * (GENERATIONS_MAX + 10)))) == GENERATIONS_MAX
