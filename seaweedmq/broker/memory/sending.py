"""Memory of messages on their way to subscribers: gRPC gets no large message before its memory is reserved."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from seaweedmq.broker.memory.broker_memory import COPIES
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES

MEMORY_WAIT_S_MAX = 10.0
"""Longest wait in seconds of a large message for memory. Beyond it the stream is rejected."""
STALL_S = 1.0
"""Time in seconds after which an unread message counts as stalled: its subscriber may never read it."""
STALLED_PART = 2
"""Divisor of the memory for logs that gives the largest part for stalled messages."""


class Sending:
    """The memory of messages that gRPC holds.

    gRPC cannot take a message back from a peer that does not read. Stalled messages are charged to the caches of the
    logs instead, so that they do not block other subscribers. Small messages need no memory here: each stream has
    reserved it.
    """

    def __init__(self, budget: MemoryBudget, logs: MemoryBudget) -> None:
        self._budget = budget
        self._logs = logs
        self.stalled_bytes = 0
        """The bytes of stalled messages, charged to the caches of the logs."""

    def take_now(self, message_bytes: int) -> int | None:
        """Reserve memory for a message and return its size for ``writing``; None if there is none at the moment."""
        if message_bytes <= SMALL_MESSAGE_BYTES:
            return 0
        size = self._size(message_bytes)
        return size if self._budget.take_now(size) else None

    async def take(self, message_bytes: int) -> int:
        """Reserve memory for a message, waiting for it, and return its size for ``writing``.

        Raises ResourceExhausted if other subscribers hold all memory for ``MEMORY_WAIT_S_MAX``.
        """
        if message_bytes <= SMALL_MESSAGE_BYTES:
            return 0
        size = self._size(message_bytes)
        try:
            async with asyncio.timeout(MEMORY_WAIT_S_MAX):
                await self._budget.take(size)
        except TimeoutError:
            raise ResourceExhausted(
                f"broker holds {self._budget.used + self.stalled_bytes} bytes for subscribers that granted credit but "
                f"do not read, and has no memory for {message_bytes} more: let them read, grant less credit, "
                "or raise memory_bytes_max"
            ) from None
        return size

    @contextmanager
    def writing(self, size_bytes: int) -> Iterator[None]:
        """Return the memory of a message at the end of the block that writes it."""
        if not size_bytes:
            yield
            return
        held = _Held(size_bytes)
        self._watch(held)
        try:
            yield
        finally:
            held.timer.cancel()
            if held.stalled:
                self.stalled_bytes -= size_bytes
                self._logs.give(size_bytes)
            else:
                self._budget.give(size_bytes)

    def _watch(self, held: "_Held") -> None:
        held.timer = asyncio.get_running_loop().call_later(STALL_S, self._stall, held)

    def _stall(self, held: "_Held") -> None:
        room = self._logs.limit // STALLED_PART - self.stalled_bytes
        if held.size_bytes <= room and self._logs.take_now(held.size_bytes):
            held.stalled = True
            self.stalled_bytes += held.size_bytes
            self._budget.give(held.size_bytes)
        else:  # retry: the logs may have room later
            self._watch(held)

    def _size(self, message_bytes: int) -> int:
        return min(COPIES * message_bytes, self._budget.limit)


class _Held:
    """The memory of one message."""

    __slots__ = ("size_bytes", "stalled", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.stalled = False
