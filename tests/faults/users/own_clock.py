"""A clock that does not go while the machine leaves this process standing: its users then see nothing, well or not."""

import asyncio
import time

STEP_S = 0.02
STANDSTILL_S = 0.1
"""What is shorter is part of what is measured."""


class OwnClock:
    """Time by which users in this process judge how long others took.

    What this process itself computed meanwhile counts, since the client does so in it; on a machine that has time for
    everybody this is the loop's time.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        """The longest time by which the loop was late, for whatever reason: the noise in all times."""
        self._loop = asyncio.get_running_loop()
        self._stood_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self._due_s = self._loop.time() + STEP_S
        self._computed_s = time.process_time()

    def now_s(self) -> float:
        """Only differences mean something."""
        return self._loop.time() - self._stood_s - self._standing_s()

    def _standing_s(self) -> float:
        """For how long it is late just now without having computed."""
        late_s = self._loop.time() - self._due_s
        standing_s = late_s - (time.process_time() - self._computed_s)
        return standing_s if standing_s > STANDSTILL_S else 0.0

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._begin()
            await asyncio.sleep(STEP_S)
            self.longest_s = max(self.longest_s, self._loop.time() - self._due_s)
            self._stood_s += self._standing_s()
