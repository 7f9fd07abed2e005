"""Work that begins when it is awaited."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """An awaitable that may be dropped: a coroutine that is never awaited leaves a warning when it is collected."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work().__await__()
