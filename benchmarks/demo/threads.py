"""Threads for clients that block long after their cluster stopped; the process does not wait for them."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Return or raise the outcome of ``work``; a cancelled call leaves it running in a daemon thread."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            try:
                outcome.set_result(work())
            except Exception as error:  # noqa: BLE001 - passed to the waiting task
                outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(outcome)
