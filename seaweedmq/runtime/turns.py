"""Turns on an event loop: work that takes long gives way to others after each quarter of a millisecond.

All long work of a loop waits in one queue, and every fourth iteration of the loop continues one piece of it. So many
long requests delay the short ones no longer than a single one does; they delay each other. A short request takes some
iterations itself (its bytes arrive, its task runs, its reply leaves), and waits for a turn of long work in one of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from seaweedmq.runtime.boot_clock import boot_s

T = TypeVar("T")

TURN_S: Final = 0.00025
"""Longest time that work runs before it gives way, if it checks the clock often enough."""
ITERATIONS_BETWEEN: Final = 3
"""Iterations of the loop between two turns: of short requests alone. With none, a Kafka produce beside DeleteRecords of
10,000 partitions took 4.0 ms at p99, with three 2.2 ms. An iteration with nothing else to do takes some 10 us."""


class Turns:
    """The queue of the work that gave way."""

    def __init__(self, clock_s: Callable[[], float] = boot_s) -> None:
        """``clock_s`` has to advance within an iteration of the loop, unlike uvloop's ``time()``."""
        self._clock_s = clock_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_claimed = False
        self._passed = 0

    def claim(self) -> bool:
        """Whether work that waits for its turn where others do may begin at once: nothing waits, and nothing else has
        claimed this iteration of the loop."""
        if self._waiting or self._is_claimed:
            return False
        self._is_claimed = True
        asyncio.get_running_loop().call_soon(self._end_claim)
        return True

    def begin(self) -> "Turn":
        """A turn that begins now."""
        return Turn(self, self._clock_s)

    def call_next(self, work: Callable[[], None]) -> None:
        """Call ``work`` in an iteration of the loop that continues nothing else, and neither do those right before."""
        self._waiting.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    async def next(self) -> None:
        """Wait for such an iteration."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_next(lambda: None if waiter.done() else waiter.set_result(None))
        await waiter

    def _end_claim(self) -> None:
        self._is_claimed = False

    def _continue(self) -> None:
        if self._passed < ITERATIONS_BETWEEN:
            self._passed += 1
            asyncio.get_running_loop().call_soon(self._continue)
            return
        self._passed = 0
        work = self._waiting.popleft()
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._continue)
        work()


class Turn:
    """The time that one piece of work has until it gives way."""

    __slots__ = ("_clock_s", "_turns", "_until")

    def __init__(self, turns: Turns, clock_s: Callable[[], float]) -> None:
        self._turns = turns
        self._clock_s = clock_s
        self._until = clock_s() + TURN_S

    @property
    def is_over(self) -> bool:
        """Whether the work has to give way."""
        return self._clock_s() >= self._until

    def renew(self) -> None:
        """Begin the next turn now, after a wait."""
        self._until = self._clock_s() + TURN_S

    async def pause(self) -> None:
        """Give way if the turn is over; the next turn begins then. To be called for each element of a long request."""
        if self._clock_s() >= self._until:
            await self._turns.next()
            self._until = self._clock_s() + TURN_S


def endless_turn() -> Turn:
    """A turn that never ends, for work on virtual time."""
    return Turns(lambda: 0.0).begin()


def at_once(steps: Generator[None, None, T]) -> T:
    """Take all steps of what is known to be short, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def in_turns(steps: Generator[None, None, T], turn: Turn) -> T:
    """Take all steps and return the result; others run between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await turn.pause()
