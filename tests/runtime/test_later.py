"""Deferred work begins when it is awaited, and leaves nothing if it never is."""

import asyncio
import gc
import warnings
from functools import partial

import pytest

from seaweedmq.runtime.later import Later


async def doubled(number: int, done: list[int]) -> int:
    done.append(number)
    await asyncio.sleep(0)
    return 2 * number


async def test_it_begins_when_it_is_awaited_and_ends_as_the_work_does() -> None:
    done: list[int] = []
    later = Later(partial(doubled, 7, done))
    await asyncio.sleep(0)
    assert done == []
    assert await later == 14
    assert done == [7]
    with pytest.raises(TypeError, match="unsupported operand"):
        await Later(partial(doubled, object(), done))  # type: ignore[arg-type]


def test_what_is_never_awaited_is_dropped_in_silence() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        Later(partial(doubled, 7, []))
        gc.collect()
    assert heard == []
