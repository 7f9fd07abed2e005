"""Everything that could differ between two runs of one seed, taken away: clocks, randomness, garbage collection."""

import asyncio
import gc
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy.random  # noqa: F401 - seeds itself from the system when first used; here, before the simulation
import psutil

from tests.sim.loop import SimLoop

WALL_START_US = 1_700_000_000_000_000
"""Wall clock at virtual time 0: 2023-11-14."""


class IdleProcess:
    """``psutil.Process`` of a simulated broker: load that does not depend on the machine that simulates."""

    def cpu_percent(self, interval: float | None = None) -> float:
        return 10.0

    def memory_info(self) -> "IdleProcess":
        return self

    rss = 100 * 1024 * 1024


def _simulated() -> SimLoop | None:
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, SimLoop) else None


def _virtual(real: Callable[[], Any], virtual: Callable[[SimLoop], Any]) -> Callable[[], Any]:
    """``real`` for the rest of the process (threads of pytest), ``virtual`` for code under a SimLoop."""

    def clock() -> Any:
        loop = _simulated()
        return real() if loop is None else virtual(loop)

    return clock


def _forbidden(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def source(*args: Any, **kwargs: Any) -> Any:
        if _simulated() is not None:
            raise AssertionError(f"{name} was called under the simulation: take randomness from Environment.rng")
        return real(*args, **kwargs)

    return source


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Seed the global generator (tenacity's jitter) and give code that runs under a SimLoop virtual clocks only.

    tenacity reads ``time.monotonic`` for its deadlines, so without this no retry would ever give up in virtual time.
    """
    patches: list[tuple[Any, str, Any]] = [
        (time, "monotonic", _virtual(time.monotonic, lambda loop: loop.time())),
        (time, "perf_counter", _virtual(time.perf_counter, lambda loop: loop.time())),
        (time, "time", _virtual(time.time, lambda loop: WALL_START_US / 1e6 + loop.time())),
        (time, "time_ns", _virtual(time.time_ns, lambda loop: WALL_START_US * 1_000 + int(loop.time() * 1e9))),
        (os, "urandom", _forbidden("os.urandom", os.urandom)),
        (uuid, "uuid4", _forbidden("uuid.uuid4", uuid.uuid4)),
        (psutil, "Process", IdleProcess),
        (random, "_urandom", _forbidden("random.SystemRandom", random._urandom)),  # type: ignore[attr-defined]
    ]
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    state, collecting = random.getstate(), gc.isenabled()
    random.seed(seed)
    gc.disable()
    gc.freeze()  # what is older than the run is not looked at in the end: that takes longer than many a run
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in saved:
            setattr(owner, name, value)
        random.setstate(state)
        # Coroutines of killed processes are closed here, long after the loop: what their ``finally`` does is void.
        with void():
            gc.collect()
        gc.unfreeze()
        if collecting:
            gc.enable()


@contextmanager
def void() -> Iterator[None]:
    """What coroutines do when they are closed because the run is over has no effect.

    Errors that nobody can catch are not reported, and tasks are refused: asyncio would put them into the loop of the
    interpreter, which never runs, and keeps them and their whole world for ever.
    """
    hook, running = sys.unraisablehook, asyncio._get_running_loop()
    sys.unraisablehook = lambda unraisable: None
    asyncio._set_running_loop(_NOWHERE)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        sys.unraisablehook = hook


_NOWHERE = SimLoop()
_NOWHERE.close()
