"""Execution of a job's parts: sequentially in this thread, or by a function of the caller."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from seaweedmq.errors import SeaweedMQError

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Function called with the bytes done and the bytes in all."""


class Run(Protocol):
    """A runner that applies a function to each item, in any order and on any machine, and yields items with results."""

    def __call__(self, do: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R]]:
        """Yield each item with the result of ``do``, in any order."""


def one_after_another(do: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R]]:
    """Apply the function to one item after another in this thread."""
    for item in items:
        yield item, do(item)


def no_progress(done: int, total: int) -> None:
    """Ignore the progress."""


def attempt(do: Callable[..., R], *arguments: Any) -> R | SeaweedMQError:
    """Return the result, or the error as a value, so that one failed part does not fail the others."""
    try:
        return do(*arguments)
    except SeaweedMQError as error:
        return error
