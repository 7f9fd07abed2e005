"""Async generators run their clean-up at a time that the caller chooses."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from seaweedmq.runtime.closing import close, closing


class Numbers:
    """A generator that reports its clean-up."""

    def __init__(self) -> None:
        self.is_closed = False

    async def count(self) -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            await asyncio.sleep(1)
            self.is_closed = True


class Plain:
    """An iterator that has nothing to clean up."""

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return 1


async def test_leaving_the_block_early_cleans_up_and_what_has_finished_or_can_not_be_closed_is_no_error() -> None:
    numbers = Numbers()
    async with closing(numbers.count()) as counted:
        assert await anext(counted) == 0
        assert not numbers.is_closed
    assert numbers.is_closed
    assert await anext(counted, None) is None
    numbers = Numbers()
    async with closing(numbers.count()) as counted:
        assert [number async for number in counted] == [0, 1, 2]
    await close(counted)
    async with closing(Plain()) as plain:
        assert await anext(plain) == 1


async def test_an_error_cleans_up_and_goes_on() -> None:
    numbers = Numbers()

    async def break_off() -> None:
        async with closing(numbers.count()) as counted:
            await anext(counted)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await break_off()
    assert numbers.is_closed
