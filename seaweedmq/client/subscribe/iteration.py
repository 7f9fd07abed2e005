"""Asynchronous iteration that survives the cancellation of a step, as by ``asyncio.wait_for(anext(it), 1)``.

An async generator does not: an exception that passes through it ends it, and the next step reports a false end.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class Iteration(AsyncIterator[T], Generic[T]):
    """An asynchronous iterator of items that arrive in runs. One task takes from it at a time.

    ``fetch`` waits for a run, which ``pop`` returns, or returns False at the end. A repeated or cancelled call loses
    nothing.
    """

    __slots__ = ("_fetch", "_is_closed", "_pop", "_run")

    def __init__(self, fetch: Callable[[], Awaitable[bool]], pop: Callable[[], Iterator[T]]) -> None:
        self._fetch = fetch
        self._pop = pop
        self._run: Iterator[T] = iter(())
        self._is_closed = False

    async def __anext__(self) -> T:
        for item in self._run:
            return item
        while not self._is_closed and await self._fetch():
            self._run = self._pop()
            for item in self._run:
                return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End this iteration; another one may continue after the last item."""
        self._is_closed = True
        self._run = iter(())
