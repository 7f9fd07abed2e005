"""Permits to read files, and how they are revoked."""

import asyncio
from collections.abc import AsyncGenerator

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.read_permit import ReadPermit
from seaweedmq.storage.logs.log_scan import Chunk


async def chunks() -> AsyncGenerator[Chunk, None]:
    yield Chunk(3, b"abc")


async def test_an_evicted_turn_gives_nothing_though_it_has_something_left() -> None:
    """The rest may be evicted while its subscriber waits for memory to send it."""
    budget = MemoryBudget(100)
    turn = ReadPermit(budget, 100, 100)
    await turn.begin(chunks())
    assert await turn.more()
    turn.offer()
    waiting = asyncio.create_task(budget.take(100))
    await asyncio.sleep(0)
    assert turn.evicted
    assert not await turn.more()
    await waiting
    await turn.end()
    assert budget.used == 100, "what the waiting one took"
