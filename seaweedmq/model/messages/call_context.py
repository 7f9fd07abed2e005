"""Context of a call: its caller, the listener that it came through, and its deadline."""

from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""Caller that has not authenticated: every caller, until listeners authenticate."""


class ListenerKind(Enum):
    """The kind of a listener; the value labels its metrics."""

    NATIVE = "native"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The context of one call or stream, or of all requests of a connection.

    The listener makes it, and it goes with the call to ``ports.BrokerApi``. It never travels to another broker, where
    it could be forged: that broker's listener makes its own.
    """

    listener: ListenerKind | None
    """Listener that the call came through; None for a call of this process."""
    peer: str
    """Address of the caller as the transport writes it: ``127.0.0.1:4000`` of Kafka's, ``ipv4:127.0.0.1:4000`` of gRPC.
    """
    caller: str = ANONYMOUS
    """Identity of the caller, as Kafka writes principals."""
    client_id: str = ""
    """Name that the client gives itself; "" for none."""
    deadline_s: float = inf
    """Time on the event loop's clock after which the caller does not wait; infinite without a deadline."""
    trace_parent: str = ""
    """W3C ``traceparent`` of the caller; "" for none: no listener reads one yet."""

    def until(self, deadline_s: float) -> "CallContext":
        """Return the context with a deadline."""
        return replace(self, deadline_s=deadline_s)


INTERNAL: Final = CallContext(listener=None, peer="this process")
"""Context of a broker's calls to itself."""
