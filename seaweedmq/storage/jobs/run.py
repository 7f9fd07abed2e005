"""Where the parts of a job run: one after another here, or wherever the caller can."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from seaweedmq.errors import SeaweedMQError

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do in all, bytes."""


class Run(Protocol):
    """Does something to each item, in any order, perhaps on other machines; gives each with its result as it comes."""

    def __call__(self, do: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R]]: ...


def one_after_another(do: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R]]:
    """A ``Run`` in this thread."""
    for item in items:
        yield item, do(item)


def no_progress(done: int, total: int) -> None:
    """Nobody looks."""


def attempt(do: Callable[..., R], *arguments: Any) -> R | SeaweedMQError:
    """The result, or the error as a value: one part that fails is no reason to do the others again."""
    try:
        return do(*arguments)
    except SeaweedMQError as error:
        return error
