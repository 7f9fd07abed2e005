"""Tests of the clock that excludes standstills of the measuring process."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.faults.users.own_clock import STANDSTILL_S, STEP_S, OwnClock

LONG_S = 0.5


@pytest.fixture
async def clock() -> AsyncIterator[OwnClock]:
    clock = OwnClock()
    watching = asyncio.create_task(clock.watch())
    await asyncio.sleep(STEP_S)
    yield clock
    watching.cancel()


async def test_it_does_not_go_while_the_process_stands_still(clock: OwnClock) -> None:
    before_s = clock.now_s()
    time.sleep(LONG_S)  # noqa: ASYNC251 - as if the machine had no time for this process
    assert clock.now_s() - before_s < STANDSTILL_S, "before the watch has seen it"
    await asyncio.sleep(STEP_S)
    assert clock.now_s() - before_s < LONG_S, "and after"
    assert clock.longest_s >= LONG_S - STEP_S, "the lag is reported nevertheless"


async def test_it_goes_while_the_process_computes(clock: OwnClock) -> None:
    # CPU time of this thread alone: with other threads, half a second can pass in less than half a second.
    before_s, began_s = clock.now_s(), time.thread_time()
    while time.thread_time() - began_s < LONG_S:
        pass
    assert clock.now_s() - before_s >= LONG_S
    await asyncio.sleep(STEP_S)
    assert clock.now_s() - before_s >= LONG_S
