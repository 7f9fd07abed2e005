"""Wake-ups for any number of waiting coroutines, without a lock and without cost if none waits."""

import asyncio
from collections.abc import Callable


class Signal:
    """A signal: ``wait`` returns at the next ``fire`` after its call. Callers re-check their condition in a loop."""

    __slots__ = ("_listeners", "_waiters")

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: dict[Callable[[], None], None] = {}
        """Listeners in the order in which they were added."""

    def fire(self) -> None:
        """Wake all coroutines that wait now, and call all listeners."""
        for listener in tuple(self._listeners):
            listener()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    @property
    def has_waiters(self) -> bool:
        """Whether a coroutine waits or a listener exists."""
        return bool(self._waiters or self._listeners)

    async def wait(self, *others: "Signal") -> None:
        """Wait for the next ``fire`` of this signal, or of one of the others."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        signals = (self, *others)
        for signal in signals:
            signal._waiters.add(waiter)  # noqa: SLF001 - another of its own kind
        try:
            await waiter
        finally:
            for signal in signals:
                signal._waiters.discard(waiter)  # noqa: SLF001

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` at every ``fire`` until ``unlisten``. It must not raise.

        This is far cheaper than a task that wakes up only to find that its condition does not hold yet.
        """
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling ``listener``. Has no effect if it does not listen."""
        self._listeners.pop(listener, None)
