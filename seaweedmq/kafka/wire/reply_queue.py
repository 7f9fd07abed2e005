"""Replies of one connection, which leave in the order of the requests and are accounted for until they are read."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from seaweedmq.kafka.wire.budget import Share
from seaweedmq.kafka.wire.messages import Buffer, nothing

WRITE_BYTES = 1024 * 1024
"""Approximate bytes of replies written to the socket at once; more follow when these have left."""
SLOT_BYTES = 512
"""Memory of a reply in its slot in addition to its bytes."""


class ReplySlot:
    """The slot of a request's reply among those of its connection. Every slot is filled exactly once."""

    __slots__ = ("_queue", "buffers", "held_bytes", "is_filled", "is_large", "is_reserved", "sent", "settled_bytes")

    def __init__(self, queue: "ReplyQueue") -> None:
        self._queue = queue
        self.held_bytes = 0
        """Bytes of the connection's share: of the request, then of its reply until the client has read it."""
        self.settled_bytes = 0
        """Bytes that the request holds while it waits for others."""
        self.is_reserved = False
        """Whether the request holds the reserved part of the memory."""
        self.is_large = False
        """Whether the reply may be far larger than the request."""
        self.buffers: Sequence[Buffer] = ()
        self.sent: Callable[[], None] | None = None
        self.is_filled = False

    def settle(self) -> None:
        """Release memory of a request that waits for others: its contents are stored and accounted for elsewhere."""
        if not self.is_filled:
            self._queue.settled(self)

    def fill(self, buffers: Sequence[Buffer] = (), sent: Callable[[], None] | None = None) -> None:
        """Reply with these buffers in the order of requests; without buffers, send no reply.

        Args:
            buffers: Reply with its length and header.
            sent: Called once the socket has taken the buffers or the connection has ended. A caller that passes it
                accounts for the memory of the buffers until then.
        """
        assert not self.is_filled, "a request is answered once"
        self.is_filled = True
        self.buffers = buffers
        self.sent = sent
        self._queue.filled(self)


class ReplyQueue:
    """The slots of one connection's replies, in the order of the requests, and those that the client has not read."""

    def __init__(self, share: Share, flushed: Callable[[], None]) -> None:
        """Create a queue that writes once it has a ``transport``; ``flushed`` is called after each write."""
        self._share = share
        self._flushed = flushed
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self._slots: deque[ReplySlot] = deque()
        self._unsent: list[ReplySlot] = []
        """Slots whose replies are written to the socket but not read by the client."""
        self.large: ReplySlot | None = None
        """The slot of the request whose reply may be large and is not read yet."""
        self._written_bytes = 0
        self._will_flush = False
        self.is_writing = True
        """Whether the socket has taken all bytes."""
        self.is_over = False
        """Whether the connection ends, and replies are dropped."""

    @property
    def unanswered(self) -> int:
        """The number of slots that wait for their replies, or for the replies before them."""
        return len(self._slots)

    @property
    def has_unread(self) -> bool:
        """Whether replies are written to the socket but not read by the client."""
        return bool(self._unsent)

    @property
    def is_empty(self) -> bool:
        """Whether the socket has taken every reply."""
        return not self._slots and not self._unsent and self.is_writing

    @property
    def waiting_bytes(self) -> int:
        """The bytes that the socket has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def taken_bytes(self) -> int:
        """The bytes of replies that the client, or the sockets, have taken."""
        return self._written_bytes - self.waiting_bytes

    def add(self, slot: ReplySlot) -> None:
        """Append the slot of a new request."""
        self._slots.append(slot)

    def filled(self, slot: ReplySlot) -> None:
        """Account for a filled slot: the reply's bytes replace the request's until the client has read them."""
        if self.is_over:
            self.free(slot)
            self._drop_filled()
            return
        self._hold(slot, SLOT_BYTES + (sum(map(len, slot.buffers)) if slot.sent is None else 0))
        if self._slots[0].is_filled:
            self._flush_soon()  # replies of one loop iteration go out in one system call

    def settled(self, slot: ReplySlot) -> None:
        """Release memory of a request that waits for others: its contents are stored elsewhere."""
        self._hold(slot, min(slot.held_bytes, slot.settled_bytes))
        self._release(slot)

    def free(self, slot: ReplySlot) -> None:
        """Return all memory of a slot."""
        self._hold(slot, 0)
        self._release(slot)
        if self.large is slot:
            self.large = None

    def pause(self) -> None:
        """Stop writing: the socket has not taken all bytes."""
        self.is_writing = False

    def resume(self) -> None:
        """Write further replies: the socket, and so the client, has taken all bytes."""
        self.is_writing = True
        self._free_unsent()
        if not self.is_over:
            self._flush()

    def close(self) -> None:
        """Drop the replies that are ready: the connection is closed."""
        self.is_over = True
        self._free_unsent()
        self._drop_filled()
        self.transport, self._flushed = None, nothing  # a reference cycle would wait for the collector

    def _hold(self, slot: ReplySlot, size: int) -> None:
        more, slot.held_bytes = size - slot.held_bytes, size
        if more > 0:
            self._share.force(more, is_reserved=slot.is_reserved)
        else:
            self._share.give(-more)

    def _release(self, slot: ReplySlot) -> None:
        if slot.is_reserved:
            slot.is_reserved = False
            self._share.release()

    def _flush(self) -> None:
        assert self.transport is not None
        buffers: list[Buffer] = []
        size = 0
        while self._slots and self._slots[0].is_filled and self.is_writing:
            if size > WRITE_BYTES:
                self._flush_soon()
                break
            slot = self._slots.popleft()
            buffers += slot.buffers
            size += sum(map(len, slot.buffers))
            self._unsent.append(slot)
        if buffers:
            self._written_bytes += size
            self.transport.writelines(buffers)
        if self._unsent and self.is_writing:
            self._free_unsent()
        self._flushed()

    def _flush_soon(self) -> None:
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._will_flush = False
        if not self.is_over:
            self._flush()

    def _free_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for slot in unsent:
            slot.buffers = ()
            self.free(slot)
            if slot.sent is not None:
                slot.sent()

    def _drop_filled(self) -> None:
        while self._slots and self._slots[0].is_filled:
            slot = self._slots.popleft()
            self.free(slot)
            if slot.sent is not None:
                slot.sent()
