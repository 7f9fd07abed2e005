"""Measurements of the broker's own process: memory and processor time, even if it can open no file."""

import contextlib
import time

import psutil


class OwnProcess:
    """The process that this code runs in."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._resident_bytes = self._process.memory_info().rss
        self._measured_s = time.monotonic()
        self._used_s = time.process_time()

    def resident_bytes(self) -> int:
        """Return the resident memory; the last known value while the process has no file descriptor left."""
        with contextlib.suppress(OSError):  # Linux has it in a file, which takes a descriptor
            self._resident_bytes = self._process.memory_info().rss
        return self._resident_bytes

    def cpu_share(self) -> float:
        """Return the processor time since the last call, or since the start, as a share of one core."""
        now_s, used_s = time.monotonic(), time.process_time()
        elapsed_s = now_s - self._measured_s
        share = (used_s - self._used_s) / elapsed_s if elapsed_s > 0 else 0.0
        self._measured_s, self._used_s = now_s, used_s
        return share
