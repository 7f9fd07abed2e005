"""The room in a publisher's buffer: its limits, and the threads and tasks that wait for room."""

import asyncio
import threading
from threading import get_ident

from seaweedmq.errors import DeadlineExceeded

BACKLOG_MAX = 2
"""Limit of batches and tables that are passed to the loop and not yet encoded."""


class NoRoom(DeadlineExceeded):
    """A full buffer, met by code in the client's thread, such as a future's callback, which must not wait."""

    def __init__(self, size: int) -> None:
        super().__init__("the send buffer is full, and a callback must not wait: send from another thread")
        self.size_bytes = size
        """The bytes that need room."""


class SendRoom:
    """Room for unacknowledged bytes, and for work that the loop has not encoded.

    :meth:`reserve`, :meth:`fill` and :meth:`add` require ``lock``, the buffer's, and the others take it.
    ``batch_bytes`` is the target size of a batch.
    """

    def __init__(self, lock: threading.Lock, bytes_max: int, batch_bytes: int) -> None:
        self._lock = lock
        self._available = threading.Condition(lock)
        self._loop_thread = get_ident()
        self._threads_waiting = 0
        self._tasks_waiting: list[asyncio.Future[None]] = []
        self._bytes_max = bytes_max
        self._reserved_bytes = 0
        self._backlog = 0
        self.batch_bytes = batch_bytes
        self.used_bytes = 0
        """The bytes taken in and not settled; the open batch counts with its limit."""
        self.is_closed = False
        """Whether the publisher was closed, which ends all waits."""

    def has(self, size: int) -> bool:
        """Whether a record or table of ``size`` bytes may begin a batch, or be one. Alone it always may."""
        free = self.used_bytes + max(self.batch_bytes, size) - self._reserved_bytes <= self._bytes_max
        return self._backlog < BACKLOG_MAX and (free or self.used_bytes == self._reserved_bytes)

    def reserve(self, size: int) -> None:
        """Reserve the limit of a batch that is opened."""
        self._reserved_bytes = size
        self.used_bytes += size

    def fill(self, size: int) -> None:
        """Replace the reservation by the size of the batch, which is passed to the loop."""
        self.used_bytes -= self._reserved_bytes
        self._reserved_bytes = 0
        self.add(size)

    def add(self, size: int) -> None:
        """Add work that is passed to the loop."""
        self.used_bytes += size
        self._backlog += 1

    def encoded(self) -> None:
        """Note that a batch or table was encoded."""
        with self._lock:
            self._backlog -= 1
        self.wake()

    def release(self, size: int) -> None:
        """Release the bytes of settled work."""
        with self._lock:
            self.used_bytes -= size
        self.wake()

    def wait(self, size: int, timeout_s: float | None) -> None:
        """Block until a record or table of ``size`` bytes may fit; DeadlineExceeded after ``timeout_s``.

        NoRoom is raised in the loop's thread, which would wait for itself.
        """
        if get_ident() == self._loop_thread:
            raise NoRoom(size)
        with self._available:
            self._threads_waiting += 1
            try:
                if not self._available.wait_for(lambda: self.is_closed or self.has(size), timeout_s):
                    raise DeadlineExceeded(
                        f"no room to send within {timeout_s:g} s: {self.used_bytes} of {self._bytes_max} bytes are "
                        "not acknowledged: slow down, or raise buffer_bytes_max"
                    )
            finally:
                self._threads_waiting -= 1

    async def available(self, size: int) -> None:
        """Wait like :meth:`wait`, in a task of the loop; limit it with ``asyncio.timeout``."""
        while not (self.is_closed or self.has(size)):
            waiting = asyncio.get_running_loop().create_future()
            self._tasks_waiting.append(waiting)
            await waiting

    def wake(self) -> None:
        """Let all that wait check again."""
        if self._threads_waiting:
            with self._available:
                self._available.notify_all()
        if self._tasks_waiting:
            waiting, self._tasks_waiting = self._tasks_waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
