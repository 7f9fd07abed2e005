"""The clock by which leases are counted: it goes on while the machine is suspended, as etcd's does."""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has both, and its monotonic clock stands still meanwhile; elsewhere the monotonic one has to do."""


def boot_s() -> float:
    """Seconds since some moment in the past. Nobody sets it, it only goes forward."""
    return time.clock_gettime(_CLOCK)
