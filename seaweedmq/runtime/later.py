"""An awaitable whose work begins when it is awaited."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """An awaitable that may be dropped, unlike a coroutine, which warns if it is collected without being awaited."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work().__await__()
