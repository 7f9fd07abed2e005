"""Wake-ups for any number of waiting coroutines, without a lock and without cost when nobody waits."""

import asyncio


class Signal:
    """``wait`` returns at the next ``fire`` after it was called. Callers re-check their condition in a loop."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def fire(self) -> None:
        """Wake all that wait now."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self) -> None:
        """Until the next ``fire``."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
