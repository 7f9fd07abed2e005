"""What could differ between two runs of one seed, taken away: the garbage collection."""

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
    """Collect garbage only when told: its time is not the simulation's, and what ends coroutines in it is not either.

    Nothing else has to be taken away: clocks, randomness and load reach the code under test through ``Environment``,
    and the linter bans what would go around it.
    """
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()  # what is older than the run is not looked at in the end: that takes longer than many a run
    try:
        yield
    finally:
        # Coroutines of killed processes are closed here, long after the loop: what their ``finally`` does is void.
        with void():
            gc.collect()
        gc.unfreeze()
        if collecting:
            gc.enable()


@contextmanager
def void() -> Iterator[None]:
    """What coroutines do when they are closed because the run is over has no effect.

    Errors that nobody can catch are not reported, nor what is logged, and tasks are refused: asyncio would put them
    into the loop of the interpreter, which never runs, and keeps them and their whole world for ever.
    """
    hook, running = sys.unraisablehook, asyncio._get_running_loop()
    disabled = logging.root.manager.disable
    sys.unraisablehook = lambda unraisable: None
    asyncio._set_running_loop(_NOWHERE)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what a ``finally`` would have awaited
            yield
    finally:
        logging.disable(disabled)
        asyncio._set_running_loop(running)
        sys.unraisablehook = hook


_NOWHERE = SimLoop()
_NOWHERE.close()
