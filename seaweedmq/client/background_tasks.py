"""The background tasks of a publisher or subscriber, which end with it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any


class BackgroundTasks:
    """The tasks of one owner, in one event loop; ``on_failed`` gets the name and the error of a task that failed."""

    def __init__(self, owner: str, on_failed: Callable[[str, BaseException], None]) -> None:
        self._owner = owner
        self._on_failed = on_failed
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine until it ends, or until :meth:`stop`."""
        task = asyncio.create_task(coroutine, name=f"{name} {self._owner}")
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_done, name))

    def _on_done(self, name: str, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failed(name, error)

    async def stop(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
