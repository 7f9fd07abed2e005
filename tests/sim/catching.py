"""Collection of all mutants and the search for the first seed that catches each."""

import importlib
import inspect
import pkgutil
import time
from collections.abc import Sequence
from contextlib import closing

import pytest

from tests.sim import mutants
from tests.sim.mutants.mutants import DATA_RULES, Break
from tests.sim.watchdog import PATIENCE, TooSlow, watched
from tests.sim.workers import Died, play_in_processes
from tests.sim.world import simulate

BLOCK = 10
"""Seeds that one process tries in a row for one variant."""


def every_mutant() -> dict[str, Break]:
    """Return all mutants by name: the public functions of the modules in ``mutants``."""
    modules = [importlib.import_module(m.name) for m in pkgutil.iter_modules(mutants.__path__, f"{mutants.__name__}.")]
    return {
        name: function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def is_caught(name: str, seed: int) -> bool:
    """Whether the seed keeps every promise with the unchanged code and breaks one about data with the mutant."""
    with pytest.MonkeyPatch.context() as patch:
        every_mutant()[name](patch)
        rules = {violation.rule for violation in simulate(seed).violations}
    return bool(rules & DATA_RULES) and simulate(seed).ok


def _first_of_block(block: tuple[str, Sequence[int]]) -> int | None:
    name, seeds = block
    for seed in seeds:
        try:
            with watched(f"{name} with seed {seed}", PATIENCE):
                if is_caught(name, seed):
                    return seed
        except TooSlow:
            continue
    return None


def find_mutants(names: Sequence[str], seeds: Sequence[int], processes: int) -> int:
    """Print the table of CAUGHT_BY; return 0 if one of the seeds catches every mutant."""
    missing = list(names) or list(every_mutant())
    caught: dict[str, int] = {}
    not_tried: dict[str, str] = {}
    began = time.monotonic()
    for first in range(0, len(seeds), BLOCK):
        blocks = [(name, seeds[first : first + BLOCK]) for name in missing]
        with closing(play_in_processes(_first_of_block, blocks, processes, kill_s=BLOCK * PATIENCE.kill_s)) as found:
            for (name, _), seed in found:
                if isinstance(seed, Died):  # most likely the mutant patches a name that no longer exists
                    not_tried[name] = seed.reason
                elif seed is not None:
                    caught[name] = seed
                    print(f"    {name!r}: {seed},  # after {time.monotonic() - began:.0f} s", flush=True)
        missing = [name for name in missing if name not in caught and name not in not_tried]
        if not missing:
            break
    print("\nCAUGHT_BY = {")
    for name in every_mutant():
        if name in caught:
            print(f'    "{name}": {caught[name]},')
    print("}")
    for name in missing:
        print(f"!! {name} went unnoticed in {len(seeds)} seeds")
    for name, reason in not_tried.items():
        print(f"!! {name} could not be tried: {reason}")
    return 1 if missing or not_tried else 0
