"""Memory of replies to Fetch, all together within a bound: when it is short, replies are smaller.

A reply reserves at most half of what is free, and nothing while others wait: so a few replies do not hold everything.
A small first batch is sent in any case, so that each consumer continues. A large one waits, in order, until there is
memory for it. Those that wait press the replies that hold memory, the largest first: the connection of one whose client
takes it too slowly is closed.
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
"""A first batch up to this size does not wait."""


class FetchMemory:
    """Bytes of replies from before they are gathered until their clients have taken them."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting: OrderedDict[asyncio.Future[None], tuple[ReplyMemory, int]] = OrderedDict()
        self._holding: dict[ReplyMemory, None] = {}
        """Replies that hold bytes."""
        self._pressed_at = float("-inf")
        self.used = 0

    def reply(self, press: Callable[[float, int], bool] = not_pressed) -> "ReplyMemory":
        """For one reply, which holds nothing yet. ``press`` is that of its connection's ``Line``."""
        return ReplyMemory(self, press)

    @property
    def free(self) -> int:
        """Bytes that no reply holds."""
        return max(0, self._limit - self.used)

    @property
    def may_reserve(self) -> int:
        """Bytes that a reply may reserve: half of what is free, so that something is left for the next one."""
        return 0 if self._waiting else self.free // 2

    @property
    def reply_bytes_max(self) -> int:
        """Bytes that a reply may have while no other reply holds any. A larger first batch is sent nevertheless."""
        return min(REPLY_BYTES_MAX, self._limit // 2)

    async def take(self, reply: "ReplyMemory", size_bytes: int) -> None:
        """Wait until ``size_bytes`` fit beside what others hold, in the order of the calls; ``reply`` holds them then.

        What is larger than all of the memory is let in once no other reply holds any.
        """
        if not self._waiting and self._fits(reply, size_bytes):
            reply.hold(size_bytes)
            return
        loop = asyncio.get_running_loop()
        reply.release()  # else those that wait would wait for each other
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[turn] = reply, size_bytes
        try:
            while not (await asyncio.wait({turn}, timeout=budget.PRESS_INTERVAL_S))[0]:
                self.press(loop.time())
        finally:
            if self._waiting.pop(turn, None) is not None:
                self.serve()  # those behind wait for it no longer

    def press(self, now: float) -> None:
        """While replies wait, close the connections of slow clients that hold what the first one lacks, the largest
        replies first."""
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
        """The bytes that a reply holds have changed."""
        if reply.held:
            self._holding[reply] = None
        else:
            self._holding.pop(reply, None)

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

    def __init__(self, memory: FetchMemory, press: Callable[[float, int], bool]) -> None:
        self._memory = memory
        self.press = press
        """See ``Line.press``."""
        self.held = 0

    def reserve(self, bytes_max: int) -> int:
        """Hold as much of this as one reply may reserve, in the place of what was held; return how much. It may be
        nothing, and a small first batch of a reply is sent nevertheless."""
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
        """Hold this, in the place of what was held."""
        less = self.held - size_bytes
        self._memory.used -= less
        self.held = size_bytes
        self._memory.note(self)
        if less > 0:
            self._memory.serve()

    def release(self) -> None:
        """Hold nothing. May be called again."""
        self.hold(0)
