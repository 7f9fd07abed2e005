"""Whom a connection deals with: the listener it belongs to, who answers its requests, and the place of each reply."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from seaweedmq.kafka.wire.budget import RequestMemory
from seaweedmq.kafka.wire.messages import Buffer, Request
from seaweedmq.runtime.turns import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Of each connection."""

    request_bytes_max: int
    requests_max: int
    """In flight: read, and not yet answered."""
    read_s: float
    """In which something comes of a request that began, or a client takes something of the replies that wait."""
    idle_s: float


class ConnectionHandle(Protocol):
    """A connection, as others see it."""

    id: int
    """Unique in the process."""
    peer: str
    """``host:port``."""

    def filled(self, slot: "ReplySlot") -> None:
        """A slot has its reply; the bytes of its request are not needed any longer."""

    def settled(self, slot: "ReplySlot") -> None:
        """The request waits for others, and what it says is kept elsewhere."""

    def fail(self, reason: str) -> None:
        """Close at once, and say in the log why."""

    def drain(self) -> None:
        """Read nothing more, answer what was read, then close."""

    def abort(self) -> None:
        """Close at once."""


class ReplySlot:
    """The place of a request's reply among those of its connection. It is filled once, whatever happens."""

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
        """Bytes of the connection's share: of the request, then of its reply until the client has taken that."""
        self.settled_bytes = 0
        """Bytes that a request holds while it waits for others."""
        self.is_reserved = False
        """Whether it holds the part of the memory that is reserved for one request."""
        self.is_large = False
        """Whether its reply may be far larger than the request."""
        self.buffers: Sequence[Buffer] = ()
        self.sent: Callable[[], None] | None = None
        self.is_filled = False

    def settle(self) -> None:
        """The request waits for others, and what it says is kept, and counted, elsewhere."""
        if not self.is_filled:
            self._connection.settled(self)

    def fill(self, buffers: Sequence[Buffer] = (), sent: Callable[[], None] | None = None) -> None:
        """Reply with these buffers in the order of requests; without buffers, send nothing. ``sent`` is called once
        the socket has taken them or the connection has ended. A caller that passes ``sent`` accounts for the memory of
        the buffers until then.
        """
        assert not self.is_filled, "a request is answered once"
        self.is_filled = True
        self.buffers = buffers
        self.sent = sent
        self._connection.filled(self)


class RequestReceiver(Protocol):
    """Who answers the requests of one connection."""

    def receive(self, request: Request, slot: ReplySlot) -> None:
        """Answer a request by filling its slot, some time."""

    def lost(self) -> None:
        """The connection is gone: nobody waits for answers. Slots are filled all the same."""


class Listener(Protocol):
    """What the connections of one listener share."""

    limits: ConnectionLimits
    in_flight: RequestMemory
    turns: Turns
    buffer: memoryview

    def opened(self, connection: "ConnectionHandle") -> RequestReceiver | None:
        """A new connection; None: it is refused."""

    def closed(self, connection: "ConnectionHandle") -> None:
        """It is gone."""
