"""Deadlines of one connection, with one timer for the earliest."""

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from seaweedmq.kafka.wire.budget import PRESS_INTERVAL_S
from seaweedmq.kafka.wire.interfaces import ConnectionLimits
from seaweedmq.kafka.wire.messages import nothing

HALF_CLOSED_S = 5.0
"""Seconds for the replies to a client that closed its half of the connection. The time is extended by as much whenever
the client read some bytes in it: the socket does not distinguish such a client from one that is unreachable."""


class Due(Enum):
    """The event that is due at a deadline."""

    REQUEST = "request"
    """The client sends some bytes of an incomplete request, or the connection fails."""
    READING = "reading"
    """The client reads some bytes of its replies, or the connection fails."""
    HALF_CLOSED = "half closed"
    """The client, which closed its half, reads some bytes of its replies, or the connection ends."""
    MEMORY = "memory"
    """The connection gets the memory that it waits for, or that of others is inspected."""
    IDLE = "idle"
    """The client sends a request, or the connection ends."""


class Progress(NamedTuple):
    """The progress of a client when a deadline has passed."""

    lacking_bytes: int
    """The missing bytes of the incomplete request."""
    taken_bytes: int
    """The bytes of replies that the client, or the sockets, have taken."""
    waiting_bytes: int
    """The bytes of replies that the socket has not taken."""
    has_unread: bool
    """Whether replies are written to the socket but not read by the client."""
    is_idle: bool
    """Whether no request is unanswered."""


class Deadlines:
    """The deadlines of one connection; after the earliest ``passed`` is called, which acts on :meth:`missed`."""

    def __init__(self, limits: ConnectionLimits, passed: Callable[[], None]) -> None:
        self._limits = limits
        self._passed = passed
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()
        self._dues: dict[Due, float] = {}
        self._bytes: dict[Due, int] = {}
        """Bytes that the client had read, or had not, when the deadline was set."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    def note_activity(self) -> None:
        """Restart the time after which the connection counts as idle."""
        self._active_at = self._loop.time()

    def expect(self, due: Due, size: int = 0) -> None:
        """Set a deadline, or move it on. ``size``: bytes that the client has read, or has not, so far."""
        is_new = due not in self._dues
        self._dues[due] = self._loop.time() + self._seconds(due)
        self._bytes[due] = size
        if is_new:
            self.watch()

    def lift(self, due: Due) -> None:
        """Remove a deadline, if it is set."""
        self._dues.pop(due, None)

    def watch(self) -> None:
        """Set the timer for the earliest deadline; if a deadline moves on, the timer fires early and is set again."""
        if self._is_closed:
            return
        soonest = min((self._active_at + self._limits.idle_s, *self._dues.values()))
        if self._timer is None or soonest < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = soonest
            self._timer = self._loop.call_at(soonest, self._check)

    def missed(self, progress: Progress) -> Iterator[tuple[Due, str]]:
        """Yield what is overdue, with the reason; deadlines of clients that made progress are moved on."""
        now, read_s = self._loop.time(), self._limits.read_s
        if self._is_over(Due.HALF_CLOSED, now):
            if not progress.has_unread or progress.taken_bytes <= self._bytes[Due.HALF_CLOSED]:
                yield Due.HALF_CLOSED, "the client closed its half"
                return
            self.expect(Due.HALF_CLOSED, progress.taken_bytes)
        if self._is_over(Due.READING, now):
            waiting = progress.waiting_bytes
            if waiting >= self._bytes[Due.READING]:
                reason = f"it read none of the {waiting:,} waiting bytes of replies in {read_s:g} s: read the replies"
                yield Due.READING, reason
                return
            self.expect(Due.READING, waiting)
        if self._is_over(Due.REQUEST, now):
            lacking = progress.lacking_bytes
            reason = f"no bytes of a request for {read_s:g} s, and {lacking:,} are missing: send whole requests"
            yield Due.REQUEST, reason
            return
        if self._is_over(Due.MEMORY, now):
            self.expect(Due.MEMORY)
            yield Due.MEMORY, ""
        if now >= self._active_at + self._limits.idle_s:
            if progress.is_idle:
                yield Due.IDLE, f"idle for {self._limits.idle_s:g} s"
                return
            self._active_at = now  # the client waits for a reply

    def close(self) -> None:
        """Stop the timer."""
        self._is_closed = True
        self._passed = nothing  # a reference cycle would wait for the collector
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        self._passed()
        self.watch()

    def _is_over(self, due: Due, now: float) -> bool:
        return now >= self._dues.get(due, now + 1)

    def _seconds(self, due: Due) -> float:
        match due:
            case Due.HALF_CLOSED:
                return HALF_CLOSED_S
            case Due.MEMORY:
                return PRESS_INTERVAL_S
            case _:
                return self._limits.read_s
