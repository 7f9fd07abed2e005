"""Threads for clients that block, for long once there is no cluster any more: the process does not wait for them."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises. It goes on if this is cancelled, and does not keep the process from its end."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            try:
                outcome.set_result(work())
            except Exception as error:  # noqa: BLE001 - told to who waits
                outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(outcome)
