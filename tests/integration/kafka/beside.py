"""Blocking calls beside an event loop in which the brokers' proxies run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

PATIENCE_S = 40.0


@asynccontextmanager
async def aside(manager: AbstractContextManager[object]) -> AsyncIterator[None]:
    """Run a block that begins and ends in a thread: the brokers' proxies run in this event loop."""
    stack = AsyncExitStack()
    await asyncio.to_thread(manager.__enter__)
    stack.push_async_exit(partial(asyncio.to_thread, manager.__exit__))
    async with stack:
        yield


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - threads change it
            await asyncio.sleep(0.02)
