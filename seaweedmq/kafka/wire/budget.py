"""Account of the memory that Kafka clients hold by their requests and by replies that they have not read.

Each connection has a share. ``RequestMemory`` divides its limit into three parts:

* *guaranteed*: up to ``GUARANTEED_BYTES`` for each connection, without waiting, so that no client can block another.
  With very many connections, this is less than one request needs, and the rest comes from the pooled part.
* *pooled*: a share may hold at most half of the free bytes, so that a flood leaves memory for the next share.
* *reserved*: for one request of the longest waiting share, so that large requests finish one after another.

A waiting share is served as soon as its bytes fit, the smallest first. While shares wait, ``RequestMemory.press`` frees
memory of others: it closes connections whose clients send and read too slowly, and has requests that wait for events
answered, those with the most bytes first, as many as needed. ``fetch_memory`` accounts for Fetch replies. The account
does no IO and reads no clock.
"""

from collections import OrderedDict
from typing import Protocol

GUARANTEED_BYTES = 16 * 1024
"""Guaranteed bytes of each connection; fewer if the guaranteed part does not suffice for all."""
PART = 4
"""Divisor of the limit: one such part is guaranteed, one is reserved, and the others are pooled."""
REPLY_PART = 8
"""Divisor of the pooled part: a reply that may be large takes such a part first, which limits their number."""
PRESS_INTERVAL_S = 1.0
"""Minimum seconds between two inspections of the shares that hold memory."""
SLOW_WINDOW_S = 2.0
"""Seconds over which a client's speed is measured while others wait."""
SLOW_BYTES_PER_S_MIN = 64 * 1024
"""Speed below which a client's connection is closed while others wait."""
QUEUES = 64
"""Number of queues of waiting shares, one for each bit length of an amount."""


class Pace:
    """The speed of a client, measured while others wait for memory that it holds."""

    __slots__ = ("_mark", "_measured_at")

    def __init__(self) -> None:
        self._mark: tuple[float, int] | None = None
        """The time when the measurement began, and the bytes that the client had moved by then."""
        self._measured_at = 0.0

    def forget(self) -> None:
        """Discard the measurement: the broker did not wait for the client."""
        self._mark = None

    def too_slow(self, now: float, moved: int) -> tuple[int, float] | None:
        """Return the bytes and the seconds of a measurement that shows a client too slow, else None.

        A measurement with a pause does not count: in a pause the client may have had nothing to move.
        """
        is_stale = now - self._measured_at > 2 * SLOW_WINDOW_S
        self._measured_at = now
        if self._mark is None or is_stale:
            self._mark = now, moved
            return None
        since, before = self._mark
        if now - since < SLOW_WINDOW_S:
            return None
        self._mark = now, moved
        return (moved - before, now - since) if moved - before < SLOW_BYTES_PER_S_MIN * (now - since) else None


class ShareOwner(Protocol):
    """The connection that holds a share."""

    def granted(self) -> None:
        """Note that the share got the bytes it waited for. Another share's call makes this call: do not call back."""

    def moved_bytes(self) -> int | None:
        """Return the bytes that the client sent and read so far; None while the broker does not wait for it."""

    def answer_waiting(self) -> bool:
        """Answer requests that wait for events, to free their memory; return whether there were any."""

    def fail(self, reason: str) -> None:
        """Close the connection at once, with unread replies, and log the reason."""


