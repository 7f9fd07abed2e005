"""A time limit whose timer starts only once the work waits.

Most work on the hot paths ends without waiting. ``asyncio.timeout`` costs it some 5 us for a timer that never fires.
"""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class TimeLimit(Generic[T]):
    """An awaitable that ends some work at a deadline, as ``asyncio.timeout_at`` does.

    Raises:
        TimeoutError: If the work waits for something at the deadline, on the clock of the loop.
    """

    __slots__ = ("_deadline", "_work")

    def __init__(self, work: Awaitable[T], deadline: float) -> None:
        self._work = work
        self._deadline = deadline

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        try:
            awaited = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        return (yield from self._rest(steps, awaited).__await__())

    async def _rest(self, steps: Generator[Any, Any, T], awaited: Any) -> T:
        async with asyncio.timeout_at(self._deadline):
            return await _Begun(steps, awaited)


class _Begun(Generic[T]):
    """Work that was begun and waits for ``awaited``."""

    __slots__ = ("_awaited", "_steps")

    def __init__(self, steps: Generator[Any, Any, T], awaited: Any) -> None:
        self._steps = steps
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        steps, awaited = self._steps, self._awaited
        try:
            while True:
                try:
                    sent = yield awaited
                except BaseException as error:  # noqa: BLE001 - the work decides
                    awaited = steps.throw(error)
                else:
                    awaited = steps.send(sent)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
