"""Sealed segments that may be pruned, and when."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.lineage import pruning
from seaweedmq.core.lineage.pruning import is_older, prunable, sealed_at_us, trimmable
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.segment import ProducerSequence, Segment
from seaweedmq.model.topic import Topic
from tests.support.segments import make_segment, make_topic

WITH_RETENTION = replace(make_topic(), retention_s=60.0)
SEQUENCES = (ProducerSequence(producer_id=1, producer_epoch=0, next_sequence=9),)


def chain(*ends: int | None) -> dict[int, Segment]:
    """Segments in a chain; segment n was sealed at 100 * n."""
    starts = [0, *(end or 0 for end in ends)]
    return {
        n: replace(
            make_segment(end, starts[n]),
            id=n,
            predecessors=(n - 1,) if n else (),
            successors=() if end is None else (n + 1,),
            opened_us=100 * n,
            sealed_us=0 if end is None else 100 * (n + 1),
            sequences=() if end is None else SEQUENCES,
        )
        for n, end in enumerate(ends)
    }


def pruned(
    topic: Topic, known: dict[int, Segment], empty: list[int], before_us: int = 10**9, most: int = 100
) -> list[int]:
    return [s.id for s in prunable(topic, known, empty, by_stamp(known, before_us), most)]


def by_stamp(known: dict[int, Segment], before_us: int) -> Callable[[Segment], bool]:
    return is_older(known, before_us, lambda _: 0.0, 60.0)


def test_what_was_known_to_be_sealed_for_long_enough_is_old_and_sequences_go_with_age() -> None:
    known = chain(10, 20, 30, None)
    is_old = is_older(known, 150, lambda segment: 60.0 if segment.id == 2 else 59.9, 60.0)
    assert [is_old(segment) for segment in known.values()] == [True, False, True, False]
    assert [s.id for s in trimmable(known, is_old)] == [0, 2]
    assert [s.id for s in prunable(WITH_RETENTION, known, [0, 1, 2, 3], is_old, 9)] == [0]
    known = chain(10, 20, None)
    assert [s.id for s in trimmable(known, by_stamp(known, 200))] == [0]
    assert [s.id for s in trimmable(known, by_stamp(known, 201))] == [0, 1]
    known[0] = replace(known[0], sequences=())
    assert [s.id for s in trimmable(known, by_stamp(known, 201))] == [1]
    assert sealed_at_us(replace(known[1], sealed_us=0), known) == 200
    assert sealed_at_us(known[2], known) is None


def test_what_was_sealed_long_ago_and_has_no_files_goes_predecessors_first() -> None:
    known = chain(10, 20, 30, None)
    assert pruned(WITH_RETENTION, known, [0, 1, 2, 3]) == [0, 1, 2], "but never an open segment"
    assert pruned(WITH_RETENTION, known, [0, 1, 2], before_us=200) == [0]
    assert pruned(WITH_RETENTION, known, [0, 1, 2], most=2) == [0, 1]
    assert pruned(WITH_RETENTION, known, [7]) == []
    assert pruned(WITH_RETENTION, known, [1, 2]) == []
    del known[0]
    assert pruned(WITH_RETENTION, known, [1, 2]) == [1, 2]


def test_without_retention_only_what_never_had_a_record_goes() -> None:
    """Files that were moved away may come back."""
    known = chain(0, 20, 20, None)
    assert pruned(make_topic(), known, [0, 1, 2]) == [0]
    assert pruned(replace(make_topic(), retention_bytes=1), known, [0, 1, 2]) == [0, 1, 2]


def test_what_is_pruned_must_fit_into_the_topics_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PRUNED_RANGES_MAX", 2)
    known = {n: replace(s, predecessors=()) for n, s in chain(*range(10, 90, 10)).items()}
    assert pruned(WITH_RETENTION, known, [0, 2, 4, 6]) == [0, 2]
    assert pruned(WITH_RETENTION, known, [0, 1, 2, 3]) == [0, 1, 2, 3]


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(0, 8))
def test_as_many_are_pruned_as_fit_between_the_pruned(before: set[int], empty: set[int], ranges_max: int) -> None:
    topic = replace(WITH_RETENTION, pruned=IdRanges().including(before))
    known = {n: replace(make_segment(10), id=n, predecessors=(), sealed_us=1) for n in range(31) if n not in before}
    candidates = sorted(empty - before)
    fitting = [k for k in range(len(candidates) + 1) if _ranges(topic, candidates[:k]) <= ranges_max]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "PRUNED_RANGES_MAX", ranges_max)
        assert pruned(topic, known, sorted(empty)) == candidates[: max(fitting, default=0)]


def _ranges(topic: Topic, more: list[int]) -> int:
    return len(topic.pruned.including(more).ranges)


def test_it_is_not_tried_one_by_one_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tens of thousands of ranges, joining them takes long."""
    topic = replace(WITH_RETENTION, pruned=IdRanges(tuple((2 * n, 2 * n + 1) for n in range(100))))
    known = {n: replace(make_segment(10), id=n, predecessors=(), sealed_us=1) for n in range(1_000, 1_200, 2)}
    monkeypatch.setattr(pruning, "PRUNED_RANGES_MAX", 110)
    joined: list[int] = []
    including = IdRanges.including
    monkeypatch.setattr(IdRanges, "including", lambda these, ids: joined.append(1) or including(these, ids))
    assert len(pruned(topic, known, sorted(known))) == 10
    assert len(joined) <= 1


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_ranges_hold_what_they_were_given(first: set[int], second: set[int]) -> None:
    both = IdRanges().including(first).including(second)
    assert {n for n in range(-2, 64) if n in both} == first | second
    assert both == IdRanges().including(first | second)
    assert bool(both) == bool(first | second)


@pytest.mark.parametrize("ranges", [((2, 2),), ((3, 2),), ((0, 2), (2, 3)), ((4, 5), (0, 1)), ((-1, 2),)])
def test_ranges_that_are_none_are_refused(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidArgument, match="not ranges of ids"):
        IdRanges(ranges)
