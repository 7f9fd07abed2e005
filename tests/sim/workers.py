"""Worker processes that play one item after another; one that dies or hangs costs its item, not the run."""

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

ITEMS_PER_PROCESS = 500
"""Items after which a new process takes over: memory that libraries keep (Arrow's pools, heap fragments) ends with the
old."""
START_S_MAX = 60.0
"""Seconds until a process has imported everything, on a busy machine."""
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Died:
    """The fate of a process that returned no result."""

    reason: str


class _Worker(Generic[T]):
    def __init__(self, play: Callable[[T], Any], folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(play, theirs, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.item: T | None = None
        self.began = 0.0
        self.items = 0

    def give(self, item: T) -> None:
        self.item, self.began = item, time.monotonic()
        self.items += 1
        self.pipe.send(item)

    def results(self, *, is_ready: bool, kill_s: float) -> Iterator[Any]:
        """Yield the result of the item, once it is known."""
        if is_ready:
            try:
                yield self.pipe.recv()
            except EOFError:
                self.process.join(LOOK_S)
                yield Died(f"its process ended with {self.process.exitcode}")
        elif time.monotonic() - self.began > kill_s + (START_S_MAX if self.items == 1 else 0):
            yield Died(f"no end, and no answer, within {kill_s:.0f} s: its process was killed")

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join(LOOK_S)
        self.process.kill()
        self.process.join()


def _work(play: Callable[[T], Any], pipe: Connection, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    tempfile.tempdir = folder
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        pipe.send(play(item))


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Provide a directory for temporary files that is removed at any kind of end."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="seaweedmq-sim-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before


def play_in_processes(
    play: Callable[[T], R], items: Sequence[T], processes: int, *, kill_s: float
) -> Iterator[tuple[T, R | Died]]:
    """Yield results as they come. ``play`` is a function that another process can import."""
    waiting = list(reversed(items))
    workers: list[_Worker[T]] = []
    with temporary_folder() as folder:
        try:
            while waiting or workers:
                while waiting and len(workers) < processes:
                    workers.append(_Worker(play, folder))
                    workers[-1].give(waiting.pop())
                ready = wait([w.pipe for w in workers], LOOK_S)
                for worker in list(workers):
                    item = worker.item
                    assert item is not None
                    for result in worker.results(is_ready=worker.pipe in ready, kill_s=kill_s):
                        if waiting and not isinstance(result, Died) and worker.items < ITEMS_PER_PROCESS:
                            worker.give(waiting.pop())
                        else:
                            worker.end()
                            workers.remove(worker)
                        yield item, result
        finally:
            for worker in workers:
                worker.end()
