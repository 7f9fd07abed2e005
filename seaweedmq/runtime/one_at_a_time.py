"""Work for a thread of which only one piece may be under way, for what it holds in memory."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class OneAtATime:
    """Pieces wait for their turns. One that began ends before the next begins, even if nobody waits for it any more."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore()

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises, run in a thread."""
        await self._turn.acquire()
        running = asyncio.create_task(asyncio.to_thread(work))
        running.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(running)
