"""Tests of the campaign runner: a seed that hangs or dies is reported and costs one seed, memory stays flat, nothing
leaks."""

import ctypes
import os
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.sim.campaign import play_all
from tests.sim.machines.loop import SimLoop
from tests.sim.watchdog import Patience
from tests.sim.world import Report, simulate

HASTY = Patience(tell_s=0.3, end_s=0.6, kill_s=2.0)


def _good(seed: int) -> Report:
    return Report(seed=seed, digest="", violations=[], log=[])


async def _turn_for_ever() -> None:
    while True:
        pass


def third_loops_for_ever(seed: int) -> Report:
    if seed == 3:
        loop = SimLoop()
        try:
            loop.run_until_complete(_turn_for_ever())
        finally:
            loop.close()
    return _good(seed)


def fifth_hangs_in_c(seed: int) -> Report:
    if seed == 5:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        ctypes.PyDLL(None).sleep(3600)  # holds the interpreter's lock, so that no signal handler runs
    return _good(seed)


def third_dies(seed: int) -> Report:
    if seed == 3:
        os._exit(7)
    return _good(seed)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_seed_that_never_ends_tells_where_it_stands_and_has_failed(
    processes: int, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = play_all(range(6), processes, keep_going=True, simulate=third_loops_for_ever, patience=HASTY)
    out, err = capfd.readouterr()
    assert failed == 1
    assert "seed 3 takes more than 0 s" in err
    assert "_turn_for_ever" in err, "its stack"
    assert "at 0.000 virtual s" in err, "what is pending"
    assert "!! seed 3 did not end within 1 s" in out
    assert "6 seeds in" in out
    assert "failed: [3]" in out


def test_a_seed_stuck_outside_of_python_is_killed(capfd: pytest.CaptureFixture[str]) -> None:
    assert play_all(range(6), 2, keep_going=True, simulate=fifth_hangs_in_c, patience=HASTY) == 1
    out, err = capfd.readouterr()
    assert "fifth_hangs_in_c" in err
    assert "its process was killed" in out
    assert "failed: [5]" in out


def test_a_process_that_dies_costs_one_seed(capfd: pytest.CaptureFixture[str]) -> None:
    assert play_all(range(6), 2, keep_going=True, simulate=third_dies, patience=HASTY) == 1
    out = capfd.readouterr().out
    assert "its process ended with 7" in out
    assert "failed: [3]" in out


@pytest.mark.deep
def test_nothing_is_left_in_the_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    simulate(1)
    assert list(tmp_path.iterdir()) == []
    assert play_all(range(2), 2, keep_going=False) == 0
    assert play_all(range(2), 1, keep_going=False) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
def test_memory_stays_flat() -> None:
    """A world that leaks takes some 2 MB. The seeds run twice: some need much memory briefly, which the heap keeps."""
    resident = psutil.Process()
    for seed in range(5):
        simulate(seed)
    before = resident.memory_info().rss
    for seed in (*range(5), *range(5)):
        simulate(seed)
    assert resident.memory_info().rss - before < 12 * 2**20
