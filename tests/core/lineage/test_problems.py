"""Problems of segments that cannot be recovered, and the pauses between attempts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.lineage.problems import (
    RETRY_FIRST_S,
    RETRY_MOST_S,
    SHOWN_MAX,
    check_recoverable,
    describe_problems,
    problem_of,
    retry_pause_s,
)
from seaweedmq.errors import Corrupt
from seaweedmq.model.segment import PROBLEM_CHARS_MAX, Segment
from tests.support.segments import make_segment

SEGMENT = replace(make_segment(), id=3)


def broken(number: int) -> Segment:
    segment = replace(SEGMENT, id=number)
    return replace(segment, problem=problem_of(segment, Corrupt(f"x-{number}.log is damaged at byte 7")))


@given(st.text(max_size=3 * PROBLEM_CHARS_MAX))
def test_a_problem_names_segment_and_remedy_whatever_was_wrong_and_is_bounded(reason: str) -> None:
    problem = problem_of(SEGMENT, Corrupt(reason))
    assert len(problem) <= PROBLEM_CHARS_MAX
    assert problem.startswith("shop/orders#3 cannot be recovered: ")
    assert problem.endswith("; repair or restore its files, recovery is retried within 60 s")
    assert reason[: PROBLEM_CHARS_MAX // 2] in problem


@given(st.integers(1, 10_000))
def test_pauses_grow_up_to_a_minute(attempts: int) -> None:
    assert retry_pause_s(1) == RETRY_FIRST_S
    assert retry_pause_s(attempts) <= retry_pause_s(attempts + 1) <= RETRY_MOST_S
    assert retry_pause_s(attempts + 10) == RETRY_MOST_S


def test_an_unrecoverable_segment_is_an_error_with_the_file_and_others_are_none() -> None:
    check_recoverable(SEGMENT)
    with pytest.raises(Corrupt, match=r"x-3\.log is damaged at byte 7"):
        check_recoverable(broken(3))


@given(st.integers(0, 20))
def test_a_topic_s_text_has_the_first_problems_and_counts_the_rest(count: int) -> None:
    text = describe_problems([SEGMENT, *map(broken, range(count))])
    assert text.count(".log is damaged") == min(count, SHOWN_MAX)
    assert (f"{count - SHOWN_MAX} more segments cannot be recovered" in text) == (count > SHOWN_MAX)
    assert bool(text) == bool(count)
