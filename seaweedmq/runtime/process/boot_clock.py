"""The clock for leases, which also advances while the machine is suspended, as etcd's does."""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has both clocks, and its monotonic one stops during a suspension; other systems have only the monotonic one."""


def boot_s() -> float:
    """Return seconds since an arbitrary moment. The clock cannot be set and only advances."""
    return time.clock_gettime(_CLOCK)
