"""Closing of async generators at a definite time instead of the garbage collector's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


async def close(iterator: AsyncIterator[T]) -> None:
    """Run the iterator's clean-up code, if it has any. A finished iterator is ignored."""
    aclose = getattr(iterator, "aclose", None)
    if aclose is not None:
        await aclose()


@asynccontextmanager
async def closing(iterator: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close the iterator at the end of the block, however it ends."""
    try:
        yield iterator
    finally:
        await close(iterator)
