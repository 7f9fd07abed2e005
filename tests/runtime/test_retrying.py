"""Retries: their conditions, times and end."""

import asyncio
import random
from collections.abc import Callable

import pytest
from tenacity import AsyncRetrying

from seaweedmq.errors import InvalidArgument, Unavailable
from seaweedmq.runtime.retrying import Stop, after_attempts, after_s, backoff, retrying, when


class Attempts:
    """A call that fails as configured, then succeeds, and records its attempts."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.at_s: list[float] = []

    async def run(self, attempts: AsyncRetrying) -> str:
        began = asyncio.get_running_loop().time()
        async for attempt in attempts:
            with attempt:
                self.at_s.append(asyncio.get_running_loop().time() - began)
                if self._errors:
                    raise self._errors.pop(0)
                return "done"
        raise AssertionError("retrying ended without a result")


def refused(count: int) -> list[Exception]:
    return [Unavailable(f"refusal {number}") for number in range(1, count + 1)]


def a_second(attempt: int) -> float:
    return 1.0


async def test_it_goes_on_with_the_pauses_it_was_given_until_it_succeeds_or_fails_for_good() -> None:
    tries = Attempts(*refused(3))
    retried: list[tuple[int, str]] = []
    again = retrying(float, on_retry=lambda number, error: retried.append((number, str(error))))
    assert await tries.run(again) == "done"
    assert tries.at_s == [0, 1, 3, 6]
    assert retried == [(1, "refusal 1"), (2, "refusal 2"), (3, "refusal 3")]
    tries = Attempts(Unavailable("not now"), InvalidArgument("never"))
    with pytest.raises(InvalidArgument, match="never"):
        await tries.run(retrying(a_second))
    assert tries.at_s == [0, 1]


@pytest.mark.parametrize("on", [KeyError, (KeyError, OSError), lambda error: isinstance(error, KeyError)])
async def test_others_say_what_is_worth_another_attempt(
    on: type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool],
) -> None:
    tries = Attempts(KeyError("a"), KeyError("b"), Unavailable("c"))
    with pytest.raises(Unavailable):
        await tries.run(retrying(a_second, on=on))
    assert tries.at_s == [0, 1, 2]


@pytest.mark.parametrize(
    ("stop", "tried_at_s"),
    [(lambda: after_attempts(3), [0, 1, 2]), (lambda: after_s(2.5), [0, 1, 2, 3]), (lambda: when(lambda: True), [0])],
)
async def test_the_last_error_is_raised_when_it_stops(stop: Callable[[], Stop], tried_at_s: list[float]) -> None:
    tries = Attempts(*refused(10))
    with pytest.raises(Unavailable, match=f"refusal {len(tried_at_s)}"):
        await tries.run(retrying(a_second, stop=stop()))
    assert tries.at_s == tried_at_s


def test_the_bound_of_pauses_doubles_up_to_the_longest() -> None:
    class Longest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    pause_s = backoff(Longest(), 0.1, 1.0)
    assert [pause_s(attempt) for attempt in (1, 2, 3, 4, 5, 2_000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    pauses = [backoff(random.Random(seed), 0.1, 1.0)(3) for seed in range(100)]
    assert 0 <= min(pauses) < 0.05
    assert 0.35 < max(pauses) <= 0.4
