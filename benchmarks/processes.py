"""Processes seen from outside, their CPU time and memory; and workers: programs of the benchmarks that answer in JSON.

A worker is a client that is measured, or must not be delayed by the suite's other work.
"""

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import psutil
import uvloop

from benchmarks.publish import MB

CORE = "one core"
LIBRARIES = "python with grpc and pyarrow"
"""A program that only imports the libraries that a broker needs."""
IMPORTS = "import grpc.aio, pyarrow, numpy, sys; print(flush=True); sys.stdin.read()"


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far, user and system; the kernel counts them in steps of 10 ms."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def cpu_percents(pids: Iterable[int], seconds: float) -> list[float]:
    """Return the CPU of each process during the next so many seconds, in % of one core."""
    measured = list(pids)
    before = [cpu_s(pid) for pid in measured]
    began = time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - began
    return [100 * (cpu_s(pid) - cpu_s_before) / elapsed_s for pid, cpu_s_before in zip(measured, before, strict=True)]


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return float(psutil.Process(pid).memory_info().rss) / MB


def bare_python() -> tuple[float, float]:
    """Return seconds from the start of ``LIBRARIES`` until everything is imported, and the MB it holds then."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", IMPORTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        started_s = time.perf_counter() - began
        held_mb = resident_mb(process.pid)
        process.stdin.close()
    return started_s, held_mb


def figures(values: Iterable[float]) -> list[float]:
    """Round figures for the details of a measure."""
    return [round(value, 2) for value in values]


def run_worker(module: str, **arguments: Any) -> Any:
    """Run ``python -m module`` to its end and return its answer; both ways use JSON.

    Raises:
        CalledProcessError: If it failed; stderr has the reason.
    """
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def answer(work: Callable[..., Awaitable[Any]]) -> None:
    """Run the main program of a worker: ``work`` gets the arguments by name."""

    async def run() -> Any:
        return await work(**json.loads(sys.argv[1]))

    print(json.dumps(uvloop.run(run())), flush=True)
