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

    async def wait(self, *others: "Signal") -> None:
        """Until the next ``fire`` of this one, or of one of the others."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        signals = (self, *others)
        for signal in signals:
            signal._waiters.add(waiter)  # noqa: SLF001 - another of its own kind
        try:
            await waiter
        finally:
            for signal in signals:
                signal._waiters.discard(waiter)  # noqa: SLF001
