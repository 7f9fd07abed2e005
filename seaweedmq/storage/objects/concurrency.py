"""Limit of the requests at one time, which a store that is overloaded lowers.

The limit halves when the store limits requests, and grows by one after as many successes as it allows at one time:
additive increase, multiplicative decrease, as of TCP (Chiu and Jain, 1989).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

REQUESTS_MAX = 64


class Concurrency:
    """The requests under way to one store. Belongs to the event loop."""

    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._max = requests_max
        self.limit = requests_max
        """Requests that may be under way, from 1 to the given limit."""
        self.under_way = 0
        self._successes = self._halved = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[int]:
        """Wait until one request more may be under way, in the order of the calls, and count it until the exit.

        Yields the number of times that the limit was halved before.
        """
        if self.under_way >= self.limit or self._waiting:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():  # its turn came, and it does not take it
                    self._end()
                elif turn in self._waiting:
                    self._waiting.remove(turn)
                raise
        else:
            self.under_way += 1
        try:
            yield self._halved
        finally:
            self._end()

    def throttled(self, halved: int) -> None:
        """Halve the limit unless it was halved since the request began, by the number that :meth:`one` yielded.

        One overload rejects many requests, and must count once.
        """
        if halved == self._halved:
            self._halved += 1
            self.limit = max(1, self.limit // 2)
            self._successes = 0

    def succeeded(self) -> None:
        """Raise the limit by one after as many successes as it allows at one time."""
        self._successes += 1
        if self._successes >= self.limit and self.limit < self._max:
            self.limit += 1
            self._successes = 0
            self._wake()

    def _end(self) -> None:
        self.under_way -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.under_way < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self.under_way += 1
