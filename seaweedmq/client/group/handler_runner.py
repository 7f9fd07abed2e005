"""Concurrent calls of a user's handler, never two for records of one key."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeAlias

from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.dispatcher import Dispatcher
from seaweedmq.client.subscribe.messages import Message

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Message], Any]
"""A function, which runs in a thread, or a coroutine function, which runs as a task."""


class HandlerRunner:
    """A run of ``handle()``."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        fetch: Callable[[], Awaitable[bool]],
        config: ClientConfig,
        handler: Handler,
        concurrency: int,
    ) -> None:
        """Make a run of up to ``concurrency`` calls; ``fetch`` waits for records, and returns False at the end."""
        self._dispatcher = dispatcher
        self._fetch = fetch
        self._config = config
        self._handler = handler
        self._concurrency = concurrency
        call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
        self._pool: ThreadPoolExecutor | None = None
        if not (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)):
            self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="seaweedmq-handler")
        self._tasks: set[asyncio.Task[None]] = set()
        self._done = asyncio.Event()
        self._starting: asyncio.Task[Any] | None = None
        """The task that waits for records; None while there is none."""
        self._exit: BaseException | None = None
        """The first SystemExit or KeyboardInterrupt of a handler, which ends the run."""

    @property
    def running(self) -> int:
        """The number of running handlers."""
        return len(self._tasks)

    def is_inside(self) -> bool:
        """Whether a handler of this run is the caller."""
        return _current.get() is self

    async def finished(self, timeout_s: float) -> None:
        """Return when all handlers have returned, or after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._done.wait()
        except TimeoutError:
            log.warning(
                "handlers still running: %d did not return within %g s: their records are redelivered",
                self.running,
                timeout_s,
            )

    async def run(self) -> None:
        """Call the handler until the subscription ends and all handlers have returned.

        SystemExit and KeyboardInterrupt of a handler are raised here, and its record is redelivered.
        """
        try:
            try:
                await self._start_all()
            finally:
                if not _is_cancelled():
                    await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
            self._done.set()
        if self._exit is not None:
            raise self._exit

    async def _start_all(self) -> None:
        """Start handlers until the subscription ends, or one of them ends the run."""
        slots = asyncio.Semaphore(self._concurrency)
        self._starting = task = asyncio.current_task()
        try:
            while self._exit is None and await self._start_one(slots):
                pass
        except asyncio.CancelledError:
            # The exit of a handler cancels this task; any further cancellation has to propagate.
            if self._exit is None or task is None or task.uncancel() > 0:
                raise
        finally:
            self._starting = None

    async def _start_one(self, slots: asyncio.Semaphore) -> bool:
        await slots.acquire()
        message = None
        while message is None:
            if not await self._fetch():
                return False
            message = self._dispatcher.for_handler()
        task = asyncio.create_task(self._handle(message))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_done, slots, message))
        return True

    def _on_done(self, slots: asyncio.Semaphore, message: Message, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:  # Possibly before the handler was called.
            self._dispatcher.reject([message], 0.0, "cancelled")
        self._dispatcher.handler_ended(message)
        self._tasks.discard(task)
        slots.release()

    async def _handle(self, message: Message) -> None:
        _current.set(self)
        error = await self._outcome(message)
        if error is None:
            return
        delay_s = self._delay_s(message.deliveries)
        log.warning("handler failed: record of %s; retrying in %g s", message.topic, delay_s, exc_info=error)
        self._dispatcher.reject([message], delay_s, f"{type(error).__name__}: {error}")
        # A task or thread that raises one of these would end the event loop, and with it the whole client.
        if isinstance(error, SystemExit | KeyboardInterrupt) and self._exit is None:
            self._exit = error
            if self._starting is not None:
                self._starting.cancel()

    async def _outcome(self, message: Message) -> BaseException | None:
        """Call the handler, and return its exception, if any."""
        if self._pool is not None:
            call = partial(copy_context().run, _raised, self._handler, message)
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        try:
            await self._handler(message)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return error
        except BaseException as error:  # noqa: BLE001 - any of the user's code
            return error
        return None

    def _delay_s(self, deliveries: int) -> float:
        return float(min(self._config.redelivery_s_max, self._config.redelivery_s_min * 2.0 ** min(deliveries - 1, 60)))


def _raised(handler: Handler, message: Message) -> BaseException | None:
    """Call a handler in a thread, and return its exception: a future of asyncio cannot carry a StopIteration."""
    try:
        handler(message)
    except BaseException as error:  # noqa: BLE001 - any of the user's code
        return error
    return None


_current: ContextVar[HandlerRunner | None] = ContextVar("seaweedmq_handling", default=None)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
