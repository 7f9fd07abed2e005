"""Whether a member may believe what it was assigned: not for long after it last heard of the coordinator.

A member that stood still (a stopped process, a suspended machine, a loop that computed) or was cut off may have lost
its segments to others meanwhile, and what it hears first when it goes on may be old. So it hands nothing out until a
stream that it opened since has brought an assignment.

While a stream is open, gRPC looks below Python whether the coordinator is there; :meth:`AssignmentLease.beat` notes
that, and by what lies between two beats a process sees that it stood still.
"""

from collections.abc import Callable

from seaweedmq.model.messages.groups import GroupAssignment

BEAT_S_MAX = 1.0
BEATS_PER_LEASE = 6


class AssignmentLease:
    """Of one member. Threads: the loop's writes, and whoever takes records asks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: seconds, which go on while the machine is suspended."""
        self.clock = clock
        self.until = float("inf")
        """By ``clock``: so long what was assigned is still so."""
        self._trust_s = float("inf")

    @property
    def beat_s(self) -> float:
        """Seconds from one beat to the next."""
        return min(BEAT_S_MAX, self._trust_s / BEATS_PER_LEASE)

    @property
    def is_fresh(self) -> bool:
        """Whether what was assigned is still so."""
        return self.clock() <= self.until

    def opened(self, at: float, assignment: GroupAssignment) -> None:
        """The first assignment on a stream that was opened ``at``: the coordinator said it since."""
        if assignment.trust_s is not None:
            self._trust_s = assignment.trust_s
        self.until = at + self._trust_s

    def beat(self) -> bool:
        """Time passed, with the stream open. False: too much of it for the stream to be believed."""
        if self.is_fresh:
            self.until = self.clock() + self._trust_s
            return True
        return False
