"""Threads get the interpreter while the event loop works in turns without a break."""

import sys
import time
from collections.abc import Iterator
from threading import Thread

import pytest
import uvloop

from seaweedmq.cli.servers.process import THREAD_SWITCH_INTERVAL_S
from seaweedmq.runtime.turns import TURN_S, Turns

RELEASES = 40
"""Number of times that the thread releases the interpreter."""
RELEASED_S = 0.00005
"""Duration of each in seconds, about that of a write to a file."""
ITERATIONS_MAX = 3 * RELEASES


@pytest.fixture
def _interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    yield
    sys.setswitchinterval(before)


def test_the_interval_is_well_below_a_turn() -> None:
    assert THREAD_SWITCH_INTERVAL_S <= TURN_S / 4


@pytest.mark.usefixtures("_interval")
def test_a_thread_waits_for_few_iterations_each_time() -> None:
    def let_go() -> None:
        for _ in range(RELEASES):
            time.sleep(RELEASED_S)

    async def work() -> int:
        thread, turns, iterations = Thread(target=let_go), Turns(), 0
        thread.start()
        turn = turns.begin()
        while thread.is_alive():
            while not turn.is_over:
                pass
            await turn.pause()
            iterations += 1
        return iterations

    assert uvloop.run(work()) <= ITERATIONS_MAX
