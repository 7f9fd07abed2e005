"""Standby of the lease renewal: a thread that renews a lease when the event loop does not.

If a handler held the loop for longer than a lease lasts, the broker would lose all its segments although it works. The
thread has its own connection to etcd and does not need the loop. Only a single call of C code that keeps the
interpreter's lock delays both. The thread stops renewing for a loop that is held too long: that broker serves no
client, and others must take over.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from seaweedmq.errors import SeaweedMQError
from seaweedmq.runtime.process.boot_clock import boot_s

_log = logging.getLogger(__name__)

DUE_SHARE: Final = 0.4
"""Share of the lease that is left when the standby renews it. The loop renews at a half."""
CHECKS_PER_LEASE: Final = 16
LOOP_HELD_S_MAX: Final = 30.0
"""Longest time that the standby renews a lease in place of the event loop, in seconds."""


class GuardedLease(Protocol):
    """A lease that the event loop renews. All members except ``extend`` may be read from any thread."""

    lease: int
    """Id of the lease; 0 without one."""
    ttl_s: float
    deadline_s: float
    """Time until which the lease surely lives."""
    renewed_s: float
    """Time of the last renewal by the event loop."""

    def extend(self, deadline_s: float) -> None:
        """Record, from any thread, that the lease surely lives until then."""


def is_due(guarded: GuardedLease, now_s: float) -> bool:
    """Whether the standby has to renew a lease now."""
    is_loop_given_up = now_s - guarded.renewed_s > LOOP_HELD_S_MAX
    left_s = guarded.deadline_s - now_s
    return guarded.lease != 0 and 0 < left_s < DUE_SHARE * guarded.ttl_s and not is_loop_given_up


class LeaseStandby:
    """The standby thread of one broker. It guards one lease at a time."""

    def __init__(self, renew: Callable[[int, float], float], clock_s: Callable[[], float] = boot_s) -> None:
        """Create the standby; ``clock_s`` is the clock of the lease.

        In a thread, ``renew`` renews a lease within some seconds and returns how long it lasts, 0 if it is gone, or
        raises SeaweedMQError.
        """
        self._renew = renew
        self._clock_s = clock_s
        self._guarded: GuardedLease | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._ttl_s = 0.0
        self.renewals = 0
        """Number of renewals by the standby."""

    def guard(self, lease: GuardedLease) -> None:
        """Renew this lease from now on when it is due, in place of the previous one."""
        self._guarded, self._ttl_s = lease, lease.ttl_s
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="standby of the lease", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread. It may be in a call, which has a deadline."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._ttl_s / CHECKS_PER_LEASE):
            guarded = self._guarded
            if guarded is not None and is_due(guarded, self._clock_s()):
                self._renew_once(guarded)

    def _renew_once(self, guarded: GuardedLease) -> None:
        lease, sent_s = guarded.lease, self._clock_s()
        try:
            lasts_s = self._renew(lease, guarded.ttl_s / 4)
        except SeaweedMQError as error:
            _log.warning("lease not renewed by its standby: %x: %s; retrying", lease, error)
            return
        except Exception:  # noqa: BLE001 - a lack of threads or descriptors surfaces in gRPC here: retry at the next check
            _log.exception("lease not renewed by its standby: %x; retrying", lease)
            return
        if lasts_s <= 0:
            return  # the loop finds out at its renewal, and drops the segments
        guarded.extend(sent_s + lasts_s)
        self.renewals += 1
        _log.warning(
            "lease renewed by its standby: %x: the event loop did not for %.1f s", lease, self._held_s(guarded)
        )

    def _held_s(self, guarded: GuardedLease) -> float:
        return self._clock_s() - guarded.renewed_s
