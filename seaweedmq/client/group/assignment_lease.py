"""The lease on a member's assignment, which expires soon after the last contact with the coordinator.

A member that was paused (a stopped process, a suspended machine, a blocked loop) or disconnected may have lost its
segments meanwhile, and the first message that it receives afterwards may be old. It therefore delivers nothing until a
stream that it opened since has brought an assignment.

While a stream is open, gRPC checks the coordinator below Python. :meth:`AssignmentLease.beat` records that, and the
time between two beats shows a process that it was paused.
"""

from collections.abc import Callable

from seaweedmq.model.messages.groups import GroupAssignment

BEAT_S_MAX = 1.0
"""Limit of the interval between two beats."""
BEATS_PER_LEASE = 6
"""Number of beats in the duration of a lease."""


class AssignmentLease:
    """The lease of one member. The loop's thread writes it, and threads that take records read it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Make a lease without expiry; ``clock`` returns seconds and advances while the machine is suspended."""
        self.clock = clock
        self.until = float("inf")
        """The time by ``clock`` until which the assignment is valid."""
        self._lease_s = float("inf")

    @property
    def beat_s(self) -> float:
        """The interval between two beats, in seconds."""
        return min(BEAT_S_MAX, self._lease_s / BEATS_PER_LEASE)

    @property
    def is_fresh(self) -> bool:
        """Whether the assignment is still valid."""
        return self.clock() <= self.until

    def opened(self, at: float, assignment: GroupAssignment) -> None:
        """Start the lease with the first assignment on a stream that was opened ``at``.

        The coordinator sent it after that time.
        """
        if assignment.trust_s is not None:
            self._lease_s = assignment.trust_s
        self.until = at + self._lease_s

    def beat(self) -> bool:
        """Renew the lease while the stream is open. Return False if it has expired: the process was paused."""
        if self.is_fresh:
            self.until = self.clock() + self._lease_s
            return True
        return False
