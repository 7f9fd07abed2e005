"""The order in which a reader traverses segments."""

from dataclasses import replace

from seaweedmq.core.lineage.lineage import LineageWalk, before_open, below_offset
from seaweedmq.model.segment import Segment
from tests.support.segments import make_segment


def segment(number: int, predecessors: tuple[int, ...] = (), end: int | None = None, start: int = 0) -> Segment:
    return replace(make_segment(end, start), id=number, predecessors=predecessors)


def ids(segments: list[Segment]) -> list[int]:
    return [s.id for s in segments]


# 0 -> 1, 2 (split);  2, 3 -> 4 (merge)
HISTORY = [
    segment(0, end=10),
    segment(1, (0,), start=10),
    segment(2, (0,), end=20, start=10),
    segment(3, end=7),
    segment(4, (2, 3), start=20),
]


def test_a_successor_waits_for_all_of_its_predecessors() -> None:
    walk = LineageWalk(HISTORY)
    assert ids(walk.due()) == [0, 3]
    assert walk.due() == []
    walk.finish(0)
    assert ids(walk.due()) == [1, 2]
    walk.finish(2)
    assert walk.due() == []  # 3 is still being read
    walk.finish(3)
    assert ids(walk.due()) == [4]
    assert walk.begun == {1, 4}


def test_starting_late_skips_what_ended_or_was_removed_and_newer_metadata_bring_newer_segments() -> None:
    assert ids(LineageWalk(HISTORY, before_open(HISTORY)).due()) == [1, 4]
    assert below_offset(HISTORY, 10) == {0, 3}
    assert ids(LineageWalk(HISTORY, below_offset(HISTORY, 10)).due()) == [1, 2]
    assert ids(LineageWalk(HISTORY[1:], horizon=5).due()) == [1, 2, 3]
    walk = LineageWalk(HISTORY[:1])
    assert ids(walk.due()) == [0]
    assert walk.unknown((0, 1, 2)) == {1, 2}
    walk.learn(HISTORY)
    assert not walk.unknown((0, 1, 2))
    walk.finish(0)
    assert ids(walk.due()) == [1, 2, 3]


def test_a_segment_whose_predecessor_was_never_learned_waits_until_it_is() -> None:
    walk = LineageWalk(HISTORY[:1] + HISTORY[3:4])
    assert ids(walk.due()) == [0, 3]
    walk.finish(3)
    walk.learn(HISTORY[4:])
    assert walk.missing() == {2}
    assert not walk.due()
    walk.learn(HISTORY[2:3])
    assert not walk.missing()
    walk.finish(0)
    assert ids(walk.due()) == [2]
    walk.finish(2)
    assert ids(walk.due()) == [4]


def test_what_was_pruned_meanwhile_holds_nobody_up_and_what_lies_in_front_of_the_start_never_comes() -> None:
    walk = LineageWalk(HISTORY[:1] + HISTORY[3:4])
    assert ids(walk.due()) == [0, 3]
    walk.finish(0)
    walk.finish(3)
    walk.learn(HISTORY[4:])
    assert not walk.due()
    walk.pruned({1, 2})
    assert ids(walk.due()) == [4]
    walk.learn(HISTORY)
    assert not walk.due(), "a passed segment never comes back"
    walk = LineageWalk([segment(4, (2, 3))], horizon=5)
    assert ids(walk.due()) == [4]
    walk.learn(HISTORY)
    assert not walk.due()


def test_a_long_lineage_costs_what_it_is_long() -> None:
    history = [segment(n, (n - 1,) if n else (), end=10) for n in range(20_000)]
    walk = LineageWalk(history)
    for number in range(20_000):
        assert ids(walk.due()) == [number]
        walk.finish(number)
