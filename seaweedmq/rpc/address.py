"""Addresses as users type them: ``host:port``."""

from typing import NamedTuple

from seaweedmq.errors import InvalidArgument

DEFAULT_HOST = "127.0.0.1"
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})
"""Hosts that listen on every interface and that no client can dial."""
_PORT_MAX = 65_535


class Address(NamedTuple):
    """A host (IPv6 without brackets) and a port; the text form is ``host:port`` with brackets around IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse ``host:port``, ``[v6]:port``, ``:port`` or ``port``; the default host is 127.0.0.1.

    Raises:
        InvalidArgument: If the text has none of these forms, or the port is above 65,535.
    """
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    legal_host = (
        host.isascii() and host.isprintable() and not set(host) & set(" /[]") and (bracketed or ":" not in host)
    )
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= _PORT_MAX and len(port) <= 5 and legal_host):
        raise InvalidArgument(
            f"address {text[:200]!r} is not HOST:PORT with a port from 0 to {_PORT_MAX}: "
            "write it like 127.0.0.1:17777 or [::1]:17777"
        )
    return Address(host or DEFAULT_HOST, int(port))