class Share:
    """The bytes that one connection holds. A share waits for at most one amount at a time."""

    __slots__ = ("_memory", "_pace", "guaranteed", "is_guaranteed", "owner", "pooled", "queue", "reserved", "wanted")

    def __init__(self, memory: "RequestMemory", owner: ShareOwner) -> None:
        self._memory = memory
        self.owner: ShareOwner | None = owner
        """The connection; None once it is closed."""
        self.guaranteed = 0
        self.pooled = 0
        self.reserved = 0
        self.wanted = 0
        """Bytes that the share waits for; 0: it does not wait."""
        self.is_guaranteed = True
        """Whether guaranteed bytes may serve the amount in ``wanted``."""
        self.queue: OrderedDict[Share, None] | None = None
        """The queue in which the share waits."""
        self._pace = Pace()

    @property
    def held_bytes(self) -> int:
        """All bytes that the share holds."""
        return self.guaranteed + self.pooled + self.reserved

    @property
    def free_bytes(self) -> int:
        """The bytes that :meth:`take` would take at once."""
        return self._memory.free_of(self)

    def take(self, size: int, *, is_guaranteed: bool = True) -> bool:
        """Take ``size`` bytes and return True, or wait for them and return False; then ``granted`` is called later.

        ``is_guaranteed`` is False for an amount that may turn out far larger: guaranteed bytes do not serve it.
        """
        return self._memory.take(self, size, is_guaranteed)

    def force(self, size: int, *, is_reserved: bool = False) -> None:
        """Take ``size`` bytes that are in use already, even if none are free.

        With ``is_reserved`` they belong to the request that the reserved part serves.
        """
        self._memory.force(self, size, is_reserved)

    def give(self, size: int) -> None:
        """Return ``size`` bytes to the account."""
        self._memory.give(self, size)

    def end_request(self) -> bool:
        """Note that a request is complete; return if the reserved part serves it, alone until :meth:`release`."""
        return self._memory.end_request(self)

    def release(self) -> None:
        """Release the reserved part to another share: its request is answered, or holds little memory."""
        self._memory.release(self)

    def stop_waiting(self) -> None:
        """Cancel the wait, if any."""
        self._memory.stop_waiting(self)

    def close(self) -> None:
        """Close the share with its connection; the bytes that it still holds are returned later."""
        self._memory.close(self)

    def press(self, now: float, *, may_answer_waiting: bool) -> int:
        """Close the owner if its client is too slow, or, if ``may_answer_waiting``, answer waiting requests.

        Returns the freed bytes, without guaranteed ones.
        """
        if self.owner is None:
            return 0
        moved = None if self.wanted else self.owner.moved_bytes()
        if moved is None:
            self._pace.forget()
            if not may_answer_waiting or not self.owner.answer_waiting():
                return 0
        elif (slow := self._pace.too_slow(now, moved)) is None:
            return 0
        else:
            self.owner.fail(
                f"other clients wait for the {self.held_bytes:,} bytes of memory that it holds, but it sent and "
                f"read {slow[0]:,} bytes in {slow[1]:.1f} s: send whole requests and read the replies, "
                "or raise kafka_in_flight_bytes_max and memory_bytes_max"
            )
        return self.pooled + self.reserved


