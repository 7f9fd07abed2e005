"""A hundred histories of a topic that is copied while it changes, and the failures when a rule is violated."""

from itertools import pairwise

import pytest

from seaweedmq.core.lineage.batch_ranges import Range
from seaweedmq.core.lineage.frontier import Frontier, FrontierWalk, LineageGraph
from tests.core.lineage.stream_model import Broken, Query, enter_early, plan_by_offsets, run, uncommitted_ends

SEEDS = range(100)


def test_the_copy_holds_every_record_once_and_those_of_a_key_in_order() -> None:
    for seed in SEEDS:
        try:
            run(seed)
        except Broken as e:
            raise AssertionError(f"seed {seed}: {e}") from e


def test_the_histories_have_everything_in_them_and_the_same_seed_gives_the_same() -> None:
    queries = [run(seed) for seed in SEEDS[:30]]
    assert sum(len(query.copy) for query in queries) > 3_000
    assert sum(len(query.offsets) for query in queries) > 1_000
    assert any(len(segment.predecessors) > 1 for query in queries for segment in query.source.segments.values())
    assert any(query.source.pruned for query in queries)
    one, other = run(7), run(7)
    assert (one.offsets, one.copy) == (other.offsets, other.copy)


def plan_by_files(query: Query, start: Frontier, end: Frontier) -> list[tuple[Range, ...]]:
    """Partitions that list the tables to read, in the right order."""
    made = []
    for task in plan_by_offsets(query, start, end):
        parts = []
        for part in task:
            tables = query.source.segments[part.segment].tables
            bounds = {part.start, part.end, *(edge for table in tables for edge in table)}
            edges = sorted(edge for edge in bounds if part.start <= edge <= part.end)
            parts += [Range(part.segment, a, b) for a, b in pairwise(edges)]
        made.append(tuple(parts))
    return made


def plan_by_segments(query: Query, start: Frontier, end: Frontier) -> list[tuple[Range, ...]]:
    """One partition per segment, without regard to its predecessors."""
    return [(part,) for task in plan_by_offsets(query, start, end) for part in task]


def caught(because: str = "", **broken: object) -> bool:
    """Whether some seed finds the defect, with these words."""
    for seed in SEEDS:
        try:
            run(seed, **broken)
        except (Broken, AssertionError, KeyError) as e:
            if because in str(e):
                return True
    return False


@pytest.mark.parametrize(
    ("because", "broken"),
    [
        ("", {"ends": uncommitted_ends}),  # a tail that is not committed is taken back
        ("when it is repeated", {"plan": plan_by_files}),
        ("is due", {"plan": plan_by_segments, "serial_max": None}),  # a successor overtakes
    ],
)
def test_a_query_with_a_defect_is_found(because: str, broken: dict[str, object]) -> None:
    assert caught(because, **broken)


def test_successors_that_enter_before_their_predecessors_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    enter_early(monkeypatch)
    assert caught()


def test_segments_that_leave_once_they_end_are_found_to_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(self: FrontierWalk, segment: int) -> None:
        self.offsets.pop(segment, None)
        self._passed.add(segment)

    move = FrontierWalk.move

    def move_and_leave(self: FrontierWalk, segment: int, offset: int) -> None:
        move(self, segment, offset)
        if self._lineage.is_end(segment, offset):
            leave(self, segment)

    monkeypatch.setattr(FrontierWalk, "move", move_and_leave)
    assert caught()


def test_a_frontier_that_knows_no_ancestors_is_found_to_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineageGraph, "ancestors", lambda self, segments: set())
    assert caught()
