"""A time limit with a timer only for work that waits."""

import asyncio
from typing import Any

import pytest

from seaweedmq.runtime.time_limit import TimeLimit


def later(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_work_that_does_not_wait_needs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> int:
        return 7

    def refuse(*_: Any) -> None:
        raise AssertionError("a timer")

    monkeypatch.setattr(asyncio, "timeout_at", refuse)
    assert await TimeLimit(work(), later(1)) == 7
    assert await TimeLimit(work(), later(-1)) == 7, "as with asyncio.timeout_at"


async def test_work_that_waits_ends_in_time_with_its_result() -> None:
    async def work() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: "done")

    assert await TimeLimit(work(), later(20)) == "done"


async def test_work_that_waits_for_too_long_is_cancelled() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    for seconds in (0.01, -1):
        with pytest.raises(TimeoutError):
            await TimeLimit(work(), later(seconds))
    assert ended == [True, True]


async def test_an_error_of_the_work_is_raised() -> None:
    async def work(waits: int) -> None:
        for _ in range(waits):
            await asyncio.sleep(0)
        raise KeyError(waits)

    for waits in (0, 1, 2):
        with pytest.raises(KeyError, match=str(waits)):
            await TimeLimit(work(waits), later(20))


async def test_work_goes_on_if_it_catches_the_error_of_what_it_waits_for() -> None:
    async def work() -> str:
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(KeyError())
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(failed, 5)
        except KeyError:
            await asyncio.sleep(0)
            return "caught"
        return "not caught"

    assert await TimeLimit(work(), later(20)) == "caught"


async def test_a_limit_of_the_work_itself_is_another_one() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            await asyncio.sleep(0.01)
            return "its own"
        return "none"

    assert await TimeLimit(work(), later(20)) == "its own"


async def test_a_cancelled_waiter_cancels_the_work() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def waiter() -> None:
        await TimeLimit(work(), later(20))

    task = asyncio.create_task(waiter())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]
