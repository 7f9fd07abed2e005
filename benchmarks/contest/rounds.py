"""The rounds: every system once per round, in a rotating order, with as many servers as its suites need."""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.contest.errors import Failed, Missing
from benchmarks.contest.results import Failure, Results, Sample
from benchmarks.contest.suites import FSYNC, SUITES, Sizes
from benchmarks.contest.systems import SYSTEMS
from benchmarks.contest.trial import trial


def equipped(systems: Sequence[str], *, quick: bool) -> Results:
    """Return results without samples, but with the systems that take part, or their reasons not to."""
    versions: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for name in systems:
        try:
            versions[name] = SYSTEMS[name].server.equip()
        except Missing as missing:
            skipped[name] = str(missing)
    return Results(time.strftime("%Y-%m-%d"), _machine(), quick, versions, skipped)


def play(
    results: Results, suites: Sequence[str], sizes: Sizes, rounds: int, directory: Path
) -> Iterator[Sample | Failure]:
    """Yield results as they arrive. A suite that fails ends, and the other suites continue."""
    for turn in range(1, rounds + 1):
        for system in in_turn(list(results.versions), turn):
            for fsync in (False, True):
                names = [name for name in suites if (name in FSYNC) == fsync]
                if names:
                    yield from _with_server(system, turn, names, sizes, fsync=fsync, directory=directory)


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """Return the order of a round, from 1 on, rotated so that no system always runs after the same other."""
    first = (turn - 1) % max(1, len(names))
    return [*names[first:], *names[:first]]


def _with_server(
    system: str, turn: int, suites: Sequence[str], sizes: Sizes, *, fsync: bool, directory: Path
) -> Iterator[Sample | Failure]:
    try:
        with trial(system, turn, fsync=fsync, directory=directory) as started:
            for name in suites:
                try:
                    yield from SUITES[name](started, sizes)
                except Failed as failed:
                    yield Failure(turn, system, name, str(failed))
    except Failed as failed:
        yield Failure(turn, system, "start", str(failed))


def _machine() -> str:
    memory_gb = psutil.virtual_memory().total / 1e9
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {system}, load average {os.getloadavg()[0]:.1f} before the start"
    )
