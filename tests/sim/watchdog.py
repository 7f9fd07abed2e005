"""Watchdog of seeds: a slow one prints its stack, an endless one is ended."""

import asyncio
import faulthandler
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tests.sim.machines.loop import SimLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Time limits for one seed, in seconds of real time."""

    tell_s: float = 60.0
    """Time after which its stack and pending tasks are printed."""
    end_s: float = 120.0
    """Time after which it has failed."""
    kill_s: float = 150.0
    """Time after which its process, stuck outside Python, is killed."""


PATIENCE = Patience()


class TooSlow(SystemExit):
    """The seed exceeded its time limit. An event loop propagates a SystemExit, even from a running task."""


@contextmanager
def watched(what: str, patience: Patience) -> Iterator[None]:
    """Watch over the block, which runs in the main thread. Raises TooSlow in it, repeatedly if it is caught."""
    told = False

    def on_alarm(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if told:
            raise TooSlow(f"{what} did not end within {patience.end_s:.0f} s")
        told = True
        signal.setitimer(signal.ITIMER_REAL, patience.end_s - patience.tell_s, 1.0)
        loop = asyncio._get_running_loop()
        pending = f"at {loop.time():.3f} virtual s, {loop.describe_pending()}" if isinstance(loop, SimLoop) else ""
        stack = "".join(traceback.format_stack(frame))
        print(f"{what} takes more than {patience.tell_s:.0f} s\n{stack}{pending}", file=sys.stderr, flush=True)

    before: Any = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, patience.tell_s)
    # No handler runs while the interpreter itself is stuck: this prints the stack from a thread of its own.
    faulthandler.dump_traceback_later((patience.tell_s + patience.end_s) / 2, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
