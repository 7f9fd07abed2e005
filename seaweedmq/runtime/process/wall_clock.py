"""The wall clock of this process: the default wherever a clock is passed in, and the one place that reads it."""

import time


def wall_us() -> int:
    """Return microseconds since 1970 UTC; the clock may be set, also backwards."""
    return time.time_ns() // 1_000  # noqa: TID251 - the one real clock
