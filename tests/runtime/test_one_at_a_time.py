"""Work for a thread, one call at a time: on a real loop, for virtual time has no threads."""

import asyncio
import threading

import pytest

from seaweedmq.runtime.one_at_a_time import OneAtATime

TIMEOUT_S = 30.0


def test_a_piece_that_nobody_waits_for_ends_before_the_next_begins() -> None:
    asyncio.run(_one_is_given_up())


async def _one_is_given_up() -> None:
    one = OneAtATime()
    began, may_end = threading.Event(), threading.Event()
    order = list[str]()

    def first() -> None:
        began.set()
        assert may_end.wait(TIMEOUT_S)
        order.append("first")

    given_up = asyncio.create_task(one.run(first))
    assert await asyncio.to_thread(began.wait, TIMEOUT_S)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    second = asyncio.create_task(one.run(lambda: order.append("second")))
    await asyncio.to_thread(lambda: None)  # a thread would have had the time
    may_end.set()
    await second
    assert order == ["first", "second"]


def test_what_it_returns_and_raises_is_passed_on_and_the_next_has_its_turn() -> None:
    async def both() -> int:
        one = OneAtATime()
        with pytest.raises(ZeroDivisionError):
            await one.run(lambda: 1 // 0)
        return await one.run(lambda: 1)

    assert asyncio.run(both()) == 1
