"""Memory of Fetch replies within one limit: replies are smaller when memory is short.

A reply reserves at most half of the free bytes, and nothing while others wait, so that a few replies cannot hold all
memory. A small first batch is sent without a reservation, so that each consumer continues. A large one waits, in order,
for memory. Waiting replies press those that hold memory, the largest first: the connection of a client that reads too
slowly is closed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from seaweedmq.kafka.wire import budget
from seaweedmq.kafka.wire.messages import not_pressed
from seaweedmq.model.config import MIB

REPLY_BYTES_MAX = 55 * MIB
"""Largest reply, in bytes: the default of Kafka's ``fetch.max.bytes``."""
SMALL_BYTES = 64 * 1024
"""Size up to which a first batch does not wait, in bytes."""


class FetchMemory:
    """The account of bytes of Fetch replies, from before the read until the clients have taken them."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting: OrderedDict[asyncio.Future[None], tuple[ReplyMemory, int]] = OrderedDict()
        self._holding: dict[ReplyMemory, None] = {}
        """Replies that hold bytes, as an ordered set."""
        self._pressed_at = float("-inf")
        self.used = 0

    def reply(self, press: Callable[[float, int], bool] = not_pressed) -> "ReplyMemory":
        """Return the account of one reply, which holds nothing yet; ``press`` is that of its connection's ``Line``."""
        return ReplyMemory(self, press)

    @property
    def free(self) -> int:
        """The bytes that no reply holds."""
        return max(0, self._limit - self.used)

    @property
    def may_reserve(self) -> int:
        """The bytes that a reply may reserve: half of the free ones, which leaves some for the next reply."""
        return 0 if self._waiting else self.free // 2

    @property
    def reply_bytes_max(self) -> int:
        """The bytes of a reply while no other reply holds any; a larger first batch is sent nevertheless."""
        return min(REPLY_BYTES_MAX, self._limit // 2)

    async def take(self, reply: "ReplyMemory", size_bytes: int) -> None:
        """Wait until ``size_bytes`` fit beside the bytes of others, in order of the calls; ``reply`` then holds them.

        More than the whole memory is granted once no other reply holds any.
        """
        if not self._waiting and self._fits(reply, size_bytes):
            reply.hold(size_bytes)
            return
        loop = asyncio.get_running_loop()
        reply.release()  # else waiting replies would wait for each other
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[turn] = reply, size_bytes
        try:
            while not (await asyncio.wait({turn}, timeout=budget.PRESS_INTERVAL_S))[0]:
                self.press(loop.time())
        finally:
            if self._waiting.pop(turn, None) is not None:
                self.serve()  # a cancelled wait must not block the next ones

    def press(self, now: float) -> None:
        """While replies wait, close connections of slow clients until the first one fits, the largest replies first."""
        if not self._waiting or now < self._pressed_at + budget.PRESS_INTERVAL_S:
            return
        self._pressed_at = now
        waiting, size_bytes = next(iter(self._waiting.values()))
        lacking = self.used - waiting.held + size_bytes - self._limit
        for reply in sorted(self._holding, key=lambda reply: reply.held, reverse=True):
            if lacking <= 0:
                return
            if reply is not waiting and reply.press(now, reply.held):
                lacking -= reply.held

    def note(self, reply: "ReplyMemory") -> None:
        """Note a change of the bytes that a reply holds."""
        if reply.held:
            self._holding[reply] = None
        else:
            self._holding.pop(reply, None)

    def serve(self) -> None:
        """Grant waiting replies, in order, while their bytes fit."""
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
    """The bytes that one reply holds."""

    def __init__(self, memory: FetchMemory, press: Callable[[float, int], bool]) -> None:
        self._memory = memory
        self.press = press
        """See ``Line.press``."""
        self.held = 0

    def reserve(self, bytes_max: int) -> int:
        """Hold up to ``bytes_max`` instead of the bytes held before; return how many.

        The result may be 0: a small first batch is sent nevertheless.
        """
        self.release()
        self.hold(min(bytes_max, self._memory.may_reserve))
        return self.held

    async def first_batch(self, size_bytes: int) -> None:
        """Wait until the first batch of the reply fits, if it is not small."""
        if self.waits_for(size_bytes):
            await self._memory.take(self, size_bytes)

    def waits_for(self, size_bytes: int) -> bool:
        """Whether a first batch of this size has to wait, or to hold more than the reply does."""
        return size_bytes > max(self.held, SMALL_BYTES)

    def hold(self, size_bytes: int) -> None:
        """Hold ``size_bytes`` instead of the bytes held before."""
        less = self.held - size_bytes
        self._memory.used -= less
        self.held = size_bytes
        self._memory.note(self)
        if less > 0:
            self._memory.serve()

    def release(self) -> None:
        """Hold nothing. Repeated calls have no effect."""
        self.hold(0)
