"""Memory of replies to Fetch, all together within a bound: when it is short, replies are smaller.

A small first batch is sent in any case, so that each consumer continues. A large one waits until there is memory for
it: those who read what they have free it.
"""

import asyncio
from collections import OrderedDict

SMALL_BYTES = 64 * 1024
"""A first batch up to this size does not wait."""


class FetchMemory:
    """Bytes of replies from before they are gathered until they are written."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting: OrderedDict[asyncio.Future[None], tuple[ReplyMemory, int]] = OrderedDict()
        self.used = 0

    def reply(self) -> "ReplyMemory":
        """For one reply, which holds nothing yet."""
        return ReplyMemory(self)

    @property
    def free(self) -> int:
        """Bytes that no reply holds."""
        return max(0, self._limit - self.used)

    async def take(self, reply: "ReplyMemory", size_bytes: int) -> None:
        """Wait until ``size_bytes`` fit beside what others hold, in the order of the calls; ``reply`` holds them then.

        What is larger than all of the memory is let in once no other reply holds any.
        """
        if not self._waiting and self._fits(reply, size_bytes):
            reply.hold(size_bytes)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = reply, size_bytes
        try:
            await turn
        finally:
            if self._waiting.pop(turn, None) is not None:
                self.serve()  # those behind wait for it no longer

    def serve(self) -> None:
        """Let those in whose bytes fit by now."""
        while self._waiting:
            turn, (reply, size_bytes) = next(iter(self._waiting.items()))
            if not self._fits(reply, size_bytes):
                return
            del self._waiting[turn]
            reply.hold(size_bytes)
            if not turn.done():
                turn.set_result(None)

    def _fits(self, reply: "ReplyMemory", size_bytes: int) -> bool:
        others = self.used - reply.held
        return not others or others + size_bytes <= self._limit


class ReplyMemory:
    """The part of the memory that one reply holds."""

    def __init__(self, memory: FetchMemory) -> None:
        self._memory = memory
        self.held = 0

    def reserve(self, bytes_max: int) -> int:
        """Hold as much of this as is free, in the place of what was held; return how much. It may be nothing, and a
        small first batch of a reply is sent nevertheless."""
        self.release()
        self.hold(min(bytes_max, self._memory.free))
        return self.held

    async def first_batch(self, size_bytes: int) -> None:
        """Wait until the first batch of the reply fits, if it is not small."""
        if size_bytes > max(self.held, SMALL_BYTES):
            await self._memory.take(self, size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Hold this, in the place of what was held."""
        less = self.held - size_bytes
        self._memory.used -= less
        self.held = size_bytes
        if less > 0:
            self._memory.serve()

    def release(self) -> None:
        """Hold nothing. May be called again."""
        self.hold(0)
