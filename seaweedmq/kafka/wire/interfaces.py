"""Interfaces between a connection, its listener, and the receiver of its requests, and the slots of replies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from seaweedmq.kafka.wire.budget import RequestMemory
from seaweedmq.kafka.wire.messages import Buffer, Request
from seaweedmq.runtime.turns import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of each connection."""

    request_bytes_max: int
    """Maximum size of a request, in bytes."""
    requests_max: int
    """Maximum number of requests in flight: read, but not answered yet."""
    read_s: float
    """Seconds within which some bytes of an incomplete request must arrive, or the client must read some of a reply."""
    idle_s: float
    """Seconds after which a connection without requests is closed."""


class ConnectionHandle(Protocol):
    """The interface of a connection for other modules."""

    id: int
    """Id that is unique in the process."""
    peer: str
    """``host:port`` of the client."""

    def filled(self, slot: "ReplySlot") -> None:
        """Note that a slot has its reply; the bytes of its request are no longer needed."""

    def settled(self, slot: "ReplySlot") -> None:
        """Note that the request waits for others, and its contents are stored elsewhere."""

    def fail(self, reason: str) -> None:
        """Close at once, and log the reason."""

    def drain(self) -> None:
        """Stop reading, answer the requests already read, then close."""

    def abort(self) -> None:
        """Close at once."""


class ReplySlot:
    """The slot of a request's reply among those of its connection. Every slot is filled exactly once."""

    __slots__ = (
        "_connection",
        "buffers",
        "held_bytes",
        "is_filled",
        "is_large",
        "is_reserved",
        "sent",
        "settled_bytes",
    )

    def __init__(self, connection: "ConnectionHandle") -> None:
        self._connection = connection
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
            self._connection.settled(self)

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
        self._connection.filled(self)


class RequestReceiver(Protocol):
    """The receiver of the requests of one connection."""

    def receive(self, request: Request, slot: ReplySlot) -> None:
        """Handle a request, and fill its slot later."""

    def lost(self) -> None:
        """Note that the connection is closed; the receiver still fills all slots."""


class Listener(Protocol):
    """The state that the connections of one listener share."""

    limits: ConnectionLimits
    in_flight: RequestMemory
    turns: Turns
    buffer: memoryview

    def opened(self, connection: "ConnectionHandle") -> RequestReceiver | None:
        """Register a connection; return the receiver of its requests, or None if it is rejected."""

    def closed(self, connection: "ConnectionHandle") -> None:
        """Unregister a closed connection."""
