"""Tasks with an owner: no failure is lost, and no task outlives its owner."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class Supervisor:
    """The tasks of one owner. ``failed`` has the first failure, which the owner's owner watches.

    A task that ends by itself is a failure unless it ``may_end``. A task that raises always is.
    """

    def __init__(self, name: str, failed: "asyncio.Future[None] | None" = None) -> None:
        self.failed: asyncio.Future[None] = failed or asyncio.get_running_loop().create_future()
        """Future that ends with the first unexpected error."""
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def child(self, name: str) -> "Supervisor":
        """Return a supervisor for tasks that end earlier, and that reports failures to the same future."""
        return Supervisor(f"{name} of {self._name}", self.failed)

    def spawn(self, work: Coroutine[Any, Any, T], name: str, *, may_end: bool = False) -> "asyncio.Task[T]":
        """Run a task until it ends, or until :meth:`stop`."""
        task = asyncio.create_task(work, name=f"{name} of {self._name}")
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, may_end))
        return task

    def brief(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """Run a task that may end, as :meth:`spawn` with ``may_end``."""
        return self.spawn(work, name, may_end=True)

    def wind_down(self) -> None:
        """Allow all tasks to end by themselves from now on."""
        self._stopping = True

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _ended(self, may_end: bool, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error: BaseException | None
        if task.cancelled():
            in_order = may_end or self._stopping
            error = AssertionError(f"{task.get_name()} was cancelled before its time")
        else:
            in_order = (may_end or self._stopping) and task.exception() is None
            error = task.exception() or AssertionError(f"{task.get_name()} ended by itself")
        if not in_order and not self.failed.done():
            log.critical("%s failed", task.get_name(), exc_info=error)
            self.failed.set_exception(error)
