"""Selection of live tables, and the meaning of changes to them."""

import random

import pytest

from seaweedmq.core.files.live_tables import (
    CHECKPOINT_BYTES,
    CHECKPOINT_COMMITS,
    Operation,
    TableSpan,
    around,
    change,
    is_checkpoint_due,
    oldest_needed,
    select_live,
)


def spans(*ranges: tuple[int, int], segment: int = 0) -> set[TableSpan]:
    return {TableSpan(segment, *r) for r in ranges}


SIDE_BY_SIDE = spans((0, 10), (10, 20), (30, 40)) | spans((0, 15), segment=7)


@pytest.mark.parametrize(
    ("lying", "counted", "missing"),
    [
        (SIDE_BY_SIDE, SIDE_BY_SIDE, ()),  # also with a gap between them
        (spans((0, 10), (10, 20), (20, 30), (0, 20)), spans((0, 20), (20, 30)), ()),  # the compacted one counts
        (spans((10, 20), (0, 20)), spans((0, 20)), ()),  # one that was replaced is gone, the other not yet
        (spans((0, 100), (40, 60)), spans((0, 100)), ()),
        (spans((0, 10), (8, 30), (30, 31)), spans((8, 30), (30, 31)), (TableSpan(0, 0, 8),)),
        (spans((0, 10), (5, 15), (14, 30)), spans((0, 10), (14, 30)), (TableSpan(0, 10, 14),)),
        (spans((0, 10), (9, 12)), spans((0, 10)), (TableSpan(0, 10, 12),)),
    ],
)
def test_of_tables_that_overlap_those_count_that_hold_most(
    lying: set[TableSpan], counted: set[TableSpan], missing: tuple[TableSpan, ...]
) -> None:
    found = select_live(lying)
    assert (found.spans, found.missing) == (counted, missing)


def test_whatever_lies_there_no_record_counts_twice_and_no_choice_holds_more() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        bases = [rng.randint(0, 12) for _ in range(rng.randint(1, 9))]
        lying = {TableSpan(0, base, base + rng.randint(1, 6)) for base in bases}
        counted = select_live(lying)
        offsets = [o for s in counted.spans for o in range(s.base, s.end)]
        assert counted.spans <= lying, seed
        assert len(offsets) == len(set(offsets)), seed
        held = {o for s in lying for o in range(s.base, s.end)}
        assert held - set(offsets) == {o for s in counted.missing for o in range(s.base, s.end)}, seed
        most = max(
            sum(s.end - s.base for s in some)
            for some in _subsets(sorted(lying))
            if all(a.end <= b.base or b.end <= a.base for a in some for b in some if a != b)
        )
        assert len(offsets) == most, seed


def test_to_decide_anew_around_what_changed_is_to_decide_everything_anew() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        before = {_any_table(rng) for _ in range(25)}
        counted = select_live(before).spans
        changed = {_any_table(rng) for _ in range(2)} | set(rng.sample(sorted(before), 2))
        after = before ^ changed
        region = set(around(changed, before | after | counted))
        assert select_live(after).spans == (counted - region) | select_live(after & region).spans, seed
    lying = spans(*((n, n + 1) for n in range(100)))
    assert set(around(spans((100, 101)), lying | spans((100, 101)))) == spans((100, 101))


def _any_table(rng: random.Random) -> TableSpan:
    base = rng.randint(0, 60)
    return TableSpan(rng.randint(0, 2), base, base + rng.randint(1, 9))


def _subsets(items: list[TableSpan]) -> list[list[TableSpan]]:
    return [[s for i, s in enumerate(items) if bits >> i & 1] for bits in range(1 << len(items))]


def test_what_comes_goes_or_is_rearranged_is_told_apart_even_in_one_change() -> None:
    before = spans((0, 10), (10, 20), (20, 30))
    written = change(before, before | spans((30, 40)))
    assert (written.operation, written.added, written.removed) == (Operation.WRITE, (TableSpan(0, 30, 40),), ())
    compacted = change(before, spans((0, 30)))
    assert compacted.operation is Operation.OPTIMIZE
    assert not compacted.come
    assert not compacted.gone
    expired = change(before, spans((10, 20), (20, 30)))
    assert (expired.operation, expired.gone) == (Operation.DELETE, frozenset(spans((0, 10))))
    assert change(before, before).operation is Operation.COLUMNS
    both = change(spans((0, 10), (10, 20)) | spans((0, 5), segment=1), spans((0, 20), (20, 25)))
    assert both.come == frozenset(spans((20, 25)))
    assert both.gone == frozenset(spans((0, 5), segment=1))
    assert both.operation is Operation.WRITE
    further = change(spans((0, 10), (10, 20)), spans((0, 21)))
    assert further.come == frozenset(spans((0, 21)))
    assert not further.gone


def test_a_checkpoint_is_due_after_some_commits_or_some_megabytes_or_when_what_lies_before_it_may_go() -> None:
    young = {"age_s": 60.0, "grace_s": 3_600.0}
    assert not is_checkpoint_due(CHECKPOINT_COMMITS - 1, 1_000, **young)
    assert is_checkpoint_due(CHECKPOINT_COMMITS, 1_000, **young)
    assert is_checkpoint_due(1, CHECKPOINT_BYTES, **young)
    assert is_checkpoint_due(1, 1_000, age_s=3_600.0, grace_s=3_600.0)
    assert not is_checkpoint_due(0, 0, age_s=1e6, grace_s=0.0)


def test_of_the_log_stays_what_every_version_since_the_horizon_needs() -> None:
    commits = [(v, 10 * v) for v in range(200)]
    assert oldest_needed(commits, [50, 100, 150], 1_200) == 100
    assert oldest_needed(commits, [50, 100, 150], 999) == 50
    assert oldest_needed(commits, [50, 100, 150], 1_000) == 100
    assert oldest_needed(commits, [50, 100, 150], 10) == 0
    assert oldest_needed(commits[120:], [100, 150], 300) == 0, "the newest at the horizon was removed already"
    assert oldest_needed(commits, [], 10_000) == 0
    assert oldest_needed([(0, 100), (1, 5_000), (2, 200), (3, 6_000)], [1, 2], 300) == 0
