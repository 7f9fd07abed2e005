"""Steps of brokers' wall clocks, with libfaketime (Debian's package of that name).

The library adds an offset from a file to the wall clock of a process. Steady clocks, file times and timeouts stay the
machine's. It slows a broker down, so that a cluster has one such broker, and version 0.9.10 lets ``time.sleep`` fail
with EINVAL: in a broker only retries of the table worker call it, and these are repeated later.
"""

import sys
from pathlib import Path

from tests.faults.machines.network import Unsupported

LIBRARIES = tuple(
    Path(folder) / "faketime" / "libfaketime.so.1"
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
)
SEEN_WITHIN_S = 1
"""Seconds within which every process sees a step; reading the file at each call would be slow."""


def library() -> Path:
    """Find libfaketime.

    Raises:
        Unsupported: If it is not installed.
    """
    found = next((path for path in LIBRARIES if path.is_file()), None)
    if found is None or sys.platform != "linux":
        raise Unsupported("clocks are stepped by libfaketime: apt-get install libfaketime")
    return found


class WallClock:
    def __init__(self, file: Path) -> None:
        self._file = file
        self.step(0.0)

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(SEEN_WITHIN_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }

    def step(self, ahead_s: float) -> None:
        """Set the clock ahead of the machine's by these seconds, or behind if negative."""
        aside = self._file.with_suffix(".new")
        aside.write_text(f"{ahead_s:+.3f}\n")
        aside.replace(self._file)
