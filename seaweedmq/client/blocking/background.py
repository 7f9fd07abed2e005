"""The thread behind the synchronous face: one event loop per client, and what it takes to leave it in any way."""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from seaweedmq.errors import Closed, InvalidArgument, fresh

T = TypeVar("T")
_running: "weakref.WeakSet[Background]" = weakref.WeakSet()


class Background:
    """Runs coroutines in a thread of its own.

    Args:
        on_exit: called when the interpreter ends before :meth:`stop`.
        on_fork: called in a child process, where neither the thread nor the connections exist.
    """

    def __init__(self, on_exit: Callable[[], None], on_fork: Callable[[Closed], None]) -> None:
        self.on_exit = on_exit
        self.on_fork = on_fork
        self._closed: Closed | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="seaweedmq", daemon=True)
        self._thread.start()
        _running.add(self)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine.

        Raises:
            Closed: the client was closed, or this is a child process.
            InvalidArgument: called from the loop's own thread, in a callback, where waiting would wait for itself.
        """
        try:
            if self._closed is not None:
                raise fresh(self._closed)
            if self.is_current_thread():
                raise InvalidArgument(
                    "a callback of a future may not wait for the client, whose thread it runs in: use another thread"
                )
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except BaseException:
            coroutine.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; an interrupt (Ctrl-C) cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def is_current_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread. Idempotent."""
        if self._closed is None:
            self._closed = Closed("the client is closed: connect again")
            _running.discard(self)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def after_fork(self) -> None:
        """In a child process: everything raises from now on."""
        self._closed = Closed(
            f"this client was made by process {os.getppid()} and can not be used in its child {os.getpid()}: connect "
            "after fork(), or start processes with spawn"
        )
        self.on_fork(self._closed)


def _after_fork() -> None:
    for background in list(_running):
        background.after_fork()
    _running.clear()


def _at_exit() -> None:
    for background in list(_running):
        background.on_exit()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
