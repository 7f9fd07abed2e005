"""A process for each unit of work: its memory, threads and caches do not affect the next."""

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from benchmarks.contest.errors import Failed

Found = TypeVar("Found")
SPAWN = multiprocessing.get_context("spawn")
"""A new interpreter. A forked one would have its parent's memory and, of gRPC, missing threads."""
READY_TIMEOUT_S = 90.0
WORK_TIMEOUT_S = 400.0


class ClientProcess(Generic[Found]):
    """A process that begins its work at once; leaving the ``with`` block kills it.

    Args:
        work: A function of a module, with arguments that can be pickled.
    """

    def __init__(self, work: Callable[..., Found], **arguments: Any) -> None:
        self._name = work.__name__
        self._inbox, outbox = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(target=_run, args=(outbox, work, arguments))
        self._process.start()
        outbox.close()

    def expect(self, ready: Event) -> None:
        """Return when the work has set ``ready``, which is one of its arguments. Raises Failed if it does not."""
        if not ready.wait(READY_TIMEOUT_S):
            raise Failed(f"{self._name} was not ready within {READY_TIMEOUT_S:.0f} s")

    def result(self, timeout_s: float = WORK_TIMEOUT_S) -> Found:
        """Return the result of the work. Raises Failed if it raised, ended or takes longer."""
        if not self._inbox.poll(timeout_s):
            raise Failed(f"{self._name} took longer than {timeout_s:.0f} s")
        try:
            found: Found | Failed = self._inbox.recv()
        except EOFError:
            self._process.join()
            raise Failed(f"{self._name} ended with exit status {self._process.exitcode}") from None
        if isinstance(found, Failed):
            raise found
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self._inbox.close()


def _run(outbox: Connection, work: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        outbox.send(work(**arguments))
    except Exception as error:  # noqa: BLE001 - passed to the waiting process; each client has its own kinds
        traceback.print_exc()
        outbox.send(Failed(f"{work.__name__}: {type(error).__name__}: {error}"))
