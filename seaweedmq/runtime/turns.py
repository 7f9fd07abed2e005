"""Turns on an event loop: long work yields to others after each quarter of a millisecond.

All long work of a loop waits in one queue, and every fourth iteration of the loop continues one of its entries. So many
long requests delay short ones no longer than a single long request does; they delay each other. A short request takes
several iterations (its bytes arrive, its task runs, its reply leaves), and waits for a turn of long work in one of
them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from seaweedmq.runtime.process.boot_clock import boot_s

T = TypeVar("T")

TURN_S: Final = 0.00025
"""Longest time in seconds that work runs before it yields, if it checks the clock often enough."""
ITERATIONS_BETWEEN: Final = 3
"""Iterations of the loop between two turns, for short requests alone. With none, a Kafka produce beside DeleteRecords
of 10,000 partitions took 4.0 ms at p99, with three 2.2 ms. An idle iteration takes about 10 us."""


class Turns:
    """The queue of work that yielded."""

    def __init__(self, clock_s: Callable[[], float] = boot_s) -> None:
        """Create a queue. ``clock_s`` has to advance within an iteration of the loop, unlike uvloop's ``time()``."""
        self._clock_s = clock_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_claimed = False
        self._passed = 0

    def claim(self) -> bool:
        """Claim this iteration of the loop, and return whether work may begin at once instead of waiting for its turn.

        It may if nothing waits, and no other work has claimed this iteration.
        """
        if self._waiting or self._is_claimed:
            return False
        self._is_claimed = True
        asyncio.get_running_loop().call_soon(self._end_claim)
        return True

    def begin(self) -> "Turn":
        """Return a turn that begins now."""
        return Turn(self, self._clock_s)

    def call_next(self, work: Callable[[], None]) -> None:
        """Call ``work`` in an iteration of the loop that, like those right before it, continues no other work."""
        self._waiting.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    async def next(self) -> None:
        """Wait for an iteration as in :meth:`call_next`."""
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
    """The time that one job has until it yields."""

    __slots__ = ("_clock_s", "_turns", "_until")

    def __init__(self, turns: Turns, clock_s: Callable[[], float]) -> None:
        self._turns = turns
        self._clock_s = clock_s
        self._until = clock_s() + TURN_S

    @property
    def is_over(self) -> bool:
        """Whether the work has to yield."""
        return self._clock_s() >= self._until

    def renew(self) -> None:
        """Begin the next turn now, after a wait."""
        self._until = self._clock_s() + TURN_S

    async def pause(self) -> None:
        """Yield if the turn is over, then begin the next turn. Call it for each element of a long request."""
        if self._clock_s() >= self._until:
            await self._turns.next()
            self._until = self._clock_s() + TURN_S


def endless_turn() -> Turn:
    """Return a turn that never ends, for work on virtual time."""
    return Turns(lambda: 0.0).begin()


def at_once(steps: Generator[None, None, T]) -> T:
    """Take all steps of short work at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def in_turns(steps: Generator[None, None, T], turn: Turn) -> T:
    """Take all steps and return the result; other work runs between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await turn.pause()
