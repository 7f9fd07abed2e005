"""Campaign of many seeds, in this process or in several."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from tests.sim.watchdog import PATIENCE, Patience, TooSlow, watched
from tests.sim.workers import Died, play_in_processes, temporary_folder
from tests.sim.world import Report, simulate

TAIL_LINES = 60
PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The report of a seed that broke a promise."""

    seed: int
    violations: list[str]
    tail: list[str]
    """The end of its event log."""

    def print(self, tail: int) -> None:
        print(f"seed {self.seed} FAILED{f', the last {tail} events:' if tail else ''}")
        for line in self.tail[len(self.tail) - tail :]:
            print("  " + line)
        for violation in self.violations[:20]:
            print(f"  !! {violation}")
        print(f"replay with: make sim SEED={self.seed}", flush=True)


Simulate = Callable[[int], Report]


def play(seed: int, *, simulate: Simulate = simulate, patience: Patience = PATIENCE) -> Failure | None:
    """Play one seed under the watchdog."""
    try:
        with watched(f"seed {seed}", patience):
            report = simulate(seed)
    except TooSlow as error:
        return Failure(seed, [str(error)], [])
    return None if report.ok else Failure(seed, [str(v) for v in report.violations], report.log[-TAIL_LINES:])


def _in_this_process(
    seeds: Sequence[int], playing: Callable[[int], Failure | None]
) -> Iterator[tuple[int, Failure | None]]:
    with temporary_folder():
        for seed in seeds:
            yield seed, playing(seed)


def play_all(
    seeds: Sequence[int],
    processes: int,
    *,
    keep_going: bool,
    simulate: Simulate = simulate,
    patience: Patience = PATIENCE,
) -> int:
    """Print progress and each failure; return 0 if there is none. A single process plays the seeds in order."""
    playing = functools.partial(play, simulate=simulate, patience=patience)
    failed: list[int] = []
    began = told = time.monotonic()
    played = 0
    results: Iterator[tuple[int, Failure | Died | None]] = (
        _in_this_process(seeds, playing)
        if processes == 1
        else play_in_processes(playing, seeds, processes, kill_s=patience.kill_s)
    )
    with closing(results):
        for seed, result in results:
            played += 1
            failure = Failure(seed, [result.reason], []) if isinstance(result, Died) else result
            if failure:
                failed.append(seed)
                failure.print(0 if keep_going else min(TAIL_LINES, len(failure.tail)))
                if not keep_going:
                    break
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                print(f"{played:,} of {len(seeds):,} seeds, {len(failed)} failed, {told - began:.0f} s", flush=True)
    print(f"{played:,} seeds in {time.monotonic() - began:.1f} s, failed: {sorted(failed) or 'none'}")
    return 1 if failed else 0