class RequestMemory:
    """The account of all shares of a listener: see the module.

    Invariants: ``pooled`` is within its part except for forced bytes. One share holds all of ``reserved``, for one
    request, and only that request may be larger than the part. Each waiting share is in one queue.
    """

    def __init__(self, bytes_max: int) -> None:
        self.guaranteed_max = bytes_max // PART
        self.reserved_max = bytes_max // PART
        self.pooled_max = bytes_max - self.guaranteed_max - self.reserved_max
        self.reply_bytes = self.pooled_max // REPLY_PART
        self.guaranteed = 0
        self.pooled = 0
        self.reserved = 0
        self._shares = 0
        self._each = GUARANTEED_BYTES
        """Guaranteed bytes of each share."""
        self._holder: Share | None = None
        """The share that the reserved part serves."""
        self._is_growing = False
        """Whether the holder's request is incomplete."""
        self._waiting: OrderedDict[Share, None] = OrderedDict()
        """Waiting shares, the longest waiting first."""
        self._queues: list[OrderedDict[Share, None]] = [OrderedDict() for _ in range(QUEUES)]
        """The waiting shares, by the bit length of the pooled bytes that they would hold."""
        self._pooling: dict[Share, None] = {}
        """Shares that hold pooled or reserved bytes, as an ordered set."""
        self._pressed_at = float("-inf")

    @property
    def taken_bytes(self) -> int:
        """The bytes that all shares hold."""
        return self.guaranteed + self.pooled + self.reserved

    @property
    def waiting(self) -> int:
        """The number of waiting shares."""
        return len(self._waiting)

    def open(self, owner: ShareOwner) -> Share:
        """Return the share of a new connection."""
        self._shares += 1
        self._divide()
        return Share(self, owner)

    def free_of(self, share: Share) -> int:
        """Return the bytes that a share may take without waiting."""
        return self._guarantee_left(share) + max(0, (self.pooled_max - self.pooled - share.pooled) // 2)

    def take(self, share: Share, size: int, is_guaranteed: bool) -> bool:
        """See :meth:`Share.take`."""
        assert not share.wanted, "a share waits for one amount at a time"
        if is_guaranteed and size <= self._each - share.guaranteed:  # most requests; other shares are not affected
            share.guaranteed += size
            self.guaranteed += size
            return True
        if self._holder is None:
            assert not self._waiting
            if not self._fits(share, size, is_guaranteed):
                self._holder, self._is_growing = share, True
        if self._took(share, size, is_guaranteed):
            return True
        share.wanted, share.is_guaranteed = size, is_guaranteed
        self._waiting[share] = None
        self._enqueue(share)
        return False

    def force(self, share: Share, size: int, is_reserved: bool) -> None:
        """See :meth:`Share.force`."""
        if is_reserved or (self._holder is share and self._is_growing):
            assert self._holder is share
            self._reserve(share, size)
        else:
            guaranteed = min(size, self._guarantee_left(share))
            self._count(share, guaranteed, size - guaranteed)

    def _divide(self) -> None:
        self._each = min(GUARANTEED_BYTES, self.guaranteed_max // max(1, self._shares))

    def give(self, share: Share, size: int) -> None:
        """See :meth:`Share.give`."""
        assert 0 <= size <= share.held_bytes, f"{size - share.held_bytes} bytes were given back twice"
        if not share.pooled and not share.reserved:
            share.guaranteed -= size
            self.guaranteed -= size
            if self._waiting:
                self._serve()
            return
        pooled = min(size, share.pooled)
        guaranteed = min(size - pooled, share.guaranteed)
        reserved = size - pooled - guaranteed
        share.reserved -= reserved
        self.reserved -= reserved
        self._count(share, -guaranteed, -pooled)
        self._serve()

    def end_request(self, share: Share) -> bool:
        """See :meth:`Share.end_request`."""
        if self._holder is not share or not self._is_growing:
            return False
        self._is_growing = False
        return True

    def release(self, share: Share) -> None:
        """See :meth:`Share.release`."""
        assert self._holder is share
        self._holder = None
        left, share.reserved = share.reserved, 0
        self.reserved -= left
        self._count(share, 0, left)
        self._serve()

    def stop_waiting(self, share: Share) -> None:
        """See :meth:`Share.stop_waiting`."""
        if share.wanted:
            self._dequeue(share)
            self._serve()

    def close(self, share: Share) -> None:
        """See :meth:`Share.close`."""
        self._shares -= 1
        self._divide()
        share.owner = None  # a reference cycle would wait for the garbage collector
        self.stop_waiting(share)
        if self.end_request(share):
            self.release(share)

    def press(self, now: float) -> None:
        """Free memory of others while shares wait; owners of waiting shares call this every ``PRESS_INTERVAL_S``."""
        if not self._waiting or now < self._pressed_at + PRESS_INTERVAL_S:
            return
        self._pressed_at = now
        lacking = self._lacking_bytes()
        for share in sorted(self._pooling, key=lambda share: share.pooled + share.reserved, reverse=True):
            lacking -= share.press(now, may_answer_waiting=lacking > 0)

    def _lacking_bytes(self) -> int:
        """Return the pooled bytes that must become free to serve all waiting shares."""
        wanted = sum(share.wanted for share in self._waiting)
        room = max(share.pooled + share.wanted for share in self._waiting)  # _fits keeps as much free
        return wanted + room - (self.pooled_max - self.pooled)

    def _guarantee_left(self, share: Share) -> int:
        return max(0, self._each - share.guaranteed)

    def _fits(self, share: Share, size: int, is_guaranteed: bool) -> bool:
        rest = size - (self._guarantee_left(share) if is_guaranteed else 0)
        return rest <= 0 or share.pooled + rest <= self.pooled_max - self.pooled - rest

    def _took(self, share: Share, size: int, is_guaranteed: bool) -> bool:
        """Take ``size`` bytes if they fit; return whether they did."""
        is_reserved = not self._fits(share, size, is_guaranteed)
        if is_reserved and not (self._holder is share and self._is_growing):
            return False
        guaranteed = min(size, self._guarantee_left(share)) if is_guaranteed else 0
        self._count(share, guaranteed, 0 if is_reserved else size - guaranteed)
        if is_reserved:
            self._reserve(share, size - guaranteed)
        return True

    def _serve(self) -> None:
        """Serve waiting shares that fit, the smallest first; then give the reserved part to the longest waiting one."""
        if not self._waiting:
            return
        for queue in self._queues:
            while queue:
                share = next(iter(queue))
                if not self._took(share, share.wanted, share.is_guaranteed):
                    break
                self._grant(share)
        if self._holder is None and self._waiting:
            share = next(iter(self._waiting))
            self._holder, self._is_growing = share, True
            taken = self._took(share, share.wanted, share.is_guaranteed)
            assert taken, "the reserved part serves a share of any size"
            self._grant(share)

    def _grant(self, share: Share) -> None:
        self._dequeue(share)
        if share.owner is not None:
            share.owner.granted()

    def _enqueue(self, share: Share) -> None:
        share.queue = self._queues[(share.pooled + share.wanted).bit_length()]
        share.queue[share] = None

    def _dequeue(self, share: Share) -> None:
        assert share.queue is not None
        del share.queue[share]
        del self._waiting[share]
        share.queue = None
        share.wanted = 0

    def _reserve(self, share: Share, size: int) -> None:
        share.reserved += size
        self.reserved += size
        self._pooling[share] = None

    def _count(self, share: Share, guaranteed: int, pooled: int) -> None:
        share.guaranteed += guaranteed
        self.guaranteed += guaranteed
        share.pooled += pooled
        self.pooled += pooled
        if share.pooled or share.reserved:
            self._pooling[share] = None
        else:
            self._pooling.pop(share, None)
        if pooled and share.queue is not None:
            del share.queue[share]
            self._enqueue(share)
