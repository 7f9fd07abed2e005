"""A watchdog of the event loop: a thread that logs what holds it, with its stack, and counts how often.

Work that does not give way delays everything else on the loop: other clients, renewals of the lease, timers.
A frozen process or a suspended machine does not count as held: the thread stood still as well, and no CPU time passed.
If some did, a call of C code kept the interpreter's lock: that counts, but which one it was is not known.
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

from seaweedmq.runtime.boot_clock import boot_s

log = logging.getLogger(__name__)

HELD_S: Final = 0.5
"""A loop that runs nothing for so long is held."""
LOOK_S: Final = 0.1
LOCKED_SHARE: Final = 0.5
"""A process that used at least this share of the time that the watchdog stood still was not frozen."""
FRAMES_MAX: Final = 30
"""Innermost frames of the stack that are logged."""


class Finding(Enum):
    """Result of one check of the loop."""

    NOTHING = "nothing new"
    HELD = "the loop is held"
    RELEASED = "the loop runs again"
    LOCKED = "the interpreter's lock was held, and with it the loop"


@dataclass(slots=True)
class HoldTracker:
    """The holds of one loop, from the times at which it ran and those at which it was looked at."""

    beat_s: float
    """Time at which the loop ran last."""
    looked_s: float
    cpu_s: float = 0.0
    """CPU time of the process at that look."""
    holds: int = 0
    held_s: float = 0.0
    """Length of the hold that is under way, or was last."""
    _is_held: bool = False

    def look(self, now: float, cpu_s: float = 0.0) -> Finding:
        """Take a look, at this time, when the process has used so much CPU time."""
        stood_s, used_s = now - self.looked_s, cpu_s - self.cpu_s
        self.looked_s, self.cpu_s = now, cpu_s
        if stood_s > HELD_S:  # the watchdog stood still as well: what the loop did meanwhile is not known
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
    """Watches the loop that it is started on."""

    def __init__(self, clock_s: Callable[[], float] = boot_s) -> None:
        self._clock_s = clock_s
        now = clock_s()
        self._tracker = HoldTracker(beat_s=now, looked_s=now, cpu_s=time.process_time())
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def holds(self) -> int:
        """Number of times that the loop was held since the start."""
        return self._tracker.holds

    def start(self) -> None:
        """Begin, on the running loop."""
        self._beat(asyncio.get_running_loop())
        self._thread = threading.Thread(
            target=self._run, args=(threading.get_ident(),), name="watchdog of the event loop", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tracker.beat_s = self._clock_s()
        self._timer = loop.call_later(LOOK_S, self._beat, loop)

    def _run(self, watched: int) -> None:
        while not self._stopped.wait(LOOK_S):
            match self._tracker.look(self._clock_s(), time.process_time()):
                case Finding.HELD:
                    log.warning("event loop held: %.1f s so far, by:\n%s", self._tracker.held_s, _stack(watched))
                case Finding.LOCKED:
                    log.warning(
                        "event loop held: %.1f s or more, by a call that kept the interpreter's lock: no stack of it",
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
    return "".join(traceback.format_stack(frame, FRAMES_MAX)).rstrip() if frame is not None else "(its thread is gone)"
