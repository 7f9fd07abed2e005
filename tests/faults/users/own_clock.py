"""A clock that stops while the machine does not run this process, whose users then observe nothing."""

import asyncio
import time

STEP_S = 0.02
STANDSTILL_S = 0.1
"""Standstill in seconds below which the clock keeps running."""


class OwnClock:
    """A clock by which users in this process judge the duration of others' work.

    This process's own computation counts, since the client runs in it; on an idle machine the clock equals the loop's
    time.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        """Longest lag of the loop in seconds, for any reason: the noise in all times."""
        self._loop = asyncio.get_running_loop()
        self._stood_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self._due_s = self._loop.time() + STEP_S
        self._computed_s = time.process_time()

    def now_s(self) -> float:
        """Return the time; only differences are meaningful."""
        return self._loop.time() - self._stood_s - self._standing_s()

    def _standing_s(self) -> float:
        """Return the seconds of the current lag that were no computation."""
        late_s = self._loop.time() - self._due_s
        standing_s = late_s - (time.process_time() - self._computed_s)
        return standing_s if standing_s > STANDSTILL_S else 0.0

    async def watch(self) -> None:
        while True:
            self._begin()
            await asyncio.sleep(STEP_S)
            self.longest_s = max(self.longest_s, self._loop.time() - self._due_s)
            self._stood_s += self._standing_s()
