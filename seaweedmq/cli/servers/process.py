"""What every long-running process of ours does about signals, its parent, limits and its log."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any

from seaweedmq.runtime.printable import printable

PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
TRIM_THRESHOLD_BYTES = 128 * 1024 * 1024
MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024
"""The largest that glibc takes: above it, memory is mapped and unmapped by the system every time."""
THREAD_SWITCH_INTERVAL_S = 0.00005
"""A thread that waits for the interpreter gets it after this time; Python's default is 5 ms.

It has to be well below ``turns.TURN_S``. The event loop lets go of the interpreter in each iteration, to look at its
sockets, and takes it back before a thread has woken up; a thread that woke up counts its wait from the beginning. With
an interval as long as an iteration, threads that write log files waited for a hundred of them.
"""


GARBAGE_THRESHOLDS = (1_000, 4, 1_000)
"""Objects until the first of three generations is looked through for cycles, and how often until each of the others is.

Python's 700 let a broker with 1,800 segments spend a fifth of its time on that while it opens or loses many. The first
two together are the objects that are looked through at once: 5,000 hold the event loop for 0.6 ms, 20,000 for 3.
"""


class LogLevel(StrEnum):
    """What a process logs: this and all that is worse."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it ends, or SIGINT or SIGTERM cancels it; what it does then to clean up is not disturbed."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:  # a second signal must not cancel the clean-up, which has deadlines of its own
            stopping = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopping:
            raise


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel end this process (SIGTERM) when its parent ends, even by SIGKILL. Nothing but on Linux."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:  # it was gone before the kernel was asked
        raise SystemExit(1)


def tune() -> None:
    """Allow as many open files as the system lets us, quick turns between threads, and memory kept for reuse."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft != hard else (soft, hard))
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    gc.freeze()  # what was imported stays
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    keep_memory()


def keep_memory(trim_bytes: int = TRIM_THRESHOLD_BYTES) -> None:
    """Have glibc keep freed memory, up to ``trim_bytes`` at the end of the heap, for the next message of a mebibyte.

    Memory that goes back to the system costs page faults when it is needed again: a gRPC stream of such messages loses
    up to half its speed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, min(trim_bytes, TRIM_THRESHOLD_BYTES))
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)


class _OneLine(logging.Formatter):
    """One line an event; the traceback of an unforeseen error follows in the same line. Names that clients choose may
    hold what moves a terminal's cursor.
    """

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record).replace("\n", " | "))


def log_to_stderr(level: LogLevel) -> None:
    """Send the log to stderr, a line an event."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("seaweedmq").setLevel(level.upper())
