"""Target assignments: balanced, then with the fewest moves, then deterministic."""

from collections import Counter
from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from seaweedmq.core.group.assignor import assign

MEMBERS = [f"m-{number:02d}" for number in range(50)]


def moved(before: dict[int, str], after: dict[int, str], members: list[str]) -> int:
    """Number of segments taken from an owner that stays."""
    return sum(owner in members and after[segment] != owner for segment, owner in before.items() if segment in after)


def moves_least(segments: int, members: list[str], before: dict[int, str]) -> int:
    """The exact bound: every member keeps the smaller quota, and as many as there are larger quotas keep one more."""
    share, larger = divmod(segments, len(members))
    counts = Counter(owner for segment, owner in before.items() if owner in members and segment < segments)
    kept = sum(min(count, share) for count in counts.values())
    kept += min(larger, sum(count > share for count in counts.values()))
    return sum(counts.values()) - kept


def balanced(target: dict[int, str], members: list[str]) -> bool:
    counts = [Counter(target.values())[m] for m in members]
    return max(counts) - min(counts) <= 1


def test_with_no_members_and_with_more_than_segments() -> None:
    assert assign(range(3), [], {0: "m"}) == {}
    assert assign([7, 8], MEMBERS, {8: "m-31"}) == {7: "m-00", 8: "m-31"}


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 500),
    st.lists(st.tuples(st.sampled_from(MEMBERS), st.booleans()), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_joins_and_leaves_move_no_more_than_they_must(
    segments: int, story: list[tuple[str, bool]], rng: Random
) -> None:
    members = list(MEMBERS[:25])
    owners = assign(range(segments), members, {})
    for member, joins in story:
        if joins and member not in members:
            members.append(member)
        elif not joins and member in members and len(members) > 1:
            members.remove(member)
        target = assign(range(segments), members, owners)
        assert sorted(target) == list(range(segments))
        assert balanced(target, members)
        assert moved(owners, target, members) == moves_least(segments, members, owners)
        shuffled = rng.sample(members, len(members))
        assert assign(rng.sample(range(segments), segments), shuffled, dict(reversed(owners.items()))) == target
        assert assign(range(segments), members, target) == target, "a second run changes nothing"
        owners = target


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(0, 5), st.sampled_from(["a", "b", "c", "gone"])),
    st.integers(1, 6),
    st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"], ["b", "d"]]),
)
def test_no_balanced_assignment_moves_less(owners: dict[int, str], segments: int, members: list[str]) -> None:
    target = assign(range(segments), members, owners)
    assert balanced(target, members)
    least = min(
        moved(owners, candidate, members)
        for choice in product(members, repeat=segments)
        if balanced(candidate := dict(enumerate(choice)), members)
    )
    assert moved(owners, target, members) == least
    assert least == moves_least(segments, members, owners)
