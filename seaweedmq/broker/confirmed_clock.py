"""Wall clock of a broker process as far as its steady clock confirms it."""

from seaweedmq.core.clock_doubt import WallWatch, doubt_s
from seaweedmq.model.config import US_PER_S
from seaweedmq.ports import Environment


class ConfirmedClock:
    """The confirmed clock of one process, shared by all expirations by stamps: its readings reach back to the start.

    Every use is a reading. A broker's maintenance takes one in each interval.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._watch = WallWatch()
        self.read()

    def read(self) -> float:
        """Take a reading; return the steady time, seconds."""
        steady_s = self._env.boot_s()
        self._watch.note(self._env.wall_us(), steady_s)
        return steady_s

    def before_us(self, period_s: float) -> int:
        """Return the wall-clock time before which a stamp is confirmed to be ``period_s`` old; negative if none is."""
        return self.confirmed_us(period_s) - int(period_s * US_PER_S)

    def span_us(self) -> tuple[int, int]:
        """Return the earliest and the latest possible wall-clock time, by this process's readings."""
        return self._watch.span_us(self.read())

    def confirmed_us(self, period_s: float) -> int:
        """Return the wall-clock time that has surely been reached, for data that is retained for ``period_s``."""
        return self._watch.confirmed_us(self.read(), doubt_s(period_s))
