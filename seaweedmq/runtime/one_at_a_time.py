"""Work for a thread that runs one call at a time, to limit memory."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class OneAtATime:
    """A queue for calls. A call that began ends before the next begins, even if its caller no longer waits."""

    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore()

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread; return its result or raise its error."""
        await self._semaphore.acquire()
        running = asyncio.create_task(asyncio.to_thread(work))
        running.add_done_callback(lambda _: self._semaphore.release())
        return await asyncio.shield(running)
