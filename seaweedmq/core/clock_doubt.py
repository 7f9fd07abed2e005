"""The rule that a wall-clock timestamp alone never deletes, expires or drops anything.

Wall clocks jump: a machine boots with the date of an empty battery until NTP steps it, a virtual machine resumes, an
operator mistypes. Timestamps come from several of them, so the difference of two timestamps proves nothing. A steady
clock, which never jumps and counts the time for which a machine is suspended, has to confirm it for the *doubt*: the
retention period of the thing, at most an hour. Two classes do that:

- :class:`WallWatch` confirms a wall clock. Every reading is compared with the steady clock. The confirmed time is the
  lowest that all readings of the doubt allow, carried forward steadily. A clock that is ahead for less than the doubt
  changes nothing, and neither does its return. A clock that is set back counts at once. A process that has just begun
  has confirmed nothing and deletes nothing. In an older process, with a clock that never jumped, the confirmed time is
  the time, and nothing is late. It suits things that one process judges by the thousand.
- :class:`DueSince` confirms a verdict. A thing expires once it was due at every check of the doubt. It suits timestamps
  of other processes, whose clocks were wrong when they made them: those look old from the start.

Where a steady clock has observed the whole life of a thing, timestamps can only prolong it (``core.files.retention``,
``core.kafka.committed_offsets``). Where better evidence than clocks exists, clocks are not consulted
(``core.lineage.predecessor_chain``).
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from seaweedmq.model.config import US_PER_S

CLOCK_DOUBT_S = 3_600.0
"""Longest doubt. It is four times the quarter of an hour that a machine with a wrong clock may wait for NTP, and at
least the largest allowed ``producer_idle_s``."""

STEP_US = US_PER_S
"""Least step of a wall clock; smaller changes are drift, which the confirmed time follows in such steps."""
READINGS_MAX = 64
"""Steps that a watch remembers. A clock that steps more often is confirmed as of the last remembered step."""

K = TypeVar("K", bound=Hashable)


def doubt_s(period_s: float) -> float:
    """Return the time for which a steady clock has to confirm that a thing kept for ``period_s`` is due."""
    return min(period_s, CLOCK_DOUBT_S)


class WallWatch:
    """A wall clock as confirmed by the steady clock of the same process."""

    def __init__(self) -> None:
        self._since: list[tuple[float, int]] = []
        """Lower bounds (steady seconds, microseconds): no reading since then was lower, as wall clock minus steady
        clock. Both rise from entry to entry."""
        self._until: list[tuple[float, int]] = []
        """Upper bounds (steady seconds, microseconds): no reading since the previous entry was higher, and the last one
        that was as high is of that time. The times rise, the readings fall."""

    def note(self, wall_us: int, steady_s: float) -> None:
        """Record a reading of both clocks. Steady time never falls from one call to the next."""
        ahead_us, since_s = wall_us - round(steady_s * US_PER_S), steady_s
        while self._since and self._since[-1][1] >= ahead_us:
            since_s, _ = self._since.pop()
        is_drift = bool(self._since) and ahead_us - self._since[-1][1] < STEP_US
        if not is_drift and len(self._since) < READINGS_MAX:
            self._since.append((since_s, ahead_us))
        while len(self._since) > 1 and self._since[1][0] <= steady_s - CLOCK_DOUBT_S:
            del self._since[0]
        highest_us = ahead_us
        while self._until and (self._until[-1][1] < ahead_us + STEP_US or len(self._until) == READINGS_MAX):
            highest_us = max(highest_us, self._until.pop()[1])
        self._until.append((steady_s, highest_us))
        while self._until[0][0] < steady_s - CLOCK_DOUBT_S:
            del self._until[0]

    def confirmed_us(self, steady_s: float, doubt_s: float) -> int:
        """Return a lower bound of the wall-clock time, microseconds; 0 if the clock was not watched for the doubt.

        The wall clock was read for :meth:`note` at ``steady_s``. ``doubt_s`` is at most ``CLOCK_DOUBT_S``.
        """
        confirmed = [ahead_us for since_s, ahead_us in self._since if since_s <= steady_s - doubt_s]
        return max(0, confirmed[-1] + round(steady_s * US_PER_S)) if confirmed else 0

    def span_us(self, steady_s: float) -> tuple[int, int]:
        """Return the earliest and the latest possible wall-clock time, microseconds.

        They are the lowest and the highest reading of the longest doubt, carried forward steadily, and ``steady_s`` is
        the time of the last :meth:`note`. A time that only one of them rejects may be right.
        """
        steady_us = round(steady_s * US_PER_S)
        return self._since[0][1] + steady_us, self._until[0][1] + steady_us


class DueSince(Generic[K]):
    """Things that are due by their timestamps, and the steady time since when."""

    def __init__(self) -> None:
        self._since: dict[K, float] = {}

    def confirmed(self, due: Iterable[K], steady_s: float, doubt_s: float) -> list[K]:
        """Return the things that were due at every check of the doubt. A thing that is not due now starts over."""
        self._since = {key: self._since.get(key, steady_s) for key in due}
        return [key for key, since_s in self._since.items() if since_s + doubt_s <= steady_s]

    def clear(self) -> None:
        """Drop all verdicts."""
        self._since.clear()
