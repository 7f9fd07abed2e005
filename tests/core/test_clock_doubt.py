"""Clocks that step by seconds to days, both ways: nothing expires early, and everything expires in the end."""

import sys
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from seaweedmq.core.clock_doubt import CLOCK_DOUBT_S, READINGS_MAX, STEP_US, DueSince, WallWatch, doubt_s
from seaweedmq.model.config import US_PER_S

T0_US = 1_700_000_000 * US_PER_S
DAY_S = 86_400.0
LOOK_S = 10.0

steps = st.lists(
    st.tuples(
        st.floats(0, 3 * CLOCK_DOUBT_S),
        st.sampled_from([-20 * DAY_S, -DAY_S, -900.0, -3.0, -0.2, 0.2, 3.0, 900.0, DAY_S, 20 * DAY_S, 1e9]),
        st.floats(1, 0.9 * CLOCK_DOUBT_S),
    ),
    max_size=4,
)
"""(when, by how much, for how long): the clock steps, and is right again before the doubt has elapsed."""


def ahead_s(now_s: float, wrong: list[tuple[float, float, float]]) -> float:
    return sum(by_s for at_s, by_s, for_s in wrong if at_s <= now_s < at_s + for_s)


def longest_wrong_s(wrong: list[tuple[float, float, float]]) -> float:
    """For how long the clock is ahead without an observation at which it is right."""
    runs, run = [0.0], 0.0
    for at, then in pairwise(n * LOOK_S for n in range(int(4 * CLOCK_DOUBT_S / LOOK_S) + 2)):
        run = run + then - at if ahead_s(at, wrong) > 0 else 0.0
        runs.append(run)
    return max(runs)


@given(wrong=steps, begins_s=st.sampled_from([0.0, 5e6]), doubt=st.sampled_from([60.0, 900.0, CLOCK_DOUBT_S]))
@example(wrong=[(0.0, 8 * DAY_S, 900.0)], begins_s=0.0, doubt=CLOCK_DOUBT_S)
@example(wrong=[(7_200.0, 8 * DAY_S, 900.0)], begins_s=0.0, doubt=CLOCK_DOUBT_S)
@example(wrong=[(600.0, -DAY_S, 900.0), (1_200.0, 2 * DAY_S, 300.0)], begins_s=0.0, doubt=CLOCK_DOUBT_S)
def test_a_clock_that_is_wrong_for_less_than_the_doubt_is_never_believed_while_it_is_ahead(
    wrong: list[tuple[float, float, float]], begins_s: float, doubt: float
) -> None:
    """The span has each reading of the last hour, and none before."""
    watch, aheads_s = WallWatch(), []
    is_short = longest_wrong_s(wrong) + LOOK_S < doubt
    right_since_s = 0.0
    for look in range(int(4 * CLOCK_DOUBT_S / LOOK_S)):
        now_s = look * LOOK_S
        aheads_s.append(ahead_s(now_s, wrong))
        true_us = T0_US + round(now_s * US_PER_S)
        watch.note(true_us + round(aheads_s[-1] * US_PER_S), begins_s + now_s)
        told_us = watch.confirmed_us(begins_s + now_s, doubt)
        if is_short:
            assert told_us <= true_us + 1, "nothing is considered older than it is"
        if aheads_s[-1]:
            right_since_s = now_s + LOOK_S
        if now_s - right_since_s >= doubt + LOOK_S:
            assert true_us - told_us <= STEP_US, "a clock that is right for the whole doubt is trusted"
        earliest_us, latest_us = watch.span_us(begins_s + now_s)
        last = aheads_s[-int(CLOCK_DOUBT_S / LOOK_S) :]
        older = aheads_s[-int(CLOCK_DOUBT_S / LOOK_S) - 2 :]
        assert (earliest_us - true_us) / US_PER_S <= min(last) + 1e-5
        assert (latest_us - true_us) / US_PER_S >= max(last) - 1e-5
        assert (earliest_us - true_us + STEP_US) / US_PER_S >= min(older) - 1e-5
        assert (latest_us - true_us - STEP_US) / US_PER_S <= max(older) + 1e-5


def test_a_process_that_has_just_begun_or_was_frozen_while_the_clock_stepped_does_not_believe_it() -> None:
    watch = WallWatch()
    watch.note(T0_US, 100.0)
    assert watch.confirmed_us(100.0, 60.0) == 0
    assert watch.confirmed_us(100.0, 0.0) == T0_US
    watch.note(T0_US + 59 * US_PER_S, 159.0)
    assert watch.confirmed_us(159.0, 60.0) == 0
    watch.note(T0_US + 60 * US_PER_S, 160.0)
    assert watch.confirmed_us(160.0, 60.0) == T0_US + 60 * US_PER_S
    watch = WallWatch()
    watch.note(T0_US, 0.0)
    watch.note(T0_US + round((5 + 24) * 3_600 * US_PER_S), 5 * 3_600.0)
    assert watch.confirmed_us(5 * 3_600.0, CLOCK_DOUBT_S) == T0_US + 5 * 3_600 * US_PER_S


def test_a_clock_that_begins_at_1970_is_forgotten_once_it_was_right_for_the_doubt() -> None:
    watch = WallWatch()
    watch.note(0, 0.0)
    for minute in range(15, 76):
        watch.note(T0_US + minute * 60 * US_PER_S, minute * 60.0)
        confirmed_us = watch.confirmed_us(minute * 60.0, CLOCK_DOUBT_S)
        assert confirmed_us == (
            0 if minute < 60 else minute * 60 * US_PER_S if minute < 75 else T0_US + 4500 * US_PER_S
        )


def test_a_clock_that_never_rests_or_always_falls_costs_a_bounded_memory() -> None:
    rising, falling = WallWatch(), WallWatch()
    for look in range(10_000):
        rising.note(T0_US + 3 * look * US_PER_S, float(look))
        falling.note(T0_US - 3 * look * US_PER_S, float(look))
    for watch, readings in ((rising, "_since"), (falling, "_until")):
        assert sys.getsizeof(watch.__dict__[readings]) < 100 * READINGS_MAX
    assert rising.confirmed_us(9_999.0, CLOCK_DOUBT_S) > T0_US + 9_999 * US_PER_S
    assert falling.span_us(9_999.0)[1] >= T0_US - 3 * (9_999 - 3_600) * US_PER_S


def test_what_is_due_at_every_check_of_the_doubt_of_an_hour_at_most_is_let_go_of() -> None:
    due: DueSince[str] = DueSince()
    assert due.confirmed(["a", "b"], 0.0, 60.0) == []
    assert due.confirmed(["a"], 30.0, 60.0) == []
    assert due.confirmed(["a", "b"], 60.0, 60.0) == ["a"]
    assert due.confirmed(["a", "b"], 119.0, 60.0) == ["a"]
    assert due.confirmed(["a", "b"], 120.0, 60.0) == ["a", "b"]
    due.clear()
    assert due.confirmed(["a"], 130.0, 60.0) == []
    assert due.confirmed(["a"], 140.0, 0.0) == ["a"]
    assert [doubt_s(period_s) for period_s in (0.0, 60.0, 3_600.0, 7 * DAY_S)] == [0.0, 60.0, 3_600.0, 3_600.0]
