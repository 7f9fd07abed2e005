"""Long work yields: one part of it per iteration of the loop, however much there is."""

import asyncio
import itertools
from collections.abc import Generator

import pytest

from seaweedmq.runtime.turns import ITERATIONS_BETWEEN, TURN_S, Turn, Turns, endless_turn, in_turns


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_many_long_works_take_turns_and_one_is_continued_in_an_iteration() -> None:
    clock, done = Clock(), list[str]()
    turns = Turns(clock)
    iterations = 0

    async def work(name: str) -> None:
        turn = turns.begin()
        for _ in range(3):
            clock.now += TURN_S
            await turn.pause()
            done.append(f"{name} at {iterations}")

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_iterations())
    await asyncio.gather(*(work(name) for name in "abc"))
    counting.cancel()
    assert [step[0] for step in done] == list("abcabcabc")
    moments = [int(step[5:]) for step in done]
    passed = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert min(passed) > ITERATIONS_BETWEEN, f"short requests have no iterations of their own: {done}"


async def test_work_that_is_quick_does_not_give_way_and_a_turn_begins_anew_after_a_wait() -> None:
    clock = Clock()
    turn = Turns(clock).begin()
    others = list[int]()
    asyncio.get_running_loop().call_soon(others.append, 1)
    for _ in range(1_000):
        await turn.pause()
    assert not others
    clock.now += TURN_S
    await turn.pause()
    assert others == [1]
    assert not turn.is_over, "the next turn has begun"
    clock = Clock()
    turn = Turns(clock).begin()
    clock.now += TURN_S
    assert turn.is_over
    turn.renew()
    assert not turn.is_over

    def steps() -> Generator[None, None, int]:
        for _ in range(3):
            yield
        return 7

    assert await in_turns(steps(), endless_turn()) == 7


async def test_work_that_is_cancelled_while_it_waits_is_in_no_way_of_the_others() -> None:
    clock = Clock()
    turns = Turns(clock)

    async def work(turn: Turn) -> str:
        clock.now += TURN_S
        await turn.pause()
        return "done"

    first, second = asyncio.create_task(work(turns.begin())), asyncio.create_task(work(turns.begin()))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "done"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_one_work_claims_an_iteration_and_only_while_nothing_waits() -> None:
    turns = Turns(Clock())
    assert turns.claim()
    assert not turns.claim(), "one has begun in this iteration"
    await asyncio.sleep(0)
    assert turns.claim()
    await asyncio.sleep(0)
    done = list[int]()
    turns.call_next(lambda: done.append(1))
    turns.call_next(lambda: done.append(2))
    assert not turns.claim(), "it would pass those that wait"
    while len(done) < 2:
        assert not turns.claim()
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns.claim()
