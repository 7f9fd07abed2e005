"""Deadlines fire once, in order, and never early; the heap drops canceled ones."""

from weakref import WeakSet

from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.kafka.groups.classic_events import Timer
from seaweedmq.core.kafka.groups.deadlines import VOID_MAX, Deadlines, Key


class Name(str):
    """A deadline owner that can be declared in use."""


def key(name: str) -> Key:
    return ("g", Timer.SESSION, name)


def test_one_that_is_put_off_fires_at_its_new_time_and_canceled_ones_are_not_kept_for_ever() -> None:
    deadlines = Deadlines()
    deadlines.set(key("a"), 5.0)
    deadlines.set(key("b"), 6.0)
    deadlines.set(key("a"), 7.0)
    assert deadlines.first_at == 6.0
    assert deadlines.pop_due(6.5) == [key("b")]
    assert deadlines.pop_due(7.0) == [key("a")]
    assert deadlines.first_at is None
    deadlines, kept = Deadlines(), WeakSet[Name]()
    for number in range(10 * VOID_MAX):
        name = Name(number)
        kept.add(name)
        deadlines.set(key(name), 1_000.0 + number)
        deadlines.set(key(name), None)
    assert len(kept) <= VOID_MAX + 1
    assert deadlines.first_at is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 20), st.integers(0, 3))))
def test_they_fire_as_if_each_were_alone(story: list[tuple[str, int | None, int]]) -> None:
    deadlines, expected, now = Deadlines(), dict[str, float](), 0.0
    for name, after, pause in story:
        if after is None:
            expected.pop(name, None)
        else:
            expected[name] = now + after
        deadlines.set(key(name), expected.get(name))
        assert deadlines.first_at == min(expected.values(), default=None)
        assert len(deadlines) == len(expected)
        now += pause
        due = [name for name, at in expected.items() if at <= now]
        fired = [member for _, _, member in deadlines.pop_due(now)]
        assert sorted(fired) == sorted(due)
        times = [expected.pop(name) for name in fired]
        assert times == sorted(times)
        assert deadlines.pop_due(now) == []
