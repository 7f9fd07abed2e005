"""Cost of work: wall time, processor time and memory."""

import contextlib
import resource
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import psutil

from benchmarks.contest.errors import Failed

MB = 1e6


def cpu_s(pids: Sequence[int]) -> float:
    """Return processor seconds of the processes and all their children, living or not. Raises Failed."""
    # user, system, and the same of children that ended and were waited for
    return _sum(pids, lambda process: sum(process.cpu_times()[:4]))


def resident_mb(pids: Sequence[int]) -> float:
    """Return resident memory of the processes and their children, in MB of 1,000,000 bytes. Raises Failed."""
    return _sum(pids, lambda process: process.memory_info().rss) / MB


class Watch:
    """Measures the ``with`` block: wall seconds, processor seconds of this process and of the servers, and the servers'
    memory at the end.
    """

    def __init__(self, server_pids: Sequence[int]) -> None:
        self._pids = server_pids
        self.wall_s = self.client_cpu_s = self.server_cpu_s = self.server_rss_mb = 0.0

    def __enter__(self) -> Self:
        self._server_before_s = cpu_s(self._pids)
        self._client_before_s = _own_cpu_s()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall_s = time.perf_counter() - self._began
        self.client_cpu_s = _own_cpu_s() - self._client_before_s
        self.server_cpu_s = cpu_s(self._pids) - self._server_before_s
        self.server_rss_mb = resident_mb(self._pids)


def _sum(pids: Sequence[int], figure: Callable[[psutil.Process], float]) -> float:
    try:
        parents = [psutil.Process(pid) for pid in pids]
        children = [child for parent in parents for child in parent.children(recursive=True)]
        total = sum(figure(parent) for parent in parents)
    except psutil.NoSuchProcess as gone:
        raise Failed(f"the server's process {gone.pid} is gone") from None
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):  # it just ended, and its time counts for its parent
            total += figure(child)
    return total


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
