"""Blocking methods derived from coroutine methods: one signature and one docstring for both APIs."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from seaweedmq.client.blocking.background import Background

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


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
