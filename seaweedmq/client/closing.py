"""Blocks that end with ``close()``, and the shared task behind any number of concurrent calls."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self


class ClosingContext(ABC):
    """An asynchronous context manager that closes at the end of the block."""

    @abstractmethod
    async def close(self) -> None:
        """Close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Closing:
    """The task behind ``close()``. It keeps running if a call is cancelled, and the next call awaits it.

    Every call that awaits the end raises the task's error. If all calls were cancelled before, the next call raises
    it: lost records are not hidden. Later calls return at once.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._is_reported = False

    @property
    def has_begun(self) -> bool:
        """Whether a call began the closing."""
        return self._task is not None

    @property
    def is_done(self) -> bool:
        """Whether the closing has ended."""
        return self._task is not None and self._task.done()

    @property
    def is_reported(self) -> bool:
        """Whether the closing has ended, and a call returned or raised its outcome."""
        return self._is_reported

    async def once(self, close: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Begin the closing unless it has begun, in a task with this name, and await its end."""
        if self._is_reported:
            return
        if self._task is None:
            self._task = asyncio.create_task(close(), name=name)
        await asyncio.wait({self._task})  # A cancelled call ends here, before it counts as a report of the outcome.
        self._is_reported = True
        await self._task
