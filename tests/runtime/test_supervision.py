"""No task ends unnoticed, and none outlives its owner."""

import asyncio

import pytest

from seaweedmq.runtime.supervision import Supervisor


async def for_ever() -> None:
    await asyncio.Event().wait()


async def return_at(after_s: float) -> float:
    await asyncio.sleep(after_s)
    return after_s


async def break_at(after_s: float) -> None:
    await asyncio.sleep(after_s)
    raise ValueError(f"broken after {after_s:g} s")


async def test_what_breaks_fails_the_owner_also_while_it_winds_down_and_the_first_counts() -> None:
    tasks = Supervisor("broker")
    tasks.spawn(break_at(2), "slow")
    tasks.spawn(break_at(1), "quick", may_end=True)
    with pytest.raises(ValueError, match="broken after 1 s"):
        await tasks.failed
    await asyncio.sleep(5)
    assert str(tasks.failed.exception()) == "broken after 1 s"
    tasks = Supervisor("broker")
    tasks.spawn(return_at(1), "upkeep")
    tasks.spawn(break_at(2), "flush")
    tasks.wind_down()
    await asyncio.sleep(1.5)
    assert not tasks.failed.done()
    with pytest.raises(ValueError, match="broken after 2 s"):
        await tasks.failed


async def test_what_ends_by_itself_or_is_cancelled_fails_the_owner_unless_it_may() -> None:
    tasks = Supervisor("broker")
    assert await tasks.brief(return_at(1), "short") == 1
    assert not tasks.failed.done()
    tasks.spawn(return_at(2), "upkeep")
    with pytest.raises(AssertionError, match="upkeep of broker ended by itself"):
        await tasks.failed
    tasks = Supervisor("broker")
    tasks.brief(for_ever(), "short").cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not tasks.failed.done()
    tasks.spawn(for_ever(), "upkeep").cancel()
    with pytest.raises(AssertionError, match="upkeep of broker was cancelled before its time"):
        await tasks.failed


async def test_stopping_cancels_everything_and_waits_for_its_end() -> None:
    tasks = Supervisor("broker")
    cleaned_up_at = []

    async def slow_to_leave() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3)
            cleaned_up_at.append(asyncio.get_running_loop().time())

    began = asyncio.get_running_loop().time()
    running = [tasks.spawn(slow_to_leave(), "slow"), tasks.spawn(for_ever(), "quick")]
    await asyncio.sleep(1)
    await tasks.stop()
    assert cleaned_up_at == [began + 4]
    assert all(task.cancelled() for task in running)
    assert not tasks.failed.done()
    await tasks.stop()


async def test_a_child_ends_by_itself_and_fails_its_parent() -> None:
    parent = Supervisor("broker")
    first, second = parent.child("segment"), parent.child("term")
    kept = parent.spawn(for_ever(), "upkeep")
    first.spawn(for_ever(), "writer")
    await first.stop()
    assert not kept.done()
    assert not parent.failed.done()
    second.spawn(return_at(1), "balancer")
    with pytest.raises(AssertionError, match="balancer of term of broker ended by itself"):
        await parent.failed
    await parent.stop()
