"""Blocking classes and methods, derived from those of the asyncio API: one signature and one docstring for both."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from seaweedmq.client.blocking.background import Background

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class BlockingContext(ABC):
    """A context manager that closes at the end of the block."""

    @abstractmethod
    def close(self) -> None:
        """Close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def blocking(method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Derive a blocking method from a coroutine method of the core.

    The class has the core in ``_core`` and the client's thread in ``_background``. An interrupt cancels the coroutine.
    """

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        background: Background = self._background
        return background.run(method(self._core, *args, **kwargs))

    return run


def documented_as(method: Callable[..., Any]) -> Callable[[F], F]:
    """Copy the docstring of the core's ``method`` to a blocking method that is not derived."""

    def document(own: F) -> F:
        own.__doc__ = method.__doc__
        return own

    return document
