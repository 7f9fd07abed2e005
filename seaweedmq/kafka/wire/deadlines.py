"""Deadlines of one connection: what the client has to do by when, with one timer for the earliest.

The client has to send the rest of a request, read some of its replies, and not stay idle. While the connection waits
for memory, the memory of others is inspected now and then.
"""

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from seaweedmq.kafka.wire.budget import PRESS_INTERVAL_S
from seaweedmq.kafka.wire.interfaces import ConnectionLimits
from seaweedmq.kafka.wire.messages import nothing

HALF_CLOSED_S = 5.0
"""Seconds for the replies to a client that closed its half of the connection.

The time is extended by as much whenever the client read some bytes in it: the socket does not distinguish such a client
from one that is unreachable.
"""


class Overdue(Enum):
    """The consequence of a missed deadline."""

    HALF_CLOSED = "half closed"
    """The client closed its half and reads no more: the connection ends."""
    STALLED = "stalled"
    """The client does not send a whole request, or does not read: the connection fails."""
    MEMORY = "memory"
    """The connection still waits for memory: that of others is inspected."""
    IDLE = "idle"
    """The client has no requests: the connection is closed."""


class Progress(NamedTuple):
    """The progress of a client when a deadline is due."""

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
    """The deadlines of one connection.

    ``overdue`` is called at the earliest one; its caller passes the progress of the client to :meth:`missed`.
    """

    def __init__(self, limits: ConnectionLimits, overdue: Callable[[], None]) -> None:
        self._limits = limits
        self._overdue = overdue
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()
        self._read_due: float | None = None
        self._write_due: float | None = None
        self._press_due: float | None = None
        self._end_due: float | None = None
        self._taken_at_end = 0
        """Bytes of replies that the client had read when ``_end_due`` was set."""
        self._unwritten_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    def note_activity(self) -> None:
        """Restart the time after which the connection counts as idle."""
        self._active_at = self._loop.time()

    def await_request(self) -> None:
        """Have the client send some bytes of the incomplete request in time."""
        is_first = self._read_due is None
        self._read_due = self._loop.time() + self._limits.read_s
        if is_first:
            self.watch()

    def await_no_request(self) -> None:
        """Lift the deadline of the request: it is complete, or the broker causes the pause."""
        self._read_due = None

    def await_reading(self, waiting_bytes: int) -> None:
        """Have the client read some of the bytes that the socket has not taken."""
        self._unwritten_bytes = waiting_bytes
        self._write_due = self._loop.time() + self._limits.read_s
        self.watch()

    def await_no_reading(self) -> None:
        """Lift the deadline of the replies: the socket has taken all bytes."""
        self._write_due = None
        self.note_activity()

    def await_memory(self) -> None:
        """Have the memory of others inspected while the connection waits for some."""
        self._press_due = self._loop.time() + PRESS_INTERVAL_S
        self.watch()

    def await_no_memory(self) -> None:
        """Note that the connection got the memory it waited for."""
        self._press_due = None

    def await_end(self, taken_bytes: int) -> None:
        """Have the client, which closed its half, read its replies."""
        self._end_due = self._loop.time() + HALF_CLOSED_S
        self._taken_at_end = taken_bytes
        self.watch()

    def watch(self) -> None:
        """Set the timer for the earliest deadline; if a deadline moves on, the timer fires early and is set again."""
        if self._is_closed:
            return
        idle_due = self._active_at + self._limits.idle_s
        dues = (idle_due, self._read_due, self._write_due, self._press_due, self._end_due)
        soonest = min(due for due in dues if due is not None)
        if self._timer is None or soonest < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = soonest
            self._timer = self._loop.call_at(soonest, self._look)

    def _look(self) -> None:
        self._timer = None
        self._overdue()
        self.watch()

    def missed(self, progress: Progress) -> Iterator[tuple[Overdue, str]]:
        """Yield the missed deadlines with their reasons, and extend those whose client made progress."""
        now, read_s = self._loop.time(), self._limits.read_s
        if self._end_due is not None and now >= self._end_due:
            if not progress.has_unread or progress.taken_bytes <= self._taken_at_end:
                yield Overdue.HALF_CLOSED, "the client closed its half"
                return
            self._taken_at_end = progress.taken_bytes
            self._end_due = now + HALF_CLOSED_S
        if self._write_due is not None and now >= self._write_due:
            waiting = progress.waiting_bytes
            if waiting >= self._unwritten_bytes:
                yield (
                    Overdue.STALLED,
                    f"it read none of the {waiting:,} waiting bytes of replies in {read_s:g} s: read the replies",
                )
                return
            self._unwritten_bytes = waiting
            self._write_due = now + read_s
        if self._read_due is not None and now >= self._read_due:
            lacking = progress.lacking_bytes
            yield (
                Overdue.STALLED,
                f"no bytes of a request for {read_s:g} s, and {lacking:,} are missing: send whole requests",
            )
            return
        if self._press_due is not None and now >= self._press_due:
            self._press_due = now + PRESS_INTERVAL_S
            yield Overdue.MEMORY, ""
        if now >= self._active_at + self._limits.idle_s:
            if progress.is_idle:
                yield Overdue.IDLE, f"idle for {self._limits.idle_s:g} s"
                return
            self._active_at = now  # the client waits for a reply

    def close(self) -> None:
        """Stop the timer."""
        self._is_closed = True
        self._overdue = nothing  # a reference cycle would wait for the collector
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
