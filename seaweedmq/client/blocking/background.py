"""The thread behind the synchronous API: one event loop per client, with its end by close, exit or fork."""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import uvloop

from seaweedmq.errors import Closed, InvalidArgument, fresh
from seaweedmq.runtime.process.forking import inherited, leave_alone_in_children

T = TypeVar("T")
_running: "weakref.WeakSet[Background]" = weakref.WeakSet()


class Background:
    """A thread with an event loop that runs coroutines.

    Args:
        on_exit: Called when the interpreter ends before :meth:`stop`.
        on_fork: Called in a child process, where neither the thread nor the connections exist.
    """

    def __init__(self, on_exit: Callable[[], None], on_fork: Callable[[Closed], None]) -> None:
        self.on_exit = on_exit
        self.on_fork = on_fork
        self._closed: Closed | None = None
        self._starting = threading.Lock()
        """The lock held while a coroutine is passed to the loop, so that none arrives after the end."""
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="seaweedmq", daemon=True)
        self._thread.start()
        _running.add(self)
        leave_alone_in_children(self)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._run_loop():
                pass
        finally:
            self._cancel_everything()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def _run_loop(self) -> bool:
        """Run until :meth:`stop`. Return False if a user's callback raised an exception that ends a loop too early."""
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            message = f"a callback raised {type(error).__name__}, which has no effect in the client's thread"
            self.loop.call_exception_handler({"message": message, "exception": error})
            return self._closed is not None
        return True

    def _cancel_everything(self) -> None:
        """Cancel all tasks, so that their waiters get an error."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    @property
    def is_stopped(self) -> bool:
        """Whether the loop has ended: :meth:`stop` was called, or this is a child process."""
        return self._closed is not None

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine; Closed if the client was closed, or this is a child process."""
        try:
            with self._starting:
                if self._closed is not None:
                    raise fresh(self._closed)
                self.check_thread()
                return asyncio.run_coroutine_threadsafe(_carrying_exit(coroutine), self.loop)
        except BaseException:
            coroutine.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result. An interrupt (Ctrl-C) cancels it."""
        future = self.start(coroutine)
        try:
            return self.wait(future)
        except BaseException:
            future.cancel()
            raise

    def wait(self, future: Future[T]) -> T:
        """Wait for a started coroutine, and return its result; Closed if :meth:`stop` ended it.

        An interrupt (Ctrl-C) leaves it running.
        """
        try:
            return future.result()
        except CancelledError:
            if self._closed is None:
                raise
            raise fresh(self._closed) from None
        except _Exit as carried:
            raise carried.error from None

    def check_thread(self) -> None:
        """Raise InvalidArgument in the loop's thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise InvalidArgument(
                "callbacks of futures and coroutine handlers run in the client's thread and must not wait for the "
                "client: use another thread"
            )

    def stop(self) -> None:
        """Cancel all tasks and end the thread. Idempotent."""
        with self._starting:
            if self._closed is not None:
                return
            self._closed = Closed("the client is closed: connect again")
            self.loop.call_soon_threadsafe(self.loop.stop)
        _running.discard(self)
        self._thread.join()

    def after_fork(self) -> None:
        """Make every call raise ``Closed`` in a child process."""
        self._starting = threading.Lock()  # A thread of the parent may have held the old one.
        self._closed = Closed(inherited(os.getppid()))
        self.on_fork(self._closed)


class _Exit(Exception):
    """A carrier of a user's SystemExit or KeyboardInterrupt to the calling thread: in a task it would end the loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def _carrying_exit(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise _Exit(error) from None


def _after_fork() -> None:
    for background in list(_running):
        background.after_fork()
    _running.clear()


def _at_exit() -> None:
    for background in list(_running):
        background.on_exit()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
