"""Signals, parent, limits and log of a long-running process."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

from seaweedmq.runtime.printable import printable

PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
TRIM_THRESHOLD_BYTES = 128 * 1024 * 1024
MMAP_THRESHOLD_BYTES = 4 * 1024 * 1024
"""Size from which a block gets pages of its own, which return to the system when it is freed.

It is above the largest message of gRPC, whose blocks are taken from the heap and reused. Blocks of 12 MB in the heap,
with small ones in between, left holes: 390 MB of them in a broker that held 155 MB.
"""
TRIM_INTERVAL_S = 0.1
"""Interval of checks of the memory in seconds."""
STEP_BYTES = 16 * 1024 * 1024
"""Growth since a trim that makes another one worth its time."""
THREAD_SWITCH_INTERVAL_S = 0.00005
"""Time after which a waiting thread gets the interpreter; Python's default is 5 ms.

It has to be well below ``turns.TURN_S``. The event loop releases the interpreter in each iteration, to poll its
sockets, and takes it back before a thread has woken up. A thread that woke up restarts its wait. With an interval as
long as an iteration, threads that write log files waited for a hundred of them.
"""


GARBAGE_THRESHOLDS = (1_000, 4, 1_000)
"""Objects until the first of three garbage generations is collected, and collections until each of the others is.

With Python's 700, a broker with 1,800 segments spent a fifth of its time on that while it opened or lost many. The
product of the first two is the number of objects that are scanned at once: 5,000 block the event loop for 0.6 ms,
20,000 for 3 ms.
"""


class LogLevel(StrEnum):
    """The lowest severity that a process logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it ends, or SIGINT or SIGTERM cancels it; its cleanup is not disturbed."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:  # a second signal must not cancel the cleanup, which has its own deadlines
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
    """Make the kernel send SIGTERM to this process when its parent ends, even by SIGKILL. Works only on Linux."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:  # the parent ended before the call
        raise SystemExit(1)


def tune() -> None:
    """Raise the limit of open files, shorten thread switches, tune the garbage collector, and retain memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft != hard else (soft, hard))
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    gc.freeze()  # imported objects stay
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    keep_memory()


def keep_memory(trim_bytes: int = TRIM_THRESHOLD_BYTES) -> None:
    """Make glibc retain freed memory, up to ``trim_bytes`` at the end of the heap, for the next large message.

    Memory that returns to the system costs page faults when it is needed again: a gRPC stream of messages of one
    mebibyte loses up to half its speed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, min(trim_bytes, TRIM_THRESHOLD_BYTES))
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)


async def trim_heap(resident_bytes: Callable[[], int], limit_bytes: int) -> None:
    """Return free pages in the middle of the heap to the system while the process has more than ``limit_bytes``.

    Blocks of one size leave holes that blocks of another do not fill: 140 MB after records of 1 KB gave way to records
    of 12 MB. Runs until cancelled. A trim blocks allocations for some milliseconds, so it waits for ``STEP_BYTES``.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    trim_at = limit_bytes
    while malloc_trim is not None:
        await asyncio.sleep(TRIM_INTERVAL_S)
        if resident_bytes() > trim_at:
            await asyncio.to_thread(malloc_trim, 0)
            trim_at = resident_bytes() + STEP_BYTES
        trim_at = max(limit_bytes, min(trim_at, resident_bytes() + STEP_BYTES))


class _OneLine(logging.Formatter):
    """A formatter that prints one line per event, including the traceback of an unforeseen error.

    Names that clients choose may hold control characters of terminals, so lines are made printable.
    """

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record).replace("\n", " | "))


def log_to_stderr(level: LogLevel) -> None:
    """Send the log to stderr, one line per event."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("seaweedmq").setLevel(level.upper())
