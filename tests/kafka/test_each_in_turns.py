"""Work on each element of a request: in turns, few at a time, with results in the order of the elements."""

import asyncio

from seaweedmq.kafka.admin.changes import CALLS_AT_ONCE, by_key, for_each
from seaweedmq.runtime.turns import TURN_S, Turns, endless_turn


class Steps:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += TURN_S
        return self.now


async def test_results_are_in_the_order_of_the_items_and_few_are_worked_on_at_once() -> None:
    at_once = most = 0

    async def work(item: int) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001 * (item % 3))
        at_once -= 1
        return f"did {item}"

    assert await for_each(range(100), work, endless_turn()) == [f"did {item}" for item in range(100)]
    assert most == CALLS_AT_ONCE


async def test_all_of_them_begin_in_turns() -> None:
    begun: dict[int, int] = {}
    iteration = 0

    async def count() -> None:
        nonlocal iteration
        while True:
            await asyncio.sleep(0)
            iteration += 1

    async def work(item: int) -> None:
        begun[item] = iteration

    counting = asyncio.create_task(count())
    await for_each(range(2 * CALLS_AT_ONCE), work, Turns(Steps()).begin())
    counting.cancel()
    assert len(set(begun.values())) == 2 * CALLS_AT_ONCE, "two began in one iteration of the loop"


async def test_items_are_found_by_their_keys_in_the_order_of_the_keys() -> None:
    items = ["b1", "a1", "b2", "c1", "a2"]
    assert await by_key(items, lambda item: item[0], endless_turn()) == {
        "b": ["b1", "b2"],
        "a": ["a1", "a2"],
        "c": ["c1"],
    }
    assert list(await by_key(items, lambda item: item[0], endless_turn())) == ["b", "a", "c"]
