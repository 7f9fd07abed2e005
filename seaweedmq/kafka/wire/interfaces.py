"""Interfaces between a connection, its listener, and the receiver of its requests."""

from dataclasses import dataclass
from typing import Protocol

from seaweedmq.kafka.wire.budget import RequestMemory
from seaweedmq.kafka.wire.messages import Request
from seaweedmq.kafka.wire.reply_queue import ReplySlot
from seaweedmq.model.messages.call_context import CallContext
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
    context: CallContext
    """The client, whose address is ``host:port``."""

    def fail(self, reason: str) -> None:
        """Close at once, and log the reason."""

    def drain(self) -> None:
        """Stop reading, answer the requests already read, then close."""

    def abort(self) -> None:
        """Close at once."""


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
