"""Many seeds, one after another or in several processes."""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.sim.world import simulate

TAIL_LINES = 60
SEEDS_PER_PROCESS = 200
"""Then a fresh one goes on, so that hours of play need no more memory than minutes."""
PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """What is told of a seed that broke a promise."""

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


def _play(seed: int) -> tuple[int, Failure | None]:
    report = simulate(seed)
    failure = Failure(seed, [str(v) for v in report.violations], report.log[-TAIL_LINES:])
    return seed, None if report.ok else failure


@contextmanager
def _played(seeds: Sequence[int], processes: int) -> Iterator[Iterator[tuple[int, Failure | None]]]:
    """Results as they come; in order if there is one process."""
    if processes == 1:
        yield map(_play, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield pool.imap_unordered(_play, seeds)


def play_all(seeds: Sequence[int], processes: int, *, keep_going: bool) -> int:
    """Print how it goes, and each failure; 0 if there is none."""
    failed: list[int] = []
    began = told = time.monotonic()
    played = 0
    with _played(seeds, processes) as results:
        for _, failure in results:
            played += 1
            if failure:
                failed.append(failure.seed)
                failure.print(0 if keep_going else TAIL_LINES)
                if not keep_going:
                    break
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                print(f"{played:,} of {len(seeds):,} seeds, {len(failed)} failed, {told - began:.0f} s", flush=True)
    print(f"{played:,} seeds in {time.monotonic() - began:.1f} s, failed: {sorted(failed) or 'none'}")
    return 1 if failed else 0
