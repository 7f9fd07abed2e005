"""What is on its way to subscribers: nothing of size is handed to gRPC before there is memory for it."""

import asyncio

from seaweedmq.broker.budget import MemoryBudget
from seaweedmq.broker.memory import COPIES
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.protocol import SMALL_MESSAGE_BYTES

PATIENCE_S = 10.0


class Sending:
    """Memory of messages in gRPC's hands, which a peer that does not read keeps there. Small ones need none: their
    streams brought it along."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget

    def take_now(self, message_bytes: int) -> int | None:
        """Bytes to ``give`` once the message is written; None if there is no memory at the moment."""
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
            async with asyncio.timeout(PATIENCE_S):
                await self._budget.take(size)
        except TimeoutError:
            raise ResourceExhausted(
                f"{self._budget.used} bytes are on their way to subscribers that do not read what they gave credit "
                f"for, and {message_bytes} more do not fit: have them read, or give less credit, or raise "
                "memory_bytes_max"
            ) from None
        return size

    def give(self, size_bytes: int) -> None:
        """What ``take`` returned, once the message is written."""
        if size_bytes:
            self._budget.give(size_bytes)

    def _size(self, message_bytes: int) -> int:
        return min(COPIES * message_bytes, self._budget.limit)
