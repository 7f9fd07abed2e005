"""A watchdog of the event loop: a thread that logs the stack of code that holds the loop, and counts the holds.

Code that does not yield delays everything else on the loop: other clients, lease renewals, timers. A frozen process or
a suspended machine does not count as a hold: the watchdog stopped as well, and no CPU time passed. If CPU time passed,
a call of C code kept the interpreter's lock. That counts as a hold, but the call is unknown.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from seaweedmq.runtime.process.boot_clock import boot_s

log = logging.getLogger(__name__)

HELD_S: Final = 0.5
"""Time in seconds without a loop iteration above which the loop is held."""
CHECK_INTERVAL_S: Final = 0.1
LOCKED_SHARE: Final = 0.5
"""Least CPU share during a stop of the watchdog above which the process was not frozen."""
FRAMES_MAX: Final = 30
"""Number of innermost stack frames in the log."""


class Finding(Enum):
    """The result of one check of the loop."""

    NOTHING = "nothing new"
    HELD = "the loop is held"
    RELEASED = "the loop runs again"
    LOCKED = "the interpreter's lock was held, and with it the loop"


@dataclass(slots=True)
class HoldTracker:
    """The holds of one loop, derived from the times at which it ran and was checked."""

    beat_s: float
    """Time at which the loop last ran."""
    checked_s: float
    cpu_s: float = 0.0
    """CPU time of the process at the last check."""
    holds: int = 0
    held_s: float = 0.0
    """Length of the current hold, or of the last one."""
    _is_held: bool = False

    def check(self, now: float, cpu_s: float = 0.0) -> Finding:
        """Check the loop at time ``now``, when the process has used ``cpu_s`` of CPU time."""
        stood_s, used_s = now - self.checked_s, cpu_s - self.cpu_s
        self.checked_s, self.cpu_s = now, cpu_s
        if stood_s > HELD_S:  # the watchdog stopped as well: the loop's activity meanwhile is unknown
            self.beat_s = max(self.beat_s, now)
            if used_s >= LOCKED_SHARE * stood_s:
                self._is_held = False
                self.holds += 1
                self.held_s = stood_s
                return Finding.LOCKED
        silent_s = now - self.beat_s
        if self._is_held:
            if silent_s > self.held_s:
                self.held_s = silent_s
                return Finding.NOTHING
            self._is_held = False
            return Finding.RELEASED
        if silent_s < HELD_S:
            return Finding.NOTHING
        self._is_held = True
        self.holds += 1
        self.held_s = silent_s
        return Finding.HELD


class LoopWatch:
    """A watchdog of the loop that it is started on."""

    def __init__(self, clock_s: Callable[[], float] = boot_s) -> None:
        self._clock_s = clock_s
        now = clock_s()
        self._tracker = HoldTracker(beat_s=now, checked_s=now, cpu_s=time.process_time())
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def holds(self) -> int:
        """Number of holds since the start."""
        return self._tracker.holds

    def start(self) -> None:
        """Start watching the running loop."""
        self._beat(asyncio.get_running_loop())
        self._thread = threading.Thread(
            target=self._run, args=(threading.get_ident(),), name="watchdog of the event loop", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the watchdog and its thread."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tracker.beat_s = self._clock_s()
        self._timer = loop.call_later(CHECK_INTERVAL_S, self._beat, loop)

    def _run(self, watched: int) -> None:
        while not self._stopped.wait(CHECK_INTERVAL_S):
            match self._tracker.check(self._clock_s(), time.process_time()):
                case Finding.HELD:
                    log.warning("event loop held: %.1f s so far, by:\n%s", self._tracker.held_s, _stack(watched))
                case Finding.LOCKED:
                    log.warning(
                        "event loop held: %.1f s or more, by a call that kept the interpreter's lock: stack unknown",
                        self._tracker.held_s,
                    )
                case Finding.RELEASED:
                    log.warning(
                        "event loop released: after %.1f s or more, %d times held since the start",
                        self._tracker.held_s,
                        self._tracker.holds,
                    )


def _stack(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to a thread's stack
    return "".join(traceback.format_stack(frame, FRAMES_MAX)).rstrip() if frame is not None else "(the thread ended)"
