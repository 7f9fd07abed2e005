"""Control of garbage collection, the one source of differences between two runs of a seed."""

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tests.sim.machines.loop import SimLoop

WALL_START_US = 1_700_000_000_000_000
"""Wall clock at virtual time 0: 2023-11-14."""


@contextmanager
def deterministic() -> Iterator[None]:
    """Collect garbage only explicitly: its timing, and that of the coroutines it closes, is not simulated.

    Clocks, randomness and load need no such control: they reach the code under test through ``Environment``, and the
    linter bans code that bypasses it."""
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()  # the last collection skips objects older than the run: they take longer than many runs
    try:
        yield
    finally:
        # Closes coroutines of killed processes long after the loop ended; their ``finally`` blocks must have no effect.
        with void():
            gc.collect()
        gc.unfreeze()
        if collecting:
            gc.enable()


@contextmanager
def void() -> Iterator[None]:
    """Suppress the effects of coroutines that are closed because the run is over.

    Uncatchable errors and log records are dropped and new tasks are rejected: asyncio would put them into the
    interpreter's loop, which never runs and would keep them and their world in memory."""
    hook, running = sys.unraisablehook, asyncio._get_running_loop()
    disabled = logging.root.manager.disable
    sys.unraisablehook = lambda unraisable: None
    asyncio._set_running_loop(_NOWHERE)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # never awaited coroutines in a ``finally``
            yield
    finally:
        logging.disable(disabled)
        asyncio._set_running_loop(running)
        sys.unraisablehook = hook


_NOWHERE = SimLoop()
_NOWHERE.close()
