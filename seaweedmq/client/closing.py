"""One closing of something, which any number of ``close()`` calls await."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Closing:
    """The task behind ``close()``. A call that is cancelled leaves it running, and the next call awaits the same.

    Every call that awaits the end raises what it failed with. If all of them were cancelled before, the next call does:
    records that were lost meanwhile are not hidden. Later calls return at once.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._is_reported = False

    @property
    def has_begun(self) -> bool:
        """Whether a call began it."""
        return self._task is not None

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._task is not None and self._task.done()

    @property
    def is_reported(self) -> bool:
        """Whether it has ended, and a call returned or raised its outcome."""
        return self._is_reported

    async def once(self, close: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Begin it unless it has begun, and await its end.

        Raises:
            BaseException: If ``close`` raised it and no earlier call did.
        """
        if self._is_reported:
            return
        if self._task is None:
            self._task = asyncio.create_task(close(), name=name)
        await asyncio.wait({self._task})  # a cancelled call ends here, so that what follows is the outcome
        self._is_reported = True
        await self._task
