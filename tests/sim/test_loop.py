"""Tests of the simulation's loop: time jumps, dead processes run nothing, frozen ones wake late."""

import asyncio
import contextlib
import itertools
import random
import time

import pytest

from tests.sim.machines.determinism import deterministic
from tests.sim.machines.loop import OWNER, Deadlock, LimitReached, Owner, OwnerState, SimLoop
from tests.sim.machines.network import Network


def test_an_hour_passes_at_once() -> None:
    loop = SimLoop(time_s_max=10_000)

    async def sleep() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    with deterministic():
        assert loop.run_until_complete(sleep()) == 3_600
    assert time.monotonic() - began < 60, "an hour would be slept through"
    loop.close()


def test_timeouts_run_on_virtual_time() -> None:
    loop = SimLoop()

    async def wait() -> float:
        began = loop.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.Event().wait()
        return loop.time() - began

    with deterministic():
        assert loop.run_until_complete(wait()) == 7
    loop.close()


def test_a_deadlock_is_named_not_waited_for() -> None:
    loop = SimLoop()

    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    with deterministic(), pytest.raises(Deadlock, match=r"main at .*test_loop.py"):
        loop.run_until_complete(loop.create_task(wait_for_nothing(), name="main"))
    loop.close()


def test_a_livelock_ends_at_the_limit() -> None:
    loop = SimLoop(steps_max=1_000)

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with deterministic(), pytest.raises(LimitReached):
        loop.run_until_complete(spin())
    loop.close()


def test_nothing_of_a_killed_process_runs_again_and_a_frozen_one_wakes_late() -> None:
    loop = SimLoop()
    log: list[str] = []

    async def live(name: str) -> None:
        try:
            for second in range(4):
                log.append(f"{name} {second} at {loop.time():.0f}")
                await asyncio.sleep(1)
        finally:
            log.append(f"{name} ends at {loop.time():.0f}")

    async def story() -> None:
        network = Network(loop, random.Random(1))
        killed, frozen = Owner("killed"), Owner("frozen")
        network.spawn(killed, live("killed"))
        network.spawn(frozen, live("frozen"))
        await asyncio.sleep(0.5)
        killed.state, frozen.state = OwnerState.DEAD, OwnerState.FROZEN
        await asyncio.sleep(10)
        loop.thaw(frozen)
        await asyncio.sleep(10)

    with deterministic():
        loop.run_until_complete(story())
        lived = list(log)
        loop.close()
    assert lived == [
        "killed 0 at 0", "frozen 0 at 0", "frozen 1 at 10", "frozen 2 at 12", "frozen 3 at 12", "frozen ends at 14",
    ]  # fmt: skip


def test_a_task_that_fails_unseen_is_noted() -> None:
    loop = SimLoop()

    async def fail() -> None:
        raise ValueError("never retrieved")

    async def story() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(1)
        assert task.done()

    with deterministic():
        loop.run_until_complete(story())
        failures = loop.failures()
        loop.close()
    assert any("never retrieved" in line for line in failures)


def test_the_owner_of_a_task_is_inherited() -> None:
    loop = SimLoop()
    owner = Owner("p")
    seen: list[object] = []

    async def child() -> None:
        seen.append(OWNER.get())

    async def predecessor() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
        seen.append(OWNER.get())

    async def story() -> None:
        await Network(loop, random.Random(1)).spawn(owner, predecessor())
        seen.append(OWNER.get())

    with deterministic():
        loop.run_until_complete(story())
        loop.close()
    assert seen == [owner, owner, None]


def test_a_step_that_looks_at_the_clock_for_ever_fails() -> None:
    loop = SimLoop()

    async def spin() -> None:
        while loop.time() < 1:
            pass

    with pytest.raises(LimitReached, match="was read"):
        loop.run_until_complete(spin())
    assert len(loop.spins) == 1
    loop.close()
