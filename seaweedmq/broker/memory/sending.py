"""What is on its way to subscribers: nothing of size is handed to gRPC before there is memory for it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from seaweedmq.broker.memory.broker_memory import COPIES
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES

MEMORY_WAIT_S_MAX = 10.0
"""A large message that gets no memory in this time is refused."""
STALL_S = 1.0
"""A subscriber that takes nothing for so long does not read at the moment, and perhaps never will."""
STALLED_PART = 2
"""What such subscribers hold may take one part in so many of the memory for logs."""


class Sending:
    """Memory of messages in gRPC's hands. gRPC offers no way to take them back from a peer that does not read: what
    has stalled is charged to the caches of the logs instead, so that it keeps nobody else from being sent something.
    Small messages need no memory here: their streams brought it along."""

    def __init__(self, budget: MemoryBudget, logs: MemoryBudget) -> None:
        self._budget = budget
        self._logs = logs
        self.stalled_bytes = 0
        """Charged to the caches: of messages that peers do not take."""

    def take_now(self, message_bytes: int) -> int | None:
        """Bytes for ``writing``; None if there is no memory at the moment."""
        if message_bytes <= SMALL_MESSAGE_BYTES:
            return 0
        size = self._size(message_bytes)
        return size if self._budget.take_now(size) else None

    async def take(self, message_bytes: int) -> int:
        """As ``take_now``, waiting for memory.

        Raises:
            ResourceExhausted: for too long; other subscribers hold it all.
        """
        if message_bytes <= SMALL_MESSAGE_BYTES:
            return 0
        size = self._size(message_bytes)
        try:
            async with asyncio.timeout(MEMORY_WAIT_S_MAX):
                await self._budget.take(size)
        except TimeoutError:
            raise ResourceExhausted(
                f"{self._budget.used + self.stalled_bytes} bytes are on their way to subscribers that do not read "
                f"what they gave credit for, and {message_bytes} more do not fit: have them read, or give less "
                "credit, or raise memory_bytes_max"
            ) from None
        return size

    @contextmanager
    def writing(self, size_bytes: int) -> Iterator[None]:
        """Around the writing of a message; gives back at its end what was taken for it."""
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
        else:  # the logs may have room later
            self._watch(held)

    def _size(self, message_bytes: int) -> int:
        return min(COPIES * message_bytes, self._budget.limit)


class _Held:
    """Memory of one message."""

    __slots__ = ("size_bytes", "stalled", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.stalled = False
