"""Wall clocks of machines, each with its own error, some set forward and back during a run.

They stamp files, unless the storage has a clock of its own, and give a broker the time of day. Correctness must not
depend on them.
"""

import random

from tests.sim.machines.determinism import WALL_START_US
from tests.sim.machines.loop import OWNER, SimLoop
from tests.sim.machines.network import machine_of

US_PER_S = 1_000_000
QUIET_ERROR_S = 0.2
WILD_ERROR_S = 20.0
STORAGE = "storage"
"""The machine of the storage's own clock, whose error never changes."""


class Clocks:
    """Wall clocks, one per machine; a process on no machine reads the true time."""

    def __init__(
        self, loop: SimLoop, rng: random.Random, *, wild: bool, of_storage: bool = False, step: bool = False
    ) -> None:
        self.is_wild = wild
        self.has_storage = of_storage
        self.are_stepped = step
        """Whether clocks step by up to days; if so, rules judge files by their true age."""
        self._loop = loop
        self._rng = rng
        self._errors_us: dict[str, int] = {}
        self._steps_us: dict[str, int] = {}
        self._dated_us: dict[int, int] = {}
        """True time of every date that a file received."""
        self._worst_us = 0
        self._earliest_us = 0
        if of_storage:
            self.set_wrong(STORAGE)

    def wall_us(self, machine: str) -> int:
        return self._true_us() + self._errors_us.get(machine, 0) + self._steps_us.get(machine, 0)

    def here_us(self) -> int:
        """Return the time that the clock of the calling process's machine shows."""
        return self.wall_us(machine_of(OWNER.get()))

    def of_files_us(self) -> int:
        """Return the time that stamps a file written now."""
        stamp_us = self.wall_us(STORAGE) if self.has_storage else self.here_us()
        if self.are_stepped:
            self._dated_us[stamp_us] = self._true_us()
        return stamp_us

    def judged_us(self, stamp_us: int) -> int:
        """Return the time, as the rules count it, at which a file with that date was written."""
        return self._dated_us.get(stamp_us, stamp_us)

    def latest_us(self) -> int:
        """Return an upper bound of the times that clocks stamp files with now, or would if they had not been set back.

        If clocks step, this is the true time."""
        if self.are_stepped:
            return self._true_us()
        return self.wall_us(STORAGE) if self.has_storage else self._true_us() + self._worst_us

    def earliest_us(self) -> int:
        return self._true_us() + self._earliest_us

    def set_wrong(self, machine: str, error_s: float | None = None) -> float:
        """Give a machine's clock another error, by default a random one; return it in seconds."""
        most_s = WILD_ERROR_S if self.is_wild else QUIET_ERROR_S
        if error_s is None:
            error_s = self._rng.uniform(-most_s, most_s)
        self._errors_us[machine] = int(error_s * US_PER_S)
        self._worst_us = max(self._worst_us, self._errors_us[machine])
        self._earliest_us = min(self._earliest_us, self._errors_us[machine])
        return error_s

    def step(self, machine: str, by_s: float) -> None:
        """Step a machine's clock, in addition to its error."""
        self._steps_us[machine] = self._steps_us.get(machine, 0) + round(by_s * US_PER_S)

    def end_steps(self) -> None:
        self._steps_us.clear()

    def _true_us(self) -> int:
        return WALL_START_US + int(self._loop.time() * US_PER_S)
