"""Yardstick of durable writes: append and fdatasync, one after another, in one file."""

import os
import time
from pathlib import Path

MIB = 1024 * 1024
SMALL_BYTES = 512
"""About the size of a frame of one record of 100 bytes."""


def append_and_sync(directory: Path, total_bytes: int, sync_bytes: int) -> float:
    """Append 1 MiB at a time with an fdatasync after every ``sync_bytes``; return bytes per second."""
    path = directory / "raw-disk"
    chunk = os.urandom(MIB)
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
    try:
        began = time.perf_counter()
        for number in range(1, total_bytes // MIB + 1):
            os.write(fd, chunk)
            if number * MIB % sync_bytes == 0:
                os.fdatasync(fd)
        os.fdatasync(fd)
        return total_bytes / (time.perf_counter() - began)
    finally:
        os.close(fd)
        path.unlink()


def small_syncs_s(directory: Path, count: int) -> list[float]:
    """Append ``SMALL_BYTES`` and fdatasync, one after another in one file; return seconds of each, ascending."""
    path = directory / "raw-disk-small"
    chunk = os.urandom(SMALL_BYTES)
    took: list[float] = []
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(fd, chunk)
            os.fdatasync(fd)
            took.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        path.unlink()
    return sorted(took)
