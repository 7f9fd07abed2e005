"""Wall clocks of machines: each wrong in its own way, some set forward and back while everything runs.

They stamp files and tell a broker the time of day; nothing that must be right may rest on them.
"""

import random

from tests.sim.determinism import WALL_START_US
from tests.sim.loop import OWNER, SimLoop
from tests.sim.network import machine_of

US_PER_S = 1_000_000
QUIET_ERROR_S = 0.2
WILD_ERROR_S = 20.0


class Clocks:
    """One a machine; whoever is on none has the right time."""

    def __init__(self, loop: SimLoop, rng: random.Random, *, wild: bool) -> None:
        self.is_wild = wild
        self._loop = loop
        self._rng = rng
        self._errors_us: dict[str, int] = {}
        self._worst_us = 0

    def wall_us(self, machine: str) -> int:
        """What the clock of that machine shows."""
        return self._true_us() + self._errors_us.get(machine, 0)

    def here_us(self) -> int:
        """What it shows on the machine of whoever is running: the time that files get."""
        return self.wall_us(machine_of(OWNER.get()))

    def latest_us(self) -> int:
        """No clock shows a later time now, nor would have, had it not been set back."""
        return self._true_us() + self._worst_us

    def set_wrong(self, machine: str) -> float:
        """Give a machine's clock another error; returns it in seconds."""
        most_s = WILD_ERROR_S if self.is_wild else QUIET_ERROR_S
        error_s = self._rng.uniform(-most_s, most_s)
        self._errors_us[machine] = int(error_s * US_PER_S)
        self._worst_us = max(self._worst_us, self._errors_us[machine])
        return error_s

    def _true_us(self) -> int:
        return WALL_START_US + int(self._loop.time() * US_PER_S)
